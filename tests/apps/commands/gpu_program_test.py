#!/usr/bin/env python3
"""The program on GPUs.

Usage: gpu_program_test.py SPILLWAY TEXT; skipped without GPUs.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support/run"))
import small_run  # noqa: E402

PROGRAM, TEXT = (os.path.abspath(argument) for argument in sys.argv[1:3])
SKIPPED = 77
DOCTOR = small_run.finish([PROGRAM, "doctor"])
LAST = len(re.findall("^GPU [0-9]", DOCTOR, re.MULTILINE)) - 1


def gpus(*indices, memory="16MiB"):
    """The override that names these GPUs, one device each."""
    devices = ", ".join(f"{{kind: cuda, index: {index}, memory: {memory}}}" for index in indices)
    return f"devices=[{devices}]"


class OnGpus(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def new_run(self, name):
        return small_run.SmallRun(PROGRAM, TEXT, self.folder / name)

    def refusal(self, *overrides, code=2):
        run = self.new_run("refused")
        done = subprocess.run(run.train_command(*overrides), capture_output=True, text=True,
                              check=False, timeout=100)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertFalse(run.folder.exists())
        return done.stderr

    def test_doctor_measures_gpus(self):
        for index in range(LAST + 1):
            self.assertRegex(DOCTOR, rf"(?m)^ +cuda:{index} +[0-9.]+ GiB/s")
            self.assertRegex(DOCTOR, rf"cuda:{index}, bf16: .*: use at least [0-9]+ virtual node")
        links = re.findall(r"(?m)^  - {between: \[([0-9]+), ([0-9]+)\], rate: [0-9]+MB/s}$", DOCTOR)
        self.assertEqual(len(links), LAST * (LAST + 1) // 2)
        self.assertEqual(DOCTOR.count("\nlinks:\n"), 1 if links else 0)

    def test_a_killed_run_resumes_with_other_gpus_and_budgets(self):
        bf16 = ("train.dtype=bf16", "train.gradient_dtype=bf16", "train.max_steps=60")
        whole, killed = self.new_run("whole"), self.new_run("killed")
        small_run.finish(whole.train_command(gpus(0), *bf16))
        spilled = ("activation_share=0.8", "scheduling.order=shard_major", "train.data_parallel=2")
        with small_run.start(killed.train_command(gpus(0, LAST, memory="4MiB"), *spilled,
                                                  *bf16)) as process:
            small_run.wait_for(process, lambda: len(killed.generations()) > 1)
            process.kill()
        small_run.finish(killed.resume_command(gpus(LAST, memory="3584KiB"),
                                               "train.data_parallel=1"))
        self.assertEqual(killed.weights(), whole.weights())
        other = self.new_run("other")
        small_run.finish(other.train_command(gpus(0), "seed=5", *bf16))
        self.assertNotEqual(other.weights(), whole.weights())

    def test_another_share_for_activations_is_chosen_if_a_quarter_is_too_little(self):
        order, quarter = "scheduling.order=shard_major", "activation_share=0.25"
        run = self.new_run("chosen")
        plan = [PROGRAM, "plan", str(run.config), gpus(0), order, quarter, "--json"]
        needed = json.loads(small_run.finish(plan))["trials"][0]["smallest_budget_bytes"]
        memory = f"{needed // 1024 - 64}KiB"
        self.refusal(gpus(0, memory=memory), order, quarter, code=3)
        train = run.train_command(gpus(0, memory=memory), order, "resume=auto",
                                  "train.lr_scheduler_type=constant")
        small_run.finish([*train, "train.max_steps=3"])
        written = (run.folder / "config.yaml").read_text()
        share = re.search("(?m)^activation_share: ([0-9.]+)", written).group(1)
        self.assertIn(share, ("0.5", "0.75", "0.9", "0.1"))
        small_run.finish([*train, "train.max_steps=6"])
        self.assertEqual(run.events("step")[-1]["step"], 6)

    def test_invalid_requests(self):
        self.assertIn(f"devices[0].index: is {LAST + 1}, but ", self.refusal(gpus(LAST + 1)))
        self.assertIn("are free on GPU 0; lower it", self.refusal(gpus(0, memory="1TiB")))
        self.assertIn("train.dtype: is 'fp8', must be fp32 or bf16",
                      self.refusal(gpus(0), "train.dtype=fp8"))


if __name__ == "__main__":
    if LAST < 0:
        print("no GPU to test on; spillway doctor says why")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
