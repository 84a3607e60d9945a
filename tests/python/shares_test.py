"""The package `spillway`: sweeps that are divided among machines."""

import csv
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import spillway as sp
from spillway.shares import merge, train_share

CONFIG = {
    "name": "divided",
    "devices": [{"memory": "64MiB"}],
    "model": {"family": "gpt", "vocab_size": 256, "num_hidden_layers": 1, "hidden_size": 32,
              "num_attention_heads": 2, "max_position_embeddings": 16, "dropout": 0.1},
    "data": {"format": "bytes", "path": "text"},
    "train": {"batch_size": 8, "max_steps": 20, "lr_scheduler_type": "constant"},
    "checkpoint": {"every_steps": 4},
    "sweep": {"method": "random", "run_cap": 4,
              "parameters": {"train.learning_rate": {"distribution": "log_uniform_values",
                                                     "min": 0.001, "max": 0.1}}},
}
SHARES = 2


def rows(folder):
    """results.csv without speeds, which a merged run does not know."""
    with open(pathlib.Path(folder) / "results.csv", encoding="utf-8") as file:
        return [{key: value for key, value in row.items() if key != "tokens_per_s"}
                for row in csv.DictReader(file)]


def write_sweep(folder):
    """The configuration file."""
    (folder / "text").write_bytes(bytes(range(32, 127)) * 100)
    file = folder / "sweep.yaml"
    file.write_text(json.dumps({**CONFIG, "data_root": str(folder)}))
    return file


class SharesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        sp.train(write_sweep(folder), output_dir=folder / "alone", progress=False)
        cls.alone = rows(folder / "alone")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.config, self.out = write_sweep(self.folder), self.folder / "out"

    def test_merges_shares_into_the_run_of_one_machine(self):
        for number in range(1, SHARES + 1):
            train_share(self.config, self.out, number, SHARES)
        run = merge(self.out, progress=False)
        self.assertEqual(rows(self.out), self.alone)
        self.assertEqual(run.state, "ended")
        self.assertTrue((self.out / "trials" / run.best["name"] / "weights.safetensors").exists())
        sp.resume(self.out, ["train.max_steps=30"], progress=False)  # it grows like any other run
        self.assertNotEqual(rows(self.out), self.alone)
        longer = self.folder / "longer"
        sp.train(self.config, ["train.max_steps=30"], output_dir=longer, progress=False)
        self.assertEqual([row["weights_xxh3"] for row in rows(self.out)],
                         [row["weights_xxh3"] for row in rows(longer)])

    def test_the_trainer_dies_with_its_parent_and_goes_on_elsewhere(self):
        slow = "devices=[{memory: 64MiB, imitate: {slowdown: 100}}]"
        call = f"train_share({str(self.config)!r}, {str(self.out)!r}, 1, {SHARES}, [{slow!r}])"
        parent = subprocess.Popen(
            [sys.executable, "-c", f"from spillway.shares import train_share; {call}"])
        checkpoints = self.out / "shares/1/trials"
        while not list(checkpoints.glob("*/checkpoints/0*/MANIFEST")):
            self.assertIsNone(parent.poll())
            time.sleep(0.01)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        for number in range(1, SHARES + 1):  # InUse if the trainer still lived
            train_share(self.config, self.out, number, SHARES, wait_s=20)
        merge(self.out, progress=False)
        self.assertEqual(rows(self.out), self.alone)

    def test_refuses_what_cannot_be_merged(self):
        with self.assertRaisesRegex(sp.ConfigError, "is no share of a sweep"):
            merge(self.out)
        train_share(self.config, self.out, 1, 2)
        with self.assertRaisesRegex(sp.ConfigError, "share 2 of 2 is missing; .*sweep.share=2/2"):
            merge(self.out)
        with self.assertRaisesRegex(sp.Error, "share 7 of 9: .*sweep has 4 trials"):
            train_share(self.config, self.out, 7, 9)
        with self.assertRaisesRegex(sp.Error, "cannot be used with sweep.early_terminate"):
            train_share(self.config, self.out, 1, 2,
                        ["sweep.early_terminate={type: hyperband, min_iter: 5}"])

    def test_the_tasks_of_slurm_train_and_the_command_merges(self):
        script = pathlib.Path(__file__).parents[2] / "examples/slurm_sweep.sh"
        paths = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        for number in range(1, SHARES + 1):
            subprocess.run(["bash", script, self.config, self.out], check=True,
                           stdout=subprocess.DEVNULL,
                           env={**os.environ, "PATH": paths, "SLURM_ARRAY_TASK_ID": str(number),
                                "SLURM_ARRAY_TASK_COUNT": str(SHARES)})
        done = subprocess.run([sys.executable, "-c", "import spillway_command as c; c.main()",
                               "merge", os.fspath(self.out)], capture_output=True, text=True,
                              check=True)
        self.assertEqual(done.stdout, f"{self.out}: 4 trials\n")
        self.assertEqual(rows(self.out), self.alone)


if __name__ == "__main__":
    unittest.main()
