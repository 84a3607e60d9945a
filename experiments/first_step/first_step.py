#!/usr/bin/env python3
"""CPU seconds until a large model has made its first step, in Spillway and in eager PyTorch;
prints a Markdown table.

Usage: first_step.py BIN TEXT [--brief], BIN: folder of the programs; PYTHONPATH must contain the
PyTorch to compare with.
"""

import argparse
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import spillway_run  # noqa: E402
import tables  # noqa: E402
import torch_run  # noqa: E402

SHAPE = {"blocks": 24, "width": 1024, "heads": 16, "positions": 128, "batch": 2,
         "virtual_nodes": 2, "vocabulary": 50257, "dropout": 0, "steps": 2}
TINY = {**SHAPE, "blocks": 1, "width": 32, "heads": 4, "vocabulary": 256}


def has_bf16():
    """Whether the processor has instructions for products in bf16, which are very slow without."""
    flags = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    return "avx512_bf16" in flags or "amx_bf16" in flags


def dtype_of(shape):
    return "bf16" if shape["bf16"] else "fp32"


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
                  "reduction_groups": 1, "max_steps": shape["steps"], "dtype": dtype_of(shape),
                  "learning_rate": 3e-4, "weight_decay": 0.1, "lr_scheduler_type": "constant"},
        "checkpoint": {"keep": 0},
    }


def spillway(program, shape, text, cache):
    return spillway_run.steps_of(
        spillway_run.train(program, config_of(shape, text), {"XDG_CACHE_HOME": cache}))


def compare(shape, arguments):
    runs = {"Spillway, the pilot measures": [], "Spillway, costs are known": [], "PyTorch": []}
    for _ in range(arguments.pairs):
        with tempfile.TemporaryDirectory() as cache:
            for side, all_steps in runs.items():
                all_steps.append(torch_run.train(shape, arguments.text) if side == "PyTorch" else
                                 spillway(f"{arguments.bin}/spillway", shape, arguments.text,
                                          cache))
    for side, all_steps in runs.items():
        firsts = [steps[0] for steps in all_steps]
        theirs = [steps[0] for steps in runs["PyTorch"]]
        tables.print_row([
            side,
            tables.spread([step["cpu_s"] for step in firsts], 1),
            tables.spread([step["cpu_s"] - step["system_s"] for step in firsts], 1),
            tables.spread([step["system_s"] for step in firsts], 1),
            tables.spread([a["cpu_s"] / b["cpu_s"] for a, b in zip(firsts, theirs)], 2),
            tables.spread([(a["cpu_s"] - a["system_s"]) / (b["cpu_s"] - b["system_s"])
                           for a, b in zip(firsts, theirs)], 2),
            tables.spread([b["cpu_s"] - a["cpu_s"] for a, b, *_ in all_steps], 1)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("text")
    parser.add_argument("digits", nargs="?", help="not used: every script gets the same arguments")
    parser.add_argument("--brief", action="store_true", help="one pair of a tiny shape")
    parser.add_argument("--pairs", type=int, default=3)
    arguments = parser.parse_args()
    shape = SHAPE
    if arguments.brief:
        arguments.pairs, shape = 1, TINY
    shape = {**shape, "bf16": has_bf16()}
    torch_run.skip_without_torch()
    tables.print_head([f"CPU seconds to the end of step 1, in {dtype_of(shape)}", "all", "user",
                       "system", "ratio to PyTorch", "of user", "all of step 2"])
    compare(shape, arguments)


if __name__ == "__main__":
    main()
