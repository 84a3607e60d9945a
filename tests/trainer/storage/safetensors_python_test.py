#!/usr/bin/env python3
"""The Python package `safetensors` reads the files that Spillway writes, including a checkpoint's
weights.

Usage: safetensors_python_test.py FOLDER, of golden files: trainer/golden_test checks that Spillway
writes them. Without the package and NumPy, in this Python or in the one that
SPILLWAY_SAFETENSORS_PYTHON names, it prints so and exits with 77.
"""
import os
import sys
from pathlib import Path

SKIPPED = 77


def main():
    try:
        import numpy
        from safetensors import safe_open
    except ImportError as missing:
        other = os.environ.pop("SPILLWAY_SAFETENSORS_PYTHON", "")
        if other:
            os.execv(other, [other, *sys.argv])
        print(f"skipped: {missing}; pip install safetensors numpy")
        return SKIPPED
    path = Path(sys.argv[1]) / "checkpoints_1/000000000001/weights.safetensors"
    with safe_open(path, framework="numpy") as file:
        assert file.metadata() == {"format": "pt"}, file.metadata()
        assert set(file.keys()) == {"wte.weight", "steps", "none"}, file.keys()
        weights = file.get_tensor("wte.weight")
        assert weights.dtype == numpy.float32 and weights.shape == (5, 4), weights
        expected = bytes(i * 7 % 251 for i in range(80))
        assert weights.tobytes() == expected, weights.tobytes()
        assert file.get_tensor("steps").tobytes() == expected[:8]
        assert file.get_tensor("none").shape == (0, 3)
    print("read as written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
