"""The package `spillway`: Optuna chooses what a session trains."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import unittest

try:
    import optuna
    from optuna.storages import RDBStorage
    from optuna.trial import TrialState
except ImportError:
    print("skipped: Optuna is not installed; run scripts/python.sh")
    sys.exit(77)
import torch

import spillway as sp
from spillway.optuna import optimize, optimize_as_they_come

STEPS = 12
QUANTUM = 3
TRIALS = 12

optuna.logging.set_verbosity(optuna.logging.ERROR)


def samples():
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randint(0, 17, (120, 64), generator=generator)
    return sp.data(inputs, inputs[:, :10].argmax(1), eval_fraction=0.2)


def space(trial, **values):
    return {
        "model": sp.mlp(hidden_size=32, num_hidden_layers=trial.suggest_int("layers", 1, 3)),
        "data": samples(),
        "learning_rate": trial.suggest_float("learning_rate", 1e-4, 0.3, log=True),
        "batch_size": trial.suggest_categorical("batch_size", [8, 16]),
        "max_steps": STEPS,
        **values,
    }


def tpe(seed):
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=4)


def multivariate(seed):
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=4, multivariate=True)


def halving():
    return optuna.pruners.SuccessiveHalvingPruner(min_resource=QUANTUM, reduction_factor=2)


def hyperband():
    return optuna.pruners.HyperbandPruner(min_resource=QUANTUM, max_resource=STEPS,
                                          reduction_factor=2)


def make_study(**options):
    return optuna.create_study(**{"study_name": "digits", "pruner": halving(), **options})


def optimized(devices=1, study=None, **options):
    with sp.Session(["64MiB"] * devices) as session:
        return optimize(study or make_study(), session, space, **{
            "n_trials": TRIALS, "quantum": QUANTUM, "at_once": 5, "sampler": tpe, **options})


def bits(study):
    """All that a study has of its trials, but times."""
    return [(trial.number, trial.state, trial.params, trial.value, trial.intermediate_values,
             {key: value for key, value in trial.system_attrs.items() if "rung" in key})
            for trial in study.trials]


class DyingStorage(RDBStorage):
    """Kills its process beside a write, before or after it."""

    writes = 0

    def _die(self, method, *values):
        DyingStorage.writes -= 1
        if DyingStorage.writes == 0 and self.before:
            os.kill(os.getpid(), signal.SIGKILL)
        result = method(*values)
        if DyingStorage.writes == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


for name in ("create_new_trial", "set_trial_param", "set_trial_state_values",
             "set_trial_intermediate_value", "set_trial_user_attr", "set_trial_system_attr",
             "set_study_user_attr"):
    def write(self, *values, _method=getattr(RDBStorage, name), **named):
        return self._die(lambda *given: _method(self, *given, **named), *values)
    setattr(DyingStorage, name, write)


CASES = {"with checkpoints": (tpe, halving), "without": (multivariate, hyperband)}


def go_on_and_die(case, folder, kills, writes):
    """The process of a test: goes on with a study until so many writes."""
    sampler, pruner = CASES[case]
    options = {"checkpoint_dir": f"{folder}/checkpoints"} if case == "with checkpoints" else {}
    DyingStorage.writes, DyingStorage.before = 0, int(kills) % 2 == 0
    storage = DyingStorage(f"sqlite:///{folder}/study.sqlite")
    study = make_study(storage=storage, pruner=pruner(), load_if_exists=True)
    DyingStorage.writes = int(writes)
    optimized(1 + int(kills) % 2, study, sampler=sampler, **options)


class OptimizeTest(unittest.TestCase):
    def test_makes_one_study_on_any_number_of_devices(self):
        expected = optimized(1)
        states = {trial.state for trial in expected.trials}
        self.assertEqual(states, {TrialState.COMPLETE, TrialState.PRUNED})
        self.assertEqual(len(expected.trials), TRIALS)
        self.assertEqual(bits(optimized(3)), bits(expected))
        self.assertNotEqual(bits(optimized(1, seed=1)), bits(expected))

    def test_prunes_in_rounds_of_equal_steps(self):
        study = optimized()
        for trial in study.trials:
            steps = list(range(QUANTUM, trial.last_step + 1, QUANTUM))
            self.assertEqual(list(trial.intermediate_values), steps)
            self.assertEqual(trial.last_step == STEPS, trial.state == TrialState.COMPLETE)
        self.assertEqual(study.best_value, min(trial.value for trial in study.trials
                                               if trial.state == TrialState.COMPLETE))

    def test_goes_on_after_kills(self):
        for case, (sampler, pruner) in CASES.items():
            with self.subTest(case), tempfile.TemporaryDirectory() as folder:
                kills = self._kill_often(case, folder)
                self.assertGreater(kills, 3)
                study = optuna.load_study(study_name="digits",
                                          storage=f"sqlite:///{folder}/study.sqlite")
                whole = optimized(study=make_study(pruner=pruner()), sampler=sampler)
                self.assertEqual(bits(study), bits(whole))

    def _kill_often(self, case, folder):
        random_writes = random.Random(5)
        for kills in range(100):
            child = subprocess.run([sys.executable, __file__, case, folder, str(kills),
                                    str(random_writes.randint(10, 24))], check=False)
            if child.returncode != -signal.SIGKILL:
                self.assertEqual(child.returncode, 0)
                return kills
        self.fail("the study does not end")

    def test_repeats_nothing_that_has_ended(self):
        study = optimized()
        expected = bits(study)
        with sp.Session("64MiB") as session:
            optimize(study, session, space, n_trials=TRIALS, quantum=QUANTUM, sampler=tpe)
            self.assertEqual(len(session.results()), 0)
        self.assertEqual(bits(study), expected)

    def test_maximizes_a_metric(self):
        study = optimized(study=make_study(direction="maximize"), metric="accuracy", n_trials=4)
        self.assertTrue(all(0 <= trial.value <= 1 for trial in study.trials
                            if trial.state == TrialState.COMPLETE))

    def test_fails_a_trial_that_does_not_fit(self):
        study = make_study()
        study.enqueue_trial({"layers": 1, "learning_rate": 0.01, "batch_size": 8})
        with sp.Session("8KiB") as session:
            optimize(study, session, space, n_trials=1, quantum=QUANTUM)
        self.assertEqual(study.trials[0].state, TrialState.FAIL)
        self.assertIn("8.00 KiB", study.trials[0].user_attrs["reason"])

    def test_names_what_is_wrong(self):
        for field, options in (("quantum", {"quantum": 0}), ("metric", {"metric": "f1"}),
                               ("study", {"study": make_study(directions=["minimize"] * 2,
                                                              pruner=None)})):
            with self.assertRaises(sp.ConfigError) as raised:
                optimized(**options)
            self.assertEqual(raised.exception.field, field)
        with sp.Session("64MiB") as session:
            with self.assertRaisesRegex(sp.ConfigError, "max_steps"):
                optimize(make_study(), session, lambda trial: space(trial, max_steps=0),
                         n_trials=1, quantum=QUANTUM)


class OptimizeAsTheyComeTest(unittest.TestCase):
    def test_ends_all_trials(self):
        study = make_study(sampler=tpe(1))
        with sp.Session(["64MiB"] * 2) as session:
            optimize_as_they_come(study, session, lambda trial: space(trial, eval_steps=QUANTUM),
                                  n_trials=TRIALS)
        states = {trial.state for trial in study.trials}
        self.assertEqual(len(study.trials), TRIALS)
        self.assertEqual(states, {TrialState.COMPLETE, TrialState.PRUNED})

    def test_goes_on_with_a_stored_study(self):
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{folder}/study.sqlite"
            study = make_study(storage=url)
            space(study.ask())  # as a killed process leaves it
            with sp.Session("64MiB") as session:
                optimize_as_they_come(study, session, space, n_trials=3,
                                      checkpoint_dir=pathlib.Path(folder) / "checkpoints")
            self.assertEqual([trial.state for trial in study.trials], [TrialState.COMPLETE] * 3)


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] in CASES:
        go_on_and_die(*sys.argv[1:])
        sys.exit(0)
    unittest.main()
