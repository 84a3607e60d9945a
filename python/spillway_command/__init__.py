"""The command `spillway`: the C++ program of the package, without importing PyTorch first."""

import importlib.util
import os
import pathlib
import sys


def main() -> None:
    """Becomes the program, with the arguments of this process."""
    package = importlib.util.find_spec("spillway")
    if package is None or package.origin is None:
        sys.exit("spillway: the package spillway is not installed")
    program = pathlib.Path(package.origin).parent / "bin" / "spillway"
    os.execv(program, ["spillway", *sys.argv[1:]])
