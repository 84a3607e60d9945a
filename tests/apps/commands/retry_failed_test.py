#!/usr/bin/env python3
"""A trial that failed because its only device failed: resume leaves it alone, --retry-failed
continues it.

Usage: retry_failed_test.py SPILLWAY TEXT
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support/run"))
import small_run  # noqa: E402

PROGRAM, TEXT = (os.path.abspath(argument) for argument in sys.argv[1:3])
FAILS = "devices=[{memory: 16MiB, imitate: {fault: {kind: fail, after_ops: 100}}}]"
OTHER = "devices=[{memory: 8MiB}, {memory: 8MiB}]"


class RetryFailed(unittest.TestCase):
    def test_resumes_from_its_checkpoint_with_the_same_bits(self):
        with tempfile.TemporaryDirectory() as folder:
            whole = small_run.SmallRun(PROGRAM, TEXT, folder + "/whole")
            small_run.finish(whole.train_command("checkpoint.every_steps=0"))
            run = small_run.SmallRun(PROGRAM, TEXT, folder + "/run")
            self.assertEqual(self.exit_code(run.train_command(FAILS))[0], 1)
            self.assertEqual(run.events("state")[-1]["state"], "failed")
            code, said = self.exit_code(run.resume_command(OTHER))
            self.assertEqual(code, 1)
            self.assertIn("all trials of this run have ended; --retry-failed resumes", said)
            small_run.finish(run.resume_command(OTHER, "--retry-failed"))
            self.assertGreater(run.events("resumed")[-1]["step"], 0)
            self.assertEqual(run.weights(), whole.weights())
            self.assertEqual(self.exit_code(run.resume_command("--retry-failed"))[0], 0)

    @staticmethod
    def exit_code(command):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
        return done.returncode, done.stderr


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
