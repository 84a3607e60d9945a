"""The package `spillway`: runs in folders for MLflow."""

import csv
import logging
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

try:
    from mlflow import MlflowClient
except ImportError:
    print("skipped: MLflow is not installed; run scripts/python.sh")
    sys.exit(77)

import spillway as sp
from spillway.mlflow import write_run

STEPS = 24
LONG = 200  # of a run that is killed
RATES = [0.01, 0.001]

logging.getLogger("mlflow").setLevel(logging.ERROR)


def config(folder, **train):
    text = pathlib.Path(folder) / "text"
    text.write_bytes(bytes(range(256)) * 40)
    return {
        "output_dir": f"{folder}/run",
        "devices": [{"memory": "64MiB"}],
        "model": {"family": "gpt", "hidden_size": 16, "num_hidden_layers": 1,
                  "num_attention_heads": 2, "max_position_embeddings": 16},
        "data": {"path": str(text), "eval_fraction": 0.1},
        "train": {"batch_size": 8, "max_steps": STEPS, "eval_steps": 4, **train},
        "checkpoint": {"every_steps": 10},
        "sweep": {"parameters": {"train.learning_rate": {"values": RATES}}},
    }


def die(event):
    """A callback that kills its process."""
    if event.kind == "step" and event.step == 15:
        os.kill(os.getpid(), signal.SIGKILL)


class MlflowTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # A store that MLflow has just made; making one takes seconds.
        cls.stores = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.uri = f"sqlite:///{cls.stores}/store.sqlite"
        cls.client = MlflowClient(cls.uri)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self):
        return write_run(f"{self.folder}/run", tracking_uri=self.uri, experiment=self.id())

    def stored(self):
        experiment = self.client.get_experiment_by_name(self.id())
        return {run.info.run_id: run for run in
                self.client.search_runs([experiment.experiment_id])}

    def history(self, run, metric):
        return [(each.step, each.value)
                for each in sorted(self.client.get_metric_history(run, metric),
                                   key=lambda each: each.step)]

    def rows(self, trial, metric):
        file = pathlib.Path(self.folder) / "run" / "trials" / trial / "metrics.csv"
        with file.open() as lines:
            return [(int(row["step"]), float(row[metric])) for row in csv.DictReader(lines)
                    if row[metric]]

    def test_writes_each_trial_once(self):
        run = sp.train(config(self.folder), progress=False)
        ids = self.write()
        self.assertEqual(self.write(), ids)
        stored = self.stored()
        self.assertEqual(set(stored), set(ids.values()))
        for trial in run.trials:
            of_trial = stored[ids[trial["name"]]]
            self.assertEqual(of_trial.info.status, "FINISHED")
            self.assertEqual(of_trial.info.run_name, trial["name"])
            rate = trial["sweep"]["train.learning_rate"]
            self.assertEqual(of_trial.data.params, {"train.learning_rate": str(rate)})
            self.assertEqual(of_trial.data.tags["spillway.weights_xxh3"], trial["weights_xxh3"])
            for metric in ("loss", "eval_loss", "perplexity", "learning_rate"):
                history = self.history(of_trial.info.run_id, metric)
                self.assertEqual(history, self.rows(trial["name"], metric))
            self.assertEqual(len(self.history(of_trial.info.run_id, "loss")), STEPS)

    def test_adds_what_a_resumed_run_has_trained(self):
        child = subprocess.run([sys.executable, __file__, self.folder], check=False)
        self.assertEqual(child.returncode, -signal.SIGKILL)
        ids = self.write()
        before = {name: self.history(run, "loss") for name, run in ids.items()}
        self.assertTrue(all(0 < len(history) < LONG for history in before.values()))
        self.assertEqual({run.info.status for run in self.stored().values()}, {"KILLED"})
        sp.resume(f"{self.folder}/run", progress=False)
        self.assertEqual(self.write(), ids)
        self.assertEqual({run.info.status for run in self.stored().values()}, {"FINISHED"})
        for name, run in ids.items():
            history = self.history(run, "loss")
            self.assertEqual(len(history), LONG)
            self.assertEqual(history[:len(before[name])], before[name])
            self.assertEqual(history, self.rows(name, "loss"))

    def test_keeps_another_run_of_the_same_folder_apart(self):
        sp.train(config(self.folder), progress=False)
        first = self.write()
        sp.train(config(self.folder, weight_decay=0.5), overwrite=True, progress=False)
        second = self.write()
        self.assertEqual(first.keys(), second.keys())
        self.assertFalse(set(first.values()) & set(second.values()))
        self.assertEqual(len(self.stored()), 2 * len(RATES))

    def test_is_a_program(self):
        sp.train(config(self.folder), progress=False)
        command = [sys.executable, "-m", "spillway.mlflow", f"{self.folder}/run",
                   "--tracking-uri", self.uri, "--experiment", self.id()]
        written = subprocess.run(command, text=True, capture_output=True, check=True).stdout
        self.assertEqual(set(written.split()[::2]), set(self.stored()))
        with self.assertRaises(sp.ConfigError):
            write_run(self.folder, tracking_uri=self.uri)


if __name__ == "__main__":
    if len(sys.argv) == 2 and pathlib.Path(sys.argv[1]).is_dir():
        sp.train(config(sys.argv[1], max_steps=LONG), progress=False, callback=die)
    else:
        unittest.main()
