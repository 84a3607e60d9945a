"""Runs that a strategy file places: the same weights, pictures in plans, plain errors."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/support/run"))
from small_run import SmallRun, finish, start, wait_for  # noqa: E402

PROGRAM = sys.argv.pop(1)
DEVICES = "devices=[{memory: 16MiB}, {memory: 16MiB}]"
MODEL = ["model.num_hidden_layers=4", "model.pieces={vocabulary: 2}", "train.max_steps=20"]


def strategy(folder, place, **order):
    path = pathlib.Path(folder) / "strategy.yaml"
    path.write_text(json.dumps({"spillway_strategy": 1, "order": order, "place": place}))
    return f"train.strategy={path}"


class StrategyTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.text = self.folder / "text"
        self.text.write_bytes(bytes(range(32, 127)) * 200)

    def run_of(self, name):
        return SmallRun(PROGRAM, self.text, self.folder / name)

    def weights(self, name, *overrides):
        run = self.run_of(name)
        finish(run.train_command(*MODEL, *overrides))
        return run.weights()

    def test_gives_the_weights_of_one_device(self):
        alone = self.weights("alone")
        example = f"train.strategy={ROOT / 'examples/pipeline.yaml'}"
        self.assertEqual(self.weights("example", DEVICES, example), alone)
        parts = strategy(self.folder, [{"layers": "*", "tracks": [0, 1]},
                                       {"layers": "h.1.*", "tracks": [1]}], chunk=2)
        self.assertEqual(self.weights("parts", DEVICES, parts), alone)
        again = strategy(self.folder, [{"layers": ["h.2.*", "h.3.*", "head"], "tracks": [1]}],
                         graphs="recompute")
        self.assertEqual(self.weights("recomputed", DEVICES, again), alone)
        self.assertNotEqual(self.weights("control", "train.reduction_groups=1"), alone)

    def search(self, file, *options):
        slow = DEVICES.replace("16MiB}", "16MiB, imitate: {link: 4MiB/s}}")
        return [PROGRAM, "plan", str(self.run_of("searched").config), *MODEL, slow,
                "--search", str(file), "--proposals", "40", *options]

    def test_finds_strategies(self):
        file = self.folder / "found.yaml"
        found = json.loads(finish(self.search(file, "--json")))["search"]
        times = {each["name"]: each["step_s"] for each in found["compared"] if "step_s" in each}
        self.assertTrue({"data_parallel: 2", "pipeline of 2"} <= times.keys(), times)
        self.assertEqual(found["best"]["step_s"], min(times.values()))
        self.assertTrue(found["best"]["has_strategy"])
        self.assertEqual(self.weights("placed", DEVICES, *found["overrides"]),
                         self.weights("alone"))
        refused = subprocess.run(self.search(file), capture_output=True, text=True, check=False)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("--search: is " + str(file) + ", which exists", refused.stderr)

    def test_searches_for_a_trial_that_fits_several_devices_only(self):
        run = self.run_of("tight")
        command = [PROGRAM, "plan", str(run.config), *MODEL]
        least = [json.loads(finish([*command, DEVICES, f"train.data_parallel={lanes}", "--json"]))
                 ["trials"][0]["smallest_budget_bytes"] for lanes in (1, 2)]
        self.assertLess(least[1], least[0])
        tight = f"devices=[{{memory: {least[1]}}}, {{memory: {least[1]}}}]"
        alone = subprocess.run([*command, tight], capture_output=True, check=False)
        self.assertEqual(alone.returncode, 3)
        file = self.folder / "found.yaml"
        found = json.loads(finish([*command, tight, "--search", str(file), "--proposals", "40",
                                   "--json"]))["search"]
        self.assertEqual(self.weights("spread", tight, *found["overrides"]),
                         self.weights("alone"))

    def test_shows_what_it_has_found(self):
        file = self.folder / "found.yaml"
        text = finish(self.search(file, "--verify"))
        self.assertRegex(text, r"strategy +step +trained +speed")
        self.assertRegex(text, r"pipeline of 2 +[0-9.]+ s +[0-9.]+ s ")
        self.assertRegex(text, r"the order of [0-9]+ of [0-9]+ pairs right")
        self.assertIn(f"Train with train.data_parallel=1 train.strategy={file}", text)
        self.assertIn("S: part of the batch", text)

    def test_searches_for_all_trials(self):
        four = DEVICES.replace("[", "[{memory: 16MiB}, {memory: 16MiB}, ")
        two_trials = "sweep={parameters: {train.learning_rate: {values: [1e-3, 2e-3]}}}"
        command = self.search(self.folder / "found.yaml", four, two_trials, "--json")
        found = json.loads(finish(command))["search"]
        run_s = {each["name"]: each["run_s"] for each in found["compared"] if "run_s" in each}
        self.assertIn("as configured", run_s)
        self.assertTrue(any(name.endswith("on 2 devices") for name in run_s), run_s)
        # What is configured wins unless something is faster by more than noise.
        self.assertLessEqual(found["best"]["run_s"], 1.02 * min(run_s.values()))
        text = finish(self.search(self.folder / "other.yaml", four, two_trials))
        self.assertRegex(text, r"strategy +step +speed .* all trials")

    def test_compares_pieces(self):
        file = self.folder / "found.yaml"
        found = json.loads(finish(self.search(file, "--suggest-pieces", "--json")))["search"]
        memory = [each["device_bytes"] for each in found["pieces"]]
        self.assertEqual(len(memory), 4)
        self.assertEqual(found["pieces"][1]["overrides"],
                         [f"model.pieces.{part}=2" for part in ("attention", "mlp", "vocabulary")])
        self.assertLess(memory[3], memory[0])
        for each in found["pieces"]:
            self.assertGreater(each["best"]["step_s"], 0)

    def test_resumes_on_other_devices(self):
        run = self.run_of("killed")
        pipeline = strategy(self.folder, [{"layers": ["h.2.*", "h.3.*", "head"], "tracks": [1]}])
        slow = DEVICES.replace("16MiB}", "16MiB, imitate: {link: 20MiB/s}}")
        process = start(run.train_command(*MODEL, slow, pipeline))
        wait_for(process, run.generations)
        process.kill()
        process.communicate()
        finish(run.resume_command("devices=[{memory: 16MiB}]"))
        self.assertEqual(run.weights(), self.weights("alone"))

    def test_is_drawn_in_the_plan(self):
        run = self.run_of("planned")
        command = [PROGRAM, "plan", str(run.config), *MODEL, DEVICES,
                   f"train.strategy={ROOT / 'examples/pipeline.yaml'}"]
        lines = [line.split() for line in finish(command).splitlines()]
        self.assertIn(["head/0", ".", "P"], lines)
        self.assertIn(["head/1", "P", "."], lines)
        plan = json.loads(finish([*command, "--json"]))
        self.assertEqual(plan["trials"][0]["order"], "strategy")
        self.assertEqual(plan["trials"][0]["placement"][0], ["O", ""])

    def assert_refused(self, message, *overrides):
        run = self.run_of("refused")
        done = subprocess.run(run.train_command(*MODEL, *overrides), capture_output=True,
                              text=True, check=False, timeout=100)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(message, done.stderr)
        self.assertFalse(run.folder.exists())

    def test_refuses_what_does_not_fit_the_model(self):
        self.assert_refused("train.strategy.place[0].layers: is h.9.*, which matches no layer",
                            strategy(self.folder, [{"layers": "h.9.*", "tracks": [0]}]))
        self.assert_refused("train.strategy: cannot be used with",
                            "train.data_parallel=2", DEVICES,
                            strategy(self.folder, [{"layers": "*", "tracks": [0]}]))

    def test_refuses_other_choices_for_graphs(self):
        self.assert_refused("order.graphs is 'maybe', must be keep or recompute", strategy(
            self.folder, [{"layers": "*", "tracks": [0]}], graphs="maybe"))

    def test_names_the_place_in_the_file(self):
        path = self.folder / "wrong.yaml"
        path.write_text("spillway_strategy: 1\nplace:\n  - {layers: '*', trakcs: [0]}\n")
        self.assert_refused(f"train.strategy: '{path}', line 3: place[0].", f"train.strategy={path}")
        self.assert_refused("train.strategy: cannot read",
                            f"train.strategy={self.folder / 'missing.yaml'}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
