#!/usr/bin/env python3
"""The program as a process: exit codes, streams, signals. Usage: program_test.py PROGRAM"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else "build/bin/spillway"

CONFIG = """
devices: [{memory: 1MiB}]
model: {num_hidden_layers: 2, hidden_size: 16, max_position_embeddings: 16}
data: {path: text.txt}
train: {batch_size: 4, virtual_nodes: 2, max_steps: 3}
"""


class Program(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.write("text.txt", "To be, or not to be, that is the question.\n" * 200)
        self.write("config.yaml", CONFIG)

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    def run_program(self, *arguments):
        return subprocess.run([os.path.abspath(PROGRAM), *arguments], cwd=self.folder, timeout=100,
                              capture_output=True, text=True, check=False)

    def test_done_is_0_and_json_is_alone_on_stdout(self):
        result = self.run_program("train", "config.yaml", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(report["trials"][0]["state"], "done")
        self.assertIn("done", result.stderr)

    def test_two_runs_have_the_same_bits(self):
        runs = [self.run_program("train", "config.yaml", "--json", "--overwrite") for _ in range(2)]
        first, second = (json.loads(run.stdout)["trials"][0] for run in runs)
        for key in ("weights_xxh3", "final_loss", "eval_loss"):
            self.assertEqual(first[key], second[key])
        other = json.loads(self.run_program("train", "config.yaml", "--json", "--overwrite",
                                            "seed=2").stdout)["trials"][0]
        self.assertNotEqual(first["weights_xxh3"], other["weights_xxh3"])

    def test_a_failed_trial_is_1(self):
        result = self.run_program("train", "config.yaml", "train.learning_rate=9e5",
                                  "train.max_grad_norm=0", "train.max_steps=20")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("not finite", result.stdout)

    def test_usage_and_configuration_are_2(self):
        for arguments in ([], ["train"], ["train", "nowhere.yaml"], ["trian", "config.yaml"],
                          ["train", "config.yaml", "--jsn"], ["train", "config.yaml", "train.lanes"],
                          ["train", "config.yaml", "train.lanes=0"]):
            with self.subTest(arguments):
                result = self.run_program(*arguments)
                self.assertEqual(result.returncode, 2)
                self.assertEqual(result.stdout, "")
                self.assertNotEqual(result.stderr, "")

    def test_help_is_0(self):
        for arguments in (["--help"], ["train", "--help"]):
            result = self.run_program(*arguments)
            self.assertEqual(result.returncode, 0)
            self.assertIn("train", result.stdout)

    def test_what_does_not_fit_is_3(self):
        result = self.run_program("train", "config.yaml", "devices=[{memory: 8KiB}]")
        self.assertEqual(result.returncode, 3)
        self.assertIn("does not fit", result.stderr)

    def test_interrupted_is_130_with_results(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process = subprocess.Popen(
                [os.path.abspath(PROGRAM), "train", "config.yaml", "train.max_steps=1000000000",
                 "--json", "--overwrite"],
                cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.addCleanup(process.kill)
            self.assertIn("running", process.stderr.readline())
            process.send_signal(number)
            out, _ = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 130)
            self.assertEqual(json.loads(out)["trials"][0]["state"], "stopped")
            self.assertTrue(os.path.exists(os.path.join(self.folder, "runs/run/results.csv")))


if __name__ == "__main__":
    unittest.main()
