"""Trains a GPT in eager PyTorch, in a process of its own (experiments/eager/torch_gpt.py)."""

import json
import pathlib
import subprocess
import sys

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "eager/torch_gpt.py"


def train(shape, text, core=None):
    """Its steps. `core`: the only core that it may use."""
    command = [sys.executable, str(PROGRAM), json.dumps(shape), text]
    if core is not None:
        command = ["taskset", "-c", str(core), *command]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def skip_without_torch():
    """Exits with 77, which ctest counts as skipped."""
    if subprocess.run([sys.executable, "-c", "import torch"], check=False).returncode != 0:
        print("this Python has no PyTorch", file=sys.stderr)
        sys.exit(77)
