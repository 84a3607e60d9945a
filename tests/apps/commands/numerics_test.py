#!/usr/bin/env python3
"""Environment variables that select other kernels: a run does not resume under them, and costs
measured without them are not used. Portable numerics choose kernels themselves.

Usage: numerics_test.py SPILLWAY TEXT
"""

import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support/run"))
import small_run  # noqa: E402

PROGRAM, TEXT = (os.path.abspath(argument) for argument in sys.argv[1:3])

GPT = []
MLP = ["model={family: mlp, num_hidden_layers: 2, hidden_size: 48}", "train.virtual_nodes=8"]
RESNET = ["model={family: resnet, hidden_sizes: [8, 16], depths: [1, 1]}"]
BF16 = ["train.dtype=bf16"]
VERY_SLOW = "devices=[{memory: 16MiB, imitate: {link: 1MiB/s, slowdown: 100}}]"  # small models too
# Each selects other kernels on processors that have more than it allows.
CASES = [("MKL_CBWR", "COMPATIBLE", GPT),
         ("MKL_CBWR", "AUTO", MLP),  # only in products of one row
         ("ONEDNN_MAX_CPU_ISA", "AVX2", GPT + BF16),
         ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE", RESNET + BF16),
         ("DNNL_MAX_CPU_ISA", "SSE41", RESNET),
         ("ATEN_CPU_CAPABILITY", "default", GPT)]
PORTABLE = "numerics=portable"
PORTABLE_KERNELS = {"MKL_CBWR": "COMPATIBLE", "ATEN_CPU_CAPABILITY": "avx2",
                    "ONEDNN_MAX_CPU_ISA": "AVX2"}


class Numerics(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        os.environ["XDG_CACHE_HOME"] = str(cls.folder / "cache")
        cls.digits = cls.folder / "digits.csv"
        numbers = random.Random(1)
        cls.digits.write_text("".join(
            ",".join([str(numbers.randint(0, 16)) for _ in range(64)] + [str(numbers.randint(0, 9))])
            + "\n" for _ in range(300)))

    def run_of(self, name, model):
        is_gpt = not any("family" in override for override in model)
        run = small_run.SmallRun(PROGRAM, TEXT if is_gpt else self.digits, self.folder / name)
        if not is_gpt:
            config = json.loads(run.config.read_text())
            config["data"].update(format="digits", eval_fraction=0.2)
            del config["model"]
            run.config.write_text(json.dumps(config))
        return run

    def call(self, command, **variables):
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200,
                              env={**os.environ, **variables})

    def trained(self, name, model, steps=20, **variables):
        """A whole run; the first one measures costs."""
        run = self.run_of(name, model)
        done = self.call(run.train_command(*model, f"train.max_steps={steps}"), **variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        return run

    def killed(self, name, model):
        run = self.run_of(name, model)
        process = small_run.start(run.train_command(*model, "train.max_steps=40", VERY_SLOW,
                                                    "checkpoint.every_steps=1"))
        small_run.wait_for(process, lambda: len(run.generations()) >= 2)
        process.kill()
        process.communicate()
        return run

    def check(self, number, variable, value, model):
        plain = self.trained(f"plain{number}", model)
        other = self.trained(f"other{number}", model, **{variable: value})
        if plain.weights() == other.weights():
            self.skipTest(f"{variable}={value} changes nothing on this processor")
        run = self.killed(f"killed{number}", model)
        refused = self.call(run.resume_command(), **{variable: value})
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertRegex(refused.stderr, r"numerics\.\w+: was [0-9a-f]{32}, is [0-9a-f]{32}")
        self.assertIn(f"set here: {variable}={value}", refused.stderr)
        resumed = self.call(run.resume_command(small_run.FAST), OMP_NUM_THREADS="3")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)

    def test_a_run_resumes_only_under_the_same_kernels(self):
        for number, (variable, value, model) in enumerate(CASES):
            with self.subTest(variable=variable, value=value, model=model):
                self.check(number, variable, value, model)

    def test_portable_numerics_are_those_of_portable_kernels(self):
        for number, model in enumerate([GPT, GPT + BF16, MLP, RESNET]):
            with self.subTest(model=model):
                portable = self.trained(f"portable{number}", model + [PORTABLE],
                                        MKL_CBWR="AUTO", ONEDNN_MAX_CPU_ISA="SSE41")
                same = self.trained(f"same{number}", model, **PORTABLE_KERNELS)
                self.assertEqual(portable.weights(), same.weights())
        native = self.trained("native", GPT)
        self.assertNotEqual(native.weights(), self.trained("control", GPT + [PORTABLE]).weights())

    def test_a_portable_run_resumes_only_as_one(self):
        whole = self.trained("whole", GPT + [PORTABLE], steps=40)
        run = self.killed("portable", GPT + [PORTABLE])
        refused = self.call(run.resume_command("numerics=native"))
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("device: was x86-64 with AVX2 and FMA, portable numerics, is ",
                      refused.stderr)
        resumed = self.call(run.resume_command(small_run.FAST), MKL_CBWR="AUTO")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertEqual(run.weights(), whole.weights())

    def smallest_budget(self, run, cache, **variables):
        done = self.call([PROGRAM, "plan", str(run.config), "--json"],
                         XDG_CACHE_HOME=str(self.folder / cache), **variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        return re.search(r'"smallest_budget_bytes": *(\d+)', done.stdout).group(1)

    def test_costs_are_cached_per_kernels(self):
        run, other = self.run_of("plan", GPT), {"MKL_CBWR": "COMPATIBLE"}
        plain = self.smallest_budget(run, "plain")
        under_other = self.smallest_budget(run, "other", **other)
        self.assertEqual(self.smallest_budget(run, "plain", **other), under_other)
        self.assertEqual(self.smallest_budget(run, "other"), plain)

    def test_doctor_shows_numerics(self):
        def numerics(**variables):
            done = self.call([PROGRAM, "doctor", "--json"], **variables)
            return json.loads(done.stdout)["numerics"]
        plain, threads = numerics(), numerics(OMP_NUM_THREADS="3")
        self.assertEqual(plain["xxh3"], threads["xxh3"])
        self.assertEqual(plain["groups"], threads["groups"])
        self.assertEqual(plain["variables"], [])
        limited = numerics(MKL_CBWR="COMPATIBLE")
        self.assertEqual(limited["variables"], ["MKL_CBWR=COMPATIBLE"])
        self.assertEqual(limited["groups"]["own_kernels"], plain["groups"]["own_kernels"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
