#!/usr/bin/env python3
"""CPU seconds until a large model has made its first step, in Spillway and in eager PyTorch;
prints a Markdown table.

Usage: first_step.py BIN TEXT [--brief], BIN: folder of the programs; PYTHONPATH must contain the
PyTorch to compare with.
"""

import argparse
import ctypes
import json
import mmap
import multiprocessing
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import spillway_run  # noqa: E402
import tables  # noqa: E402

SHAPE = {"blocks": 24, "width": 1024, "heads": 16, "positions": 128, "batch": 2,
         "virtual_nodes": 2, "vocabulary": 50257, "dropout": 0, "bf16": True, "steps": 2}
TINY = {**SHAPE, "blocks": 1, "width": 32, "heads": 4, "vocabulary": 256}
TOUCHED_BYTES = 9 << 30
REST_S = 30


def config_of(shape, text):
    return {
        "devices": [{"kind": "cpu", "memory": "10GiB"}],
        "host_memory": "8GiB",
        "model": {"family": "gpt", "num_hidden_layers": shape["blocks"],
                  "hidden_size": shape["width"], "num_attention_heads": shape["heads"],
                  "max_position_embeddings": shape["positions"],
                  "vocab_size": shape["vocabulary"], "dropout": shape["dropout"]},
        "data": {"format": "bytes", "path": text, "eval_fraction": 0},
        "train": {"batch_size": shape["batch"], "virtual_nodes": shape["virtual_nodes"],
                  "reduction_groups": 1, "max_steps": shape["steps"], "dtype": "bf16", "learning_rate": 3e-4,
                  "weight_decay": 0.1, "lr_scheduler_type": "constant"},
        "checkpoint": {"keep": 0},
    }


def spillway(program, shape, text, cache):
    run = spillway_run.train(program, config_of(shape, text), {"XDG_CACHE_HOME": cache})
    return [step["cpu_s"] for step in spillway_run.steps_of(run)]


def torch(shape, text):
    command = [sys.executable, str(HERE.parent / "eager/torch_gpt.py"), json.dumps(shape), text]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [step["cpu_s"] for step in json.loads(out)]


def touch():
    memory = mmap.mmap(-1, TOUCHED_BYTES)
    ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(memory)), 1, TOUCHED_BYTES)


def use_memory():
    process = multiprocessing.Process(target=touch)
    process.start()
    process.join()


def compare(name, prepare, shape, arguments):
    rows = {"Spillway, the pilot measures": [], "Spillway, costs are known": [], "PyTorch": []}
    for _ in range(arguments.pairs):
        with tempfile.TemporaryDirectory() as cache:
            for side, steps in rows.items():
                prepare()
                steps.append(torch(shape, arguments.text) if side == "PyTorch" else
                             spillway(f"{arguments.bin}/spillway", shape, arguments.text, cache))
    for side, all_steps in rows.items():
        ratios = [ours[0] / theirs[0] for ours, theirs in zip(all_steps, rows["PyTorch"])]
        tables.print_row([
            f"{name}: {side}", tables.spread([steps[0] for steps in all_steps], 1),
            tables.spread(ratios, 2), tables.spread([b - a for a, b in all_steps], 1)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("text")
    parser.add_argument("digits", nargs="?", help="not used: every script gets the same arguments")
    parser.add_argument("--brief", action="store_true", help="one pair of a tiny shape")
    parser.add_argument("--pairs", type=int, default=3)
    arguments = parser.parse_args()
    cases = [("used memory", use_memory, SHAPE),
             ("rested memory", lambda: time.sleep(REST_S), SHAPE)]
    if arguments.brief:
        arguments.pairs = 1
        cases = [("tiny", lambda: None, TINY)]
    if subprocess.run([sys.executable, "-c", "import torch"], check=False).returncode != 0:
        print("this Python has no PyTorch", file=sys.stderr)
        sys.exit(77)  # ctest: skipped
    tables.print_head(["CPU seconds", "to the end of step 1", "ratio to PyTorch", "step 2"])
    for name, prepare, shape in cases:
        compare(name, prepare, shape, arguments)


if __name__ == "__main__":
    main()
