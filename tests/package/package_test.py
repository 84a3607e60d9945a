#!/usr/bin/env python3
"""Installs a build and uses it from another project. Usage: package_test.py CMAKE BUILD SOURCE"""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CMAKE, BUILD, SOURCE = sys.argv[1:4]
# The package is self-contained: the build's dependencies are not named again.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "SPILLWAY_TORCH_DIR"}


def run(*command):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                            env=ENVIRONMENT, check=False)
    return result.returncode, result.stdout + result.stderr


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.prefix = cls.folder / "prefix"
        status, log = run(CMAKE, "--install", BUILD, "--prefix", cls.prefix)
        assert status == 0, log

    def configure(self, name, *arguments):
        return run(CMAKE, "-S", Path(SOURCE, "tests/package"), "-B", self.folder / name,
                   f"-DCMAKE_PREFIX_PATH={self.prefix}",
                   f"-DSOURCE={Path(SOURCE, 'examples/custom_model.cpp')}", *arguments)

    def test_a_project_that_uses_it_builds_and_runs(self):
        for command in (lambda: self.configure("user"),
                        lambda: run(CMAKE, "--build", self.folder / "user"),
                        lambda: run(self.folder / "user" / "user")):
            status, log = command()
            self.assertEqual(status, 0, log)
        self.assertIn("done", log)

    def test_another_torch_can_be_named(self):
        status, log = self.configure("other", "-DSPILLWAY_TORCH_DIR=/nowhere")
        self.assertNotEqual(status, 0)
        self.assertIn("SPILLWAY_TORCH_DIR='/nowhere' holds no LibTorch", log)

    def test_it_does_not_refer_to_the_sources(self):
        files = list(self.prefix.rglob("*.cmake"))
        self.assertGreaterEqual(len(files), 4)
        for path in files:
            with self.subTest(path.name):
                self.assertNotIn(SOURCE + "/", path.read_text(encoding="utf-8"))

    def test_the_program_is_installed(self):
        status, log = run(self.prefix / "bin" / "spillway", "--help")
        self.assertEqual(status, 0, log)
        self.assertIn("train", log)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
