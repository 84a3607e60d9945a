"""The package `spillway`: its types, its command, its place in a process.

Usage: package_test.py SOURCE_TREE
"""

import importlib.resources
import pathlib
import subprocess
import sys
import tempfile
import unittest

import spillway
from spillway import _core

ROOT = pathlib.Path(sys.argv.pop(1))


class PackageTest(unittest.TestCase):
    def test_ships_its_types(self):
        package = importlib.resources.files(spillway)
        self.assertTrue((package / "py.typed").is_file())
        with tempfile.TemporaryDirectory() as folder:
            made = pathlib.Path(folder) / "_core.pyi"
            subprocess.run([sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "spillway._core",
                            "-o", str(made)], check=True)
            self.assertEqual((package / "_core.pyi").read_text(), made.read_text(),
                             "python -m nanobind.stubgen -m spillway._core "
                             "-o python/spillway/_core.pyi writes it again")

    def test_has_strict_types(self):
        checked = subprocess.run([sys.executable, "-m", "mypy", "--config-file",
                                  str(ROOT / "pyproject.toml")], cwd=ROOT, text=True,
                                 capture_output=True, check=False)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

    def test_loads_one_libtorch(self):
        maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
        loaded = {line.split()[-1] for line in maps if "libtorch_cpu.so" in line}
        self.assertEqual(len(loaded), 1, loaded)
        self.assertIn("_core", _core.__name__)

    def test_imports_what_exports_need_only_with_them(self):
        code = "import sys, spillway; print(sorted(sys.modules))"
        loaded = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True,
                                check=True).stdout
        self.assertIn("'spillway.export.from_torch'", loaded)
        self.assertNotIn("'torch.export._trace'", loaded)
        self.assertNotIn("'torch.fx.experimental.symbolic_shapes'", loaded)

    def test_has_the_command(self):
        program = pathlib.Path(sys.executable).parent / "spillway"
        shown = subprocess.run([program, "--version"], text=True, capture_output=True, check=True)
        self.assertIn(spillway.__version__, shown.stdout)


if __name__ == "__main__":
    unittest.main()
