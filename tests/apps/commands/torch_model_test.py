#!/usr/bin/env python3
"""The program plans, trains, resumes and exports a model of PyTorch that is a file.
Usage: torch_model_test.py SPILLWAY [TEST]"""

import csv
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support/run"))
import exported_model  # noqa: E402
import small_run  # noqa: E402

PROGRAM = str(pathlib.Path(sys.argv[1]).resolve())
SLOW = "devices=[{memory: 16MiB, imitate: {slowdown: 100}}]"


def train_and_kill(run):
    """Kills the program once it has saved a checkpoint."""
    process = small_run.start(run.train_command(SLOW))
    small_run.wait_for(process, run.generations)
    process.kill()
    process.communicate()


class TorchRun(small_run.SmallRun):
    """A run in a folder of its own, which has the model and the samples."""

    def __init__(self, folder):
        folder = pathlib.Path(folder)
        super().__init__(PROGRAM, folder / "samples.safetensors", folder / "run")
        self.document, self.tensors = exported_model.classifier()
        self.model = folder / "net.spw"
        self.write()
        exported_model.write_samples(folder / "samples.safetensors")
        self.settings = {
            **small_run.CONFIG, "data_root": str(folder),
            "model": {"family": "torch", "path": "net.spw"},
            "data": {"format": "tensors", "path": "samples.safetensors", "eval_fraction": 0.2},
            "train": {"batch_size": 16, "max_steps": 60, "eval_steps": 20, "learning_rate": 1e-2}}
        self.configure()

    def write(self):
        exported_model.write_model(self.model, self.document, self.tensors)

    def configure(self):
        self.config.write_text(json.dumps(self.settings))

    def problem(self, command):
        """What a command says that must fail."""
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
        if done.returncode == 0:
            raise AssertionError("did not fail: " + done.stdout)
        return done.stdout + done.stderr


class TorchModel(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_ = TorchRun(folder.name)

    def test_plans_trains_and_lists(self):
        run = self.run_
        plan = json.loads(small_run.finish([PROGRAM, "plan", str(run.config), "--json"]))
        self.assertIn("small", json.dumps(plan))
        small_run.finish(run.train_command())
        with open(run.folder / "trials/small/metrics.csv", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertLess(float(rows[-1]["loss"]), 0.8 * float(rows[0]["loss"]))
        self.assertGreater(float(rows[-1]["accuracy"]), 0.4)
        results = json.loads(small_run.finish([PROGRAM, "results", str(run.folder), "--json"]))
        self.assertEqual(results["trials"][0]["state"], "done")
        # The split of the batch follows from the file.
        self.assertIn("virtual_nodes: 4", (run.folder / "config.yaml").read_text())

    def test_resumes_with_the_same_weights(self):
        run = self.run_
        train_and_kill(run)
        run.model.rename(run.model.with_name("moved.spw"))  # its content counts
        small_run.finish(run.resume_command("model.path=moved.spw", small_run.FAST))
        self.assertLess(run.events("resumed")[0]["step"], 60)
        weights = run.weights()
        small_run.finish(run.train_command("--overwrite", "model.path=moved.spw"))
        self.assertEqual(run.weights(), weights)

    def test_does_not_resume_with_another_file(self):
        run = self.run_
        train_and_kill(run)
        run.tensors["head.bias"] = ("F32", [exported_model.CLASSES], [1.0, 2.0, 3.0])
        run.write()
        self.assertIn("model.xxh3: was", run.problem(run.resume_command()))

    def test_refuses_with_field_and_remedy(self):
        run = self.run_
        cases = [
            ({"train.virtual_nodes": 8}, "train.virtual_nodes: is 8, must be 4, or absent"),
            ({"train.batch_size": 18}, "train.batch_size: is 18, must be a multiple of 4, such as 20"),
            ({"train.dtype": "bf16"}, "train.dtype: is bf16, but model torch computes with fp32"),
            ({"model.path": "no.spw"}, "no.spw' cannot be read: No such file or directory"),
            ({"model.path": "samples.safetensors"}, "is not an exported model"),
            ({"data.format": "bytes"}, "data.format: is bytes, but the rows of 'net.spw' are 9 "
                                       "float32 values; write tensors"),
            ({"data.path": "net.spw"}, "data.path: "),
        ]
        for overrides, expected in cases:
            words = [f"{key}={value}" for key, value in overrides.items()]
            said = run.problem(run.train_command(*words))
            self.assertIn(expected, said)
            self.assertNotIn("Traceback", said)
        self.assertFalse(run.folder.exists())

    def test_compares_trials_by_a_metric_of_the_model(self):
        run = self.run_
        sweep = ["sweep.parameters={train.learning_rate: {values: [1e-2, 1e-5]}}",
                 "sweep.metric={name: accuracy, goal: maximize}"]
        small_run.finish(run.train_command(*sweep))
        results = json.loads(small_run.finish([PROGRAM, "results", str(run.folder), "--json"]))
        self.assertEqual(len(results["trials"]), 2)
        run.document["metrics"] = []
        run.write()
        said = run.problem(run.train_command("--overwrite", *sweep))
        self.assertIn("sweep.metric.name: is accuracy, which model.family torch does not have; "
                      "write eval_loss", said)


class Adapter(unittest.TestCase):
    LORA = {"type": "lora", "r": 2, "alpha": 8, "dropout": 0.1,
            "target_modules": ["second", "head"]}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_ = TorchRun(folder.name)
        self.run_.settings["adapter"] = self.LORA
        self.run_.configure()

    def tensors(self, trial="small"):
        return exported_model.read_safetensors(
            self.run_.folder / "trials" / trial / "weights.safetensors")

    def test_trains_nothing_else(self):
        run = self.run_
        json.loads(small_run.finish([PROGRAM, "plan", str(run.config), "--json"]))
        small_run.finish(run.train_command())
        trained, base = self.tensors(), exported_model.read_safetensors(run.model)
        new = {f"base_model.model.{module}.lora_{matrix}.default.weight"
               for module in ("second", "head") for matrix in "AB"}
        self.assertEqual(trained.keys() - base.keys(), new)
        self.assertEqual({name: trained[name] for name in base}, base)
        self.assertTrue(any(trained["base_model.model.second.lora_B.default.weight"][2]))
        with open(run.folder / "trials/small/metrics.csv", encoding="utf-8") as file:
            losses = [float(row["loss"]) for row in csv.DictReader(file)]
        self.assertLess(losses[-1], losses[0])
        config = (run.folder / "config.yaml").read_text()
        self.assertIn("adapter:\n  type: lora\n  r: 2\n  alpha: 8\n  dropout: 0.1\n"
                      "  target_modules: [second, head]\n", config)

    def test_resumes_with_the_same_weights(self):
        run = self.run_
        train_and_kill(run)
        for change, problem in (("adapter.r=4", "adapter.r: was 2, is 4"),
                                ("adapter.target_modules=head", "adapter.target_modules: was "),
                                ("adapter=", "adapter.")):
            self.assertIn(problem, run.problem(run.resume_command(change)))
        small_run.finish(run.resume_command(small_run.FAST))
        self.assertLess(run.events("resumed")[0]["step"], 60)
        weights = run.weights()
        small_run.finish(run.train_command("--overwrite"))
        self.assertEqual(run.weights(), weights)

    def test_has_equal_bits_within_any_budget(self):
        run = self.run_
        plan = json.loads(small_run.finish([PROGRAM, "plan", str(run.config), "--json"]))
        least = plan["trials"][0]["smallest_budget_bytes"]  # depends on the processor
        weights = {}
        for name, overrides in {
                "whole": [], "cut": [f"devices=[{{memory: {least}}}]"],
                "two": [f"devices=[{{memory: {least}}}, {{memory: 16MiB}}]",
                        "train.data_parallel=2"],
                "control": ["adapter.alpha=9"]}.items():
            small_run.finish(run.train_command("--overwrite", *overrides))
            weights[name] = run.weights()
            if name == "cut":
                with open(run.folder / "results.csv", encoding="utf-8") as file:
                    self.assertGreater(int(next(csv.DictReader(file))["num_shards"]), 1)
        self.assertEqual(weights["whole"], weights["cut"])
        self.assertEqual(weights["whole"], weights["two"])
        self.assertNotEqual(weights["whole"], weights["control"])

    def test_sweeps_its_fields(self):
        run = self.run_
        sweep = ("sweep.parameters={adapter.r: {values: [1, 4]}, "
                 "adapter.target_modules: {values: [[head], all-linear]}}")
        small_run.finish(run.train_command(sweep))
        results = json.loads(small_run.finish([PROGRAM, "results", str(run.folder), "--json"]))
        found = {}
        for trial in results["trials"]:
            new = {name.split(".")[2]: shape for name, (_, shape, _) in
                   self.tensors(trial["name"]).items() if ".lora_B." in name}
            found[trial["sweep"]["adapter.r"], trial["sweep"]["adapter.target_modules"]] = new
        width = exported_model.WIDTH
        self.assertEqual(found, {
            (rank, targets): {module: [rows, rank] for module, rows in new.items()}
            for rank in (1, 4) for targets, new in {
                "[head]": {"head": exported_model.CLASSES},
                "all-linear": {"first": width, "second": width}}.items()})

    def test_refuses_with_field_and_remedy(self):
        run = self.run_
        cases = [
            ("adapter.r=0", "adapter.r: is '0', must be an integer from 1 to 65536"),
            ("adapter.dropout=1",
             "adapter.dropout: is '1', must be a number of at least 0 and below 1"),
            ("adapter.type=dora", "adapter.type: is 'dora', must be lora"),
            ("adapter.target_modules=[haed]",
             "adapter.target_modules: has 'haed', which names no module of 'Classifier'; name "
             "others, such as first, head, second"),
            ("adapter={r: 4}", "adapter.target_modules: is missing; name linear layers, such as"),
            ("adapter=lora", "adapter: is 'lora', must be a mapping"),
            ("adapter.rank=3", "adapter.rank: unknown key"),
            ("model={family: mlp}", "adapter: needs model.family: torch, but the family is mlp; export a "
                                    "model with spillway import, or remove adapter"),
        ]
        for override, expected in cases:
            said = run.problem(run.train_command(override))
            self.assertIn(expected, said)
        self.assertFalse(run.folder.exists())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=1)
