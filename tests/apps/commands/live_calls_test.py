#!/usr/bin/env python3
"""Other processes stop, pause, resume, extend, change, clone and add trials of a run that is going on, and of one
that has ended. A call that was answered is never lost, also if the run is killed at any instant.
Usage: live_calls_test.py SPILLWAY TEXT [KILLS] [SEED] [TEST]"""

import csv
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support/run"))
import small_run  # noqa: E402

PROGRAM, TEXT = (os.path.abspath(argument) for argument in sys.argv[1:3])
KILLS = int(sys.argv[3]) if len(sys.argv) > 3 else 3 * int(os.environ.get("SPILLWAY_CAMPAIGN", "1"))
SEED = int(sys.argv[4]) if len(sys.argv) > 4 else 1
RATES = ("1e-3", "2e-3", "3e-3")
SWEEP = ["sweep.parameters={train.learning_rate: {values: [%s]}}" % ", ".join(RATES),
         "train.lr_scheduler_type=constant"]
FIRST, SECOND, THIRD = (f"learning_rate={rate}" for rate in RATES)
ADDED = "learning_rate=4e-3"
CLONE = FIRST + "-clone"


class SweepRun(small_run.SmallRun):
    def start(self, *overrides):
        process = small_run.start(self.train_command(*SWEEP, *overrides))
        small_run.wait_for(process, lambda: self.steps(THIRD) > 0)
        return process

    def call(self, *arguments):
        """The exit code of a command about the run, and what it prints."""
        done = subprocess.run([PROGRAM, arguments[0], str(self.folder), *arguments[1:]],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False, timeout=300)
        return done.returncode, done.stdout

    def trials(self):
        """Their results by name."""
        shown = subprocess.run([PROGRAM, "results", str(self.folder), "--json"],
                               capture_output=True, text=True, check=False, timeout=100)
        return {trial["name"]: trial for trial in json.loads(shown.stdout)["trials"]}

    def steps(self, trial):
        """As in the log, without a process for each look."""
        log = self.folder / "events.jsonl"
        if not log.exists():
            return 0
        names, steps = [], 0
        for line in log.read_text().split("\n")[:-1]:
            event = json.loads(line)
            if event["event"] in ("run", "added"):
                names += [each["name"] for each in event["trials"]]
            elif event["event"] == "step" and names[event["trial"]] == trial:
                steps = event["step"]
        return steps

    def weights_of(self, trial):
        return (self.folder / "trials" / trial / "weights.safetensors").read_bytes()

    def state(self, trial):
        return self.trials()[trial]["state"]

    def rates(self, trial):
        """The learning rate of each step."""
        with open(self.folder / "trials" / trial / "metrics.csv", encoding="utf-8") as file:
            return [float(row["learning_rate"]) for row in csv.DictReader(file)]


def finished(process):
    text, _ = process.communicate(timeout=300)
    if process.returncode != 0:
        raise AssertionError(f"exit code {process.returncode}\n{text}")
    return text


class LiveCalls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        whole = SweepRun(PROGRAM, TEXT, folder.name + "/whole")
        small_run.finish(whole.train_command(
            SWEEP[0].replace("3e-3", "3e-3, 4e-3"), SWEEP[1], "checkpoint.every_steps=0"))
        cls.weights = {name: whole.weights_of(name) for name in (FIRST, SECOND, THIRD, ADDED)}
        cls.weights[CLONE] = cls.weights[FIRST]  # if it has the same values
        longer = SweepRun(PROGRAM, TEXT, folder.name + "/longer")
        small_run.finish(longer.train_command(
            SWEEP[0].replace(", 2e-3, 3e-3", ""), SWEEP[1], "train.max_steps=220"))
        cls.extended = longer.weights_of(FIRST)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_ = SweepRun(PROGRAM, TEXT, folder.name + "/run")

    def called(self, *arguments):
        code, said = self.run_.call(*arguments)
        self.assertEqual(code, 0, said)
        return said

    def refused(self, *arguments):
        code, said = self.run_.call(*arguments)
        self.assertEqual(code, 2, said)
        return said

    def assert_whole(self, *trials):
        for trial in trials:
            self.assertEqual(self.run_.state(trial), "done")
            self.assertEqual(self.run_.weights_of(trial), self.weights[trial], trial)

    def test_calls_act_on_a_run_that_goes_on(self):
        process = self.run_.start(small_run.SLOW)
        self.assertIn("ends after its current step", self.called("stop", FIRST))
        self.assertIn(f"trial {SECOND} pauses after its current step", self.called("pause", "t1"))
        self.assertIn("is paused already", self.refused("pause", SECOND))
        self.assertIn("has ended: it is stopped", self.refused("stop", FIRST))
        self.assertIn("which the run does not have", self.refused("stop", "nobody"))
        self.assertIn(f"trial {ADDED} trains from now on",
                      self.called("add", "train.learning_rate=4e-3"))
        self.assertIn("must be", self.refused("add", "train.learning_rate=much"))
        small_run.wait_for(process, lambda: self.run_.steps(ADDED) > 0)
        self.assertEqual(self.run_.state(SECOND), "paused")
        self.assertIn(f"trial {SECOND} goes on", self.called("resume", "--trial", "t1"))
        finished(process)
        self.assertEqual(self.run_.state(FIRST), "stopped")
        self.assert_whole(SECOND, THIRD, ADDED)
        # It has ended: a resume leaves the stopped trial, unless it is named.
        self.assertIn("have ended", self.called("resume"))
        self.assertEqual(self.run_.state(FIRST), "stopped")
        self.called("resume", "--trial", FIRST, small_run.FAST)
        self.assert_whole(FIRST, SECOND, THIRD, ADDED)
        self.assertIn("has ended: it is done", self.refused("stop", FIRST))
        self.assertEqual(self.run_.call("verify")[0], 0)

    def test_a_refused_add_leaves_the_others(self):
        def written():
            return ((self.run_.folder / "config.yaml").read_text(), sorted(self.run_.trials()),
                    sorted(path.name for path in (self.run_.folder / "trials").iterdir()))

        process = self.run_.start(small_run.SLOW)
        for value, problem in (("train.learning_rate=4e-3", ""),
                               ("train.learning_rate=much", "must be"),
                               ("model.hidden_size=4096", "does not fit"),
                               ("sweep.run_cap=9", "sweep.run_cap"),
                               ("train.learning_rate=5e-3", "")):
            before = written()
            if problem:
                self.assertIn(problem, self.refused("add", value))
                self.assertEqual(written(), before)
            else:
                self.called("add", value)
                self.assertEqual(len(written()[1]), len(before[1]) + 1)
        finished(process)
        last = "learning_rate=5e-3"
        self.assertEqual(sorted(self.run_.trials()), [FIRST, SECOND, THIRD, ADDED, last])
        self.assert_whole(FIRST, SECOND, THIRD, ADDED)
        self.assertEqual((self.run_.state(last), self.run_.call("verify")[0]), ("done", 0))

    def test_a_run_ends_once_only_paused_trials_are_left(self):
        process = self.run_.start(small_run.SLOW)
        self.called("pause", SECOND)
        self.assertIn(f"Trial {SECOND} is paused. Continue with: ", finished(process))
        self.assertEqual(self.run_.state(SECOND), "paused")
        self.assert_whole(FIRST, THIRD)
        self.assertIn("is paused", self.called("resume"))
        self.assertEqual(self.run_.state(SECOND), "paused")
        self.called("resume", "--trial", "t1", small_run.FAST)
        self.assert_whole(SECOND)

    def test_calls_on_a_run_that_has_ended(self):
        small_run.finish(self.run_.train_command(*SWEEP))
        self.called("add", "train.learning_rate=4e-3")
        self.assert_whole(FIRST, SECOND, THIRD, ADDED)
        self.assertIn("give a larger number of steps", self.refused("extend", FIRST))
        self.assertIn("would shorten", self.refused("extend", FIRST, "100"))
        self.called("extend", "t0", "220")
        self.assertEqual([self.run_.steps(trial) for trial in (FIRST, SECOND)], [220, 200])
        whole = SweepRun(PROGRAM, TEXT, str(self.run_.folder) + "-whole")
        small_run.finish(whole.train_command(*SWEEP, "train.max_steps=220"))
        self.assertEqual(self.run_.weights_of(FIRST), whole.weights_of(FIRST))
        self.called("resume", "train.max_steps=220")
        self.assertEqual(self.run_.weights_of(SECOND), whole.weights_of(SECOND))
        self.assertEqual(self.run_.call("verify")[0], 0)

    def test_a_trial_that_goes_on_is_extended(self):
        process = self.run_.start(small_run.SLOW)
        self.assertIn("takes no other", self.refused("extend", FIRST, "220", "seed=2"))
        self.called("pause", FIRST)
        self.assertIn(f"trial {FIRST} trains on, to 220 steps", self.called("extend", FIRST, "220"))
        finished(process)
        self.assertEqual([self.run_.steps(trial) for trial in (FIRST, SECOND)], [220, 200])
        self.assertEqual(self.run_.weights_of(FIRST), self.extended)
        self.assertNotEqual(self.run_.weights_of(FIRST), self.weights[FIRST])
        self.assertIn("have ended", self.called("resume"))
        self.assertEqual(self.run_.call("verify")[0], 0)

    def test_a_trial_that_has_ended_is_extended_while_others_go_on(self):
        process = self.run_.start(
            small_run.SLOW, "sweep.early_terminate={type: hyperband, min_iter: 20, eta: 3}")
        stopped = []
        while len(stopped) < 2 and process.poll() is None:
            stopped = [name for name, trial in self.run_.trials().items()
                       if trial["state"] == "stopped early"]
        self.assertIn("trains on, to 200 steps", self.called("extend", stopped[0]))
        finished(process)
        self.assertEqual(self.run_.state(stopped[1]), "stopped early")
        self.assert_whole(*{FIRST, SECOND, THIRD} - {stopped[1]})
        self.assertIn("have ended", self.called("resume"))
        self.assertEqual(self.run_.call("verify")[0], 0)

    def test_an_extended_trial_does_not_wait_for_others(self):
        process = self.run_.start(
            small_run.SLOW, "sweep.early_terminate={type: hyperband, min_iter: 60, eta: 3}")
        self.called("pause", FIRST)
        self.assertIn("trains on, to 220 steps", self.called("extend", SECOND, "220"))
        small_run.wait_for(process, lambda: self.run_.steps(SECOND) > 60)  # the others cannot come
        self.assertEqual(self.run_.state(SECOND), "running")
        self.called("resume", "--trial", FIRST)
        finished(process)
        states = [self.run_.state(trial) for trial in (FIRST, SECOND, THIRD)]
        self.assertEqual(states[1], "done")
        self.assertEqual(sorted(states), ["done", "done", "stopped early"])
        self.assertEqual(self.run_.steps(SECOND), 220)
        self.assertIn("have ended", self.called("resume"))
        self.assertEqual(self.run_.call("verify")[0], 0)

    def test_a_trial_without_checkpoints_is_extended_from_its_beginning(self):
        process = self.run_.start(small_run.SLOW, "checkpoint.keep=0")
        self.assertIn("to 220 steps, from the beginning: checkpoint.keep is 0",
                      self.called("extend", FIRST, "220"))
        finished(process)
        self.assertEqual(self.run_.weights_of(FIRST), self.extended)

    def assert_set(self, trial, answer, rate):
        """The trial has the rate from the step of the answer on."""
        begin = int(re.search(r"from step (\d+) on", answer)[1])
        self.assertEqual(self.run_.rates(trial), [1e-3] * (begin - 1) + [rate] * (201 - begin))
        self.assertNotEqual(self.run_.weights_of(trial), self.weights[trial])

    def test_values_of_a_trial_change(self):
        process = self.run_.start(small_run.SLOW)
        self.assertIn("takes no other keys", self.refused("set", FIRST, "train.batch_size=16"))
        self.assertIn("train.learning_rate: is '-1'", self.refused("set", FIRST, "train.learning_rate=-1"))
        answer = self.called("set", "t0", "train.learning_rate=5e-3", "train.weight_decay=0.1")
        self.assertIn(f"trial {FIRST} has learning_rate 0.005, weight_decay 0.1 from step", answer)
        process.kill()
        process.communicate()
        for file in self.run_.folder.glob("journal.*"):
            file.unlink()  # the log has them too
        self.called("resume", small_run.FAST)
        self.assert_set(FIRST, answer, 5e-3)
        self.assert_whole(SECOND, THIRD)
        self.assertIn("clone it with other values",
                      self.refused("set", FIRST, "train.learning_rate=1e-3"))
        self.assertEqual(self.run_.call("verify")[0], 0)

    def test_values_change_of_a_run_that_was_interrupted(self):
        process = self.run_.start(small_run.SLOW)
        process.kill()
        process.communicate()
        answer = self.called("set", FIRST, "train.learning_rate=5e-3")
        self.assert_set(FIRST, answer, 5e-3)
        self.assert_whole(SECOND, THIRD)

    def test_a_trial_is_cloned(self):
        process = self.run_.start(small_run.SLOW)
        self.assertIn(f"trial {CLONE} trains from now on, a clone of {FIRST}",
                      self.called("clone", "t0"))
        self.assertIn(f"trial {CLONE}-2 trains", self.called("clone", FIRST, "train.learning_rate=5e-3"))
        finished(process)
        self.assert_whole(FIRST, SECOND, THIRD, CLONE)
        rates = self.run_.rates(CLONE + "-2")
        begin = rates.index(5e-3)
        self.assertEqual(rates, [1e-3] * begin + [5e-3] * (200 - begin))
        trials = self.run_.trials()
        self.assertEqual(trials[CLONE]["clone_of"], FIRST)
        self.assertEqual(trials[CLONE + "-2"]["sweep"], {"train.learning_rate": 5e-3})
        self.assertIn("have ended", self.called("resume"))
        # One that has ended, longer.
        self.assertIn("write at least 200", self.refused("clone", FIRST, "train.max_steps=100"))
        self.called("clone", FIRST, "train.max_steps=220")
        self.assertEqual(self.run_.weights_of(CLONE + "-3"), self.extended)
        self.called("resume", "train.max_steps=220")
        for trial in (FIRST, CLONE):
            self.assertEqual(self.run_.weights_of(trial), self.extended)
        self.assertEqual(self.run_.call("verify")[0], 0)
        self.assertIn("clone of", self.called("results"))

    def test_a_trial_that_was_stopped_early_is_trained_on(self):
        small_run.finish(self.run_.train_command(
            *SWEEP, "sweep.early_terminate={type: hyperband, min_iter: 20, eta: 3}"))
        stopped = [name for name, trial in self.run_.trials().items()
                   if trial["state"] == "stopped early"]
        self.assertEqual(len(stopped), 2)
        self.called("extend", stopped[0])
        self.assertEqual(self.run_.state(stopped[1]), "stopped early")
        self.assert_whole(stopped[0])
        self.called("resume", "sweep.parameters.train.learning_rate.values=[1e-3, 2e-3, 3e-3, 4e-3]")
        self.assertIn(self.run_.state(ADDED), ("done", "stopped early"))

    def test_an_answered_call_survives_kills(self):
        chance = random.Random(SEED)
        answered = 0
        for number in range(KILLS):
            self.run_ = SweepRun(PROGRAM, TEXT, str(self.run_.folder.parent / f"run{number}"))
            process = self.run_.start(small_run.SLOW)
            call = chance.choice([["stop", FIRST], ["pause", FIRST], ["extend", FIRST, "220"],
                                  ["set", FIRST, "train.learning_rate=5e-3"], ["clone", FIRST],
                                  ["add", "train.learning_rate=4e-3"]])
            caller = small_run.start([PROGRAM, call[0], str(self.run_.folder), *call[1:]])
            time.sleep(chance.uniform(0, 0.6))
            process.kill()
            process.communicate()
            text, _ = caller.communicate(timeout=300)
            was_answered = caller.returncode == 0
            answered += was_answered
            self.called("resume", small_run.FAST)
            trials = self.run_.trials()
            if was_answered:
                expected = {"stop": "stopped", "pause": "paused"}.get(call[0], "done")
                trial = {"add": ADDED, "clone": CLONE}.get(call[0], FIRST)
                self.assertIn(trial, trials, text)
                self.assertEqual(trials[trial]["state"], expected, f"{call} of run {number}: {text}")
                if call[0] == "extend":
                    self.assertEqual(self.run_.weights_of(FIRST), self.extended)
                if call[0] == "set":
                    self.assert_set(FIRST, text, 5e-3)
            for name in trials:
                if name != FIRST:
                    self.assert_whole(name)
        print(f"{KILLS} runs, {answered} calls answered", flush=True)
        self.assertGreater(answered, 0, "no call was answered: the test proves nothing here")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]], verbosity=2)
