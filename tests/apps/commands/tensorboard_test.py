#!/usr/bin/env python3
"""The real TensorBoard reads the event files of a run, also of one that was stopped and resumed.

Usage: tensorboard_test.py PROGRAM TEXT. Without the package tensorboard, in this Python or in the
one that SPILLWAY_TENSORBOARD_PYTHON names, it says so and exits with 77.
"""

import csv
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

try:
    from tensorboard import program
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as missing:
    other = os.environ.pop("SPILLWAY_TENSORBOARD_PYTHON", "")
    if other:
        os.execv(other, [other, *sys.argv])
    print(f"skipped: {missing}; pip install tensorboard")
    sys.exit(77)

PROGRAM, TEXT = (os.path.abspath(path) for path in sys.argv[1:3])

CONFIG = f"""
devices: [{{memory: 1MiB}}]
model: {{num_hidden_layers: 2, hidden_size: 16, max_position_embeddings: 16}}
data: {{path: {TEXT}}}
train: {{batch_size: 4, virtual_nodes: 2, max_steps: 400, eval_steps: 7, eval_batches: 1}}
checkpoint: {{every_steps: 5}}
report_to: [tensorboard]
output_dir: run
sweep: {{parameters: {{train.learning_rate: {{values: [1e-3, 3e-3]}}}}}}
"""
TRIALS = {"learning_rate=1e-3": 1e-3, "learning_rate=3e-3": 3e-3}
COLUMNS = {"train/loss": "loss", "train/learning_rate": "learning_rate",
           "train/grad_norm": "gradient_norm", "train/tokens_per_s": "tokens_per_s",
           "eval/loss": "eval_loss", "eval/perplexity": "perplexity"}


def as_float(text):
    """The 32-bit number that is nearest."""
    return struct.unpack("<f", struct.pack("<f", float(text)))[0]


class Tensorboard(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "config.yaml").write_text(CONFIG, encoding="utf-8")

    def spillway(self, *arguments):
        result = subprocess.run([PROGRAM, *arguments], cwd=self.folder, timeout=300,
                                capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)

    def stop_in_the_middle(self):
        """After the first trial has written some steps."""
        running = subprocess.Popen([PROGRAM, "train", "config.yaml"], cwd=self.folder,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        metrics = self.folder / "run/trials" / next(iter(TRIALS)) / "metrics.csv"
        while running.poll() is None and not (metrics.exists()
                                              and metrics.read_bytes().count(b"\n") > 20):
            time.sleep(0.01)
        running.send_signal(signal.SIGTERM)
        self.assertEqual(running.wait(timeout=60), 130)

    def trial(self, name):
        return self.folder / "run/trials" / name

    def rows(self, name, column):
        with open(self.trial(name) / "metrics.csv", newline="", encoding="utf-8") as file:
            return [(int(row["step"]), as_float(row[column]))
                    for row in csv.DictReader(file) if row[column]]

    def accumulator(self, name):
        return EventAccumulator(str(self.trial(name)), size_guidance={"scalars": 0})

    def require_metrics(self, accumulator, name):
        accumulator.Reload()
        for tag, column in COLUMNS.items():
            shown = [(e.step, e.value) for e in accumulator.Scalars(tag)]
            self.assertEqual(shown, self.rows(name, column), (name, tag))
        times = [e.wall_time for e in accumulator.Scalars("train/loss")]
        self.assertEqual(times, sorted(times))
        self.assertLess(abs(times[-1] - time.time()), 300)

    def test_a_resumed_run_has_every_step_once(self):
        self.stop_in_the_middle()
        open_before = {name: self.accumulator(name) for name in TRIALS}
        for name, accumulator in open_before.items():
            accumulator.Reload()
        first = next(iter(TRIALS))
        self.assertGreater(len(open_before[first].Scalars("train/loss")), 10)
        self.spillway("resume", "run")
        for name in TRIALS:
            self.assertEqual(len(self.rows(name, "loss")), 400)
            self.require_metrics(self.accumulator(name), name)
            self.require_metrics(open_before[name], name)  # as in a browser that stays open
            files = self.trial(name).glob("events.out.tfevents.*")
            self.assertEqual(sum(file.stat().st_size > 0 for file in files), 1)

    def ask(self, url, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url + "data/plugin/" + path, data=data,
                                         headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def test_the_server_shows_scalars_and_hparams(self):
        self.spillway("train", "config.yaml", "train.max_steps=20")
        board = program.TensorBoard()
        board.configure(argv=["tensorboard", "--logdir", str(self.folder / "run/trials"),
                              "--port", "0"])
        url = board.launch()
        deadline = time.monotonic() + 120
        while (tags := {run: set(shown) for run, shown in self.ask(url, "scalars/tags").items()}) \
                != {name: set(COLUMNS) for name in TRIALS}:
            self.assertLess(time.monotonic(), deadline, tags)
            time.sleep(0.2)
        asked = {"experimentName": "", "startIndex": 0, "sliceSize": 100, "colParams": [],
                 "allowedStatuses": ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE",
                                     "STATUS_RUNNING"]}
        groups = self.ask(url, "hparams/session_groups", asked)["sessionGroups"]
        self.assertEqual({group["name"]: group["hparams"] for group in groups},
                         {name: {"train.learning_rate": rate} for name, rate in TRIALS.items()})
        for group in groups:
            self.assertEqual([session["status"] for session in group["sessions"]],
                             ["STATUS_SUCCESS"])
            shown = {value["name"]["tag"]: value["value"] for value in group["metricValues"]}
            self.assertEqual(shown["eval/loss"], self.rows(group["name"], "eval_loss")[-1][1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
