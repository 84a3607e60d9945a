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
# Transfers take longer than computation, also on a busy machine.
FOUR_SLOW = "devices=[" + ", ".join(["{memory: 16MiB, imitate: {link: 1MiB/s}}"] * 4) + "]"
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
        short = strategy(self.folder, [{"layers": "*", "tracks": [0, 1]}], stage_weights="8KiB")
        self.assertEqual(self.weights("short stages", DEVICES, short), alone)
        plan = json.loads(finish([PROGRAM, "plan", str(self.run_of("plan").config), *MODEL, DEVICES,
                                  short, "--json"]))["trials"][0]
        self.assertGreater(plan["num_shards"], 4)
        self.assertNotEqual(self.weights("control", "train.reduction_groups=1"), alone)

    def search(self, file, *options):
        slow = DEVICES.replace("16MiB}", "16MiB, imitate: {link: 4MiB/s}}")
        return [PROGRAM, "plan", str(self.run_of("searched").config), *MODEL, slow,
                "--search", str(file), "--proposals", "40", *options]

    def test_finds_strategies(self):
        file = self.folder / "found.yaml"
        found = json.loads(finish(self.search(file, "--json")))["search"]
        times = {each["name"]: each["step_s"] for each in found["models"][0]["compared"]
                 if "step_s" in each}
        self.assertTrue({"data_parallel: 2", "pipeline of 2"} <= times.keys(), times)
        self.assertEqual(found["best"]["step_s"], min(times.values()))
        self.assertTrue(found["best"]["has_strategy"])
        self.assertEqual(self.weights("placed", DEVICES, *found["overrides"]),
                         self.weights("alone"))
        refused = subprocess.run(self.search(file), capture_output=True, text=True, check=False)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("--search: is " + str(file) + ", which exists", refused.stderr)
        self.assert_refused("the strategy is for another model", DEVICES, *found["overrides"],
                            "model.num_hidden_layers=5")

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

    def search_on_four(self, name, *options):
        four = DEVICES.replace("[", "[{memory: 16MiB}, {memory: 16MiB}, ")
        return self.search(self.folder / name, four, *options)

    def test_searches_for_all_trials(self):
        two_trials = "sweep={parameters: {train.learning_rate: {values: [1e-3, 2e-3]}}}"
        found = json.loads(finish(self.search_on_four("found.yaml", two_trials, "--json")))["search"]
        self.assertEqual(len(found["models"]), 1)
        run_s = {each["name"]: each["run_s"] for each in found["runs"] if each["run_s"]}
        self.assertIn("as configured", run_s)
        self.assertTrue(any(name.endswith("on 2 devices") for name in run_s), run_s)
        # What is configured wins unless something is faster by more than noise.
        self.assertLessEqual(found["best"]["run_s"], 1.02 * min(run_s.values()))
        text = finish(self.search_on_four("other.yaml", two_trials))
        self.assertRegex(text, r"strategy of each trial +run")

    def test_searches_each_model_of_a_run(self):
        two_models = "sweep={trials: [{model.num_hidden_layers: 1}]}"
        found = json.loads(finish(self.search_on_four("found.yaml", two_models, "--json")))["search"]
        self.assertEqual([model["trials"] for model in found["models"]],
                         [["small"], ["num_hidden_layers=1"]])
        run_s = {each["name"]: each["run_s"] for each in found["runs"]}
        self.assertLessEqual(found["best"]["run_s"], 1.02 * min(filter(None, run_s.values())))
        one = found["runs"][1]
        self.assertEqual([(each["trial"], each["strategy"]) for each in one["chosen"]],
                         [("small", one["name"]), ("num_hidden_layers=1", one["name"])])

    def test_finds_devices_for_each_trial(self):
        # Both pairs of devices are far from each other. Transfers take longer than computation,
        # also on a busy machine.
        slow_links = "{kind: cpu, memory: 128MiB, imitate: {link: 4MB/s}}"
        devices = "devices=[" + ", ".join([slow_links] * 4) + "]"
        islands = ("links=[{between: [0, 1], rate: 400MB/s}, {between: [2, 3], rate: 400MB/s}, "
                   "{between: [0, 1, 2, 3], rate: 40kB/s, shared: true}]")
        two_trials = "sweep={parameters: {train.learning_rate: {values: [1e-3, 2e-3]}}}"
        file = self.folder / "found.yaml"
        found = json.loads(finish(
            [PROGRAM, "plan", str(ROOT / "examples/four_devices.yaml"), f"data.path={self.text}",
             devices, islands, two_trials, "--search", str(file), "--proposals", "100",
             "--json"]))["search"]
        first = [each["first_track"] for each in found["best"]["chosen"]]
        self.assertEqual(sorted(first), [0, 2], found["runs"])
        self.assertRegex(file.read_text(), r"tracks: \[[23]")

    def test_leaves_out_trials_that_do_not_fit(self):
        file = self.folder / "found.yaml"
        large = ("sweep={trials: [{train.learning_rate: 2e-3}, {model.hidden_size: 8192, "
                 "model.num_hidden_layers: 1}]}")
        command = self.search_on_four("found.yaml", large, "host_memory=64MiB", "--json")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual([trial["fits"] for trial in found["trials"]], [True, True, False])
        self.assertEqual([model["trials"] for model in found["search"]["models"]],
                         [["small", "learning_rate=2e-3"]])
        if found["search"]["overrides"][1:]:
            self.assertIn('trials: ["*"]', file.read_text())

    def test_has_strategies_for_several_trials(self):
        path = self.folder / "several.yaml"
        everywhere = {"place": [{"layers": "*", "tracks": [0, 1]}]}
        halves = {"place": [{"layers": ["h.0.*", "head"], "tracks": [1]}]}
        path.write_text(json.dumps({"spillway_strategy": 1, "strategies": [
            {"trials": ["num_hidden_layers=1"], **everywhere}, {"trials": "*", **halves}]}))
        trials = "sweep={trials: [{model.num_hidden_layers: 1}]}"
        placed = self.run_of("placed")
        finish(placed.train_command(*MODEL, trials, DEVICES, f"train.strategy={path}"))
        alone = self.run_of("alone")
        finish(alone.train_command(*MODEL, trials))
        names = ["small", "num_hidden_layers=1"]
        for name in names:
            self.assertEqual(placed.weights(name), alone.weights(name))
        plan = json.loads(finish([PROGRAM, "plan", str(placed.config), *MODEL, trials, DEVICES,
                                  f"train.strategy={path}", "--json"]))
        self.assertEqual([row["placement"][0] for row in plan["trials"]], [["O", ""], ["S", "S"]])
        path.write_text(json.dumps({"spillway_strategy": 1, "strategies": [
            {"trials": ["num_hidden_layers=1"], **everywhere}]}))
        self.assert_refused("has no strategy for trial small; name it in the `trials` of one",
                            trials, DEVICES, f"train.strategy={path}")

    def test_has_strategies_by_number_of_devices(self):
        path = self.folder / "by_devices.yaml"
        pipeline = {"place": [{"layers": ["h.2.*", "h.3.*", "head"], "tracks": [1]}]}
        path.write_text(json.dumps({"spillway_strategy": 1, "strategies": [
            {"trials": "*", "devices": 2, **pipeline}, {"trials": "small", **pipeline}]}))
        by_devices = f"train.strategy={path}"
        command = [PROGRAM, "plan", str(self.run_of("planned").config), *MODEL, DEVICES, by_devices,
                   "--json"]
        shards = [json.loads(finish([*command, f"train.data_parallel={devices}"]))["trials"][0]
                  ["num_shards"] for devices in (1, 2)]
        self.assertEqual(shards[0], 1)
        self.assertGreater(shards[1], 1)
        self.assertEqual(self.weights("placed", DEVICES, by_devices, "train.data_parallel=auto"),
                         self.weights("alone"))
        path.write_text(json.dumps({"spillway_strategy": 1, "devices": 3, **pipeline}))
        self.assert_refused("train.strategy: for 3 devices has 2 tracks", by_devices)

    def search_by_devices(self, name, *options):
        found = json.loads(finish(self.search_on_four(name, FOUR_SLOW, *options, "--json")))["search"]
        self.assertEqual(found["overrides"][-1], f"train.strategy={self.folder / name}")
        self.assertTrue(found["by_devices"])
        return found

    def test_searches_for_each_number_of_devices(self):
        rule = "train.autoscale={rule: throughput}"
        found = self.search_by_devices("one.yaml", rule, "train.max_data_parallel=4")
        names = [each["name"] for each in found["models"][0]["compared"]]
        self.assertTrue(any(name.endswith("on 2 devices") for name in names), names)
        four = DEVICES.replace("[", "[{memory: 16MiB}, {memory: 16MiB}, ")
        self.assertEqual(self.weights("scaled", four, rule, "train.max_data_parallel=4",
                                      *found["overrides"]), self.weights("alone"))
        text = finish(self.search_on_four("text.yaml", FOUR_SLOW, rule,
                                          "train.max_data_parallel=4"))
        self.assertRegex(text, r"Wrote strategies for [0-9, ]+ devices? to ")

    def test_searches_for_trials_that_share_devices(self):
        trials = "sweep={trials: [{train.max_steps: 10}]}"
        found = json.loads(finish(self.search_on_four(
            "shared.yaml", trials, "scheduling.sharing=fill", "--json")))["search"]
        names = [each["name"] for each in found["runs"]]
        self.assertIn("the fastest on the devices that it has", names)
        limited = self.search_by_devices("limited.yaml", trials, "train.max_data_parallel=4",
                                         "scheduling.sharing=fill")
        self.assertEqual(limited["overrides"][:-1], ["scheduling.sharing=fill"])
        self.assertEqual([each["name"] for each in limited["runs"]],
                         ["as configured", "the fastest on the devices that it has"])
        self.assertEqual(limited["best"]["name"], limited["runs"][1]["name"])
        four = DEVICES.replace("[", "[{memory: 16MiB}, {memory: 16MiB}, ")
        shared, alone = self.run_of("shared"), self.run_of("alone")
        finish(shared.train_command(*MODEL, four, trials, *limited["overrides"]))
        finish(alone.train_command(*MODEL, trials))
        for name in ("small", "max_steps=10"):
            self.assertEqual(shared.weights(name), alone.weights(name))

    def test_searches_for_as_many_devices_as_a_trial_may_have(self):
        found = self.search_by_devices("limit.yaml", "train.max_data_parallel=2")
        self.assertLessEqual(max(found["by_devices"]), 2)

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
