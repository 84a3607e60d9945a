#!/usr/bin/env python3
"""Spillway and eager PyTorch train the same GPT in turns on one core; prints Markdown tables.

Usage: eager.py BIN TEXT [--brief], BIN: folder of the programs; PYTHONPATH must contain the PyTorch
to compare with.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import spillway_run  # noqa: E402
import tables  # noqa: E402
import torch_run  # noqa: E402

SMALL = {"blocks": 6, "width": 128, "heads": 4, "positions": 64, "batch": 32, "virtual_nodes": 8}
MEDIUM = {"blocks": 8, "width": 384, "heads": 6, "positions": 128, "batch": 16, "virtual_nodes": 4}
SIZES = [1 << 14, 1 << 22]  # elements of dropout: in cache, and mostly not


def config_of(shape, text):
    return {
        "devices": [{"kind": "cpu", "memory": "4GiB"}],
        "host_memory": "4GiB",
        "model": {"family": "gpt", "num_hidden_layers": shape["blocks"],
                  "hidden_size": shape["width"], "num_attention_heads": shape["heads"],
                  "max_position_embeddings": shape["positions"], "dropout": shape["dropout"]},
        "data": {"format": "bytes", "path": text, "eval_fraction": 0},
        "train": {"batch_size": shape["batch"], "virtual_nodes": shape["virtual_nodes"],
                  "max_steps": shape["steps"], "optimizer": "adamw", "learning_rate": 3e-4,
                  "weight_decay": 0.1, "max_grad_norm": 1.0, "lr_scheduler_type": "constant",
                  "warmup_ratio": 0},
        "scheduling": {"order": "vn_major"},
    }


def run_spillway(program, shape, text, core):
    return spillway_run.steps_of(
        spillway_run.train(program, config_of(shape, text), core=core))


def rates(steps, shape):
    """Tokens per second of the median step, and tokens per second of CPU time, after the first
    steps.
    """
    steady = steps[len(steps) // 4:]
    tokens = shape["batch"] * shape["positions"]
    median_s = statistics.median(b["time_s"] - a["time_s"] for a, b in zip(steady, steady[1:]))
    watched = [step["cpu_s"] for step in steady if "cpu_s" in step]
    cpu_s = max(watched[-1] - watched[0], 1 / os.sysconf("SC_CLK_TCK"))
    return tokens / median_s, tokens * (len(watched) - 1) / cpu_s


def compare(name, shape, arguments, core):
    ours, theirs = [], []
    for _ in range(arguments.pairs):
        ours.append(run_spillway(f"{arguments.bin}/spillway", shape, arguments.text, core))
        theirs.append(torch_run.train(shape, arguments.text, core))
    losses = [f"{side[0][0]['loss']:.2f} to {side[0][-1]['loss']:.2f}" for side in (ours, theirs)]
    ours, theirs = ([rates(run, shape) for run in side] for side in (ours, theirs))
    ratios = [tables.spread([a[i] / b[i] for a, b in zip(ours, theirs)], 3) for i in (0, 1)]
    return [f"{name}, dropout {shape['dropout']}", tables.spread([a[0] for a in ours], 0),
            tables.spread([b[0] for b in theirs], 0), *ratios, *losses]


def dropout_ns(bench, core):
    """By number of elements: nanoseconds per element in the kernel, on the best available
    instruction set.
    """
    command = ["taskset", "-c", str(core), bench, "--benchmark_filter=BM_Dropout",
               "--benchmark_format=json", "--benchmark_min_time=0.2"]
    cases = json.loads(subprocess.run(command, capture_output=True, text=True,
                                      check=True).stdout)["benchmarks"]
    ran = [case for case in cases if not case.get("error_occurred")]
    return {elements: min(1e9 / case["items_per_second"] for case in ran
                          if case["name"].endswith(f"/{elements}"))
            for elements in SIZES}


def compare_dropout(arguments, core):
    ours, theirs = [], []
    for _ in range(arguments.pairs):
        ours.append(dropout_ns(f"{arguments.bin}/kernels_bench", core))
        command = ["taskset", "-c", str(core), sys.executable, str(HERE / "torch_dropout.py"),
                   *map(str, SIZES)]
        theirs.append(dict(zip(SIZES, json.loads(subprocess.run(
            command, capture_output=True, text=True, check=True).stdout))))
    print("\n## Dropout, ns an element\n")
    tables.print_head(["elements", "Spillway's kernel", "PyTorch's dropout", "published: block loop",
                       "published: at::Philox"])
    for size in SIZES:
        tables.print_row([f"{size:,}", tables.spread([run[size] for run in ours], 2),
                          tables.spread([run[size] for run in theirs], 2), "1.5", "3.2-3.7"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("text")
    parser.add_argument("digits", nargs="?", help="not used: every script gets the same arguments")
    parser.add_argument("--brief", action="store_true", help="one pair of tiny shapes")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", default="", help="shapes whose name has this in it")
    arguments = parser.parse_args()
    cases = [("small", {**SMALL, "steps": 32}), ("medium", {**MEDIUM, "steps": 8})]
    if arguments.brief:
        arguments.pairs = 1
        cases = [("tiny", {**SMALL, "blocks": 1, "width": 32, "steps": 4})]
    torch_run.skip_without_torch()
    core = max(os.sched_getaffinity(0))
    print("## Training\n")
    tables.print_head(["", "Spillway, tokens/s", "PyTorch, tokens/s", "ratio",
                       "ratio of CPU time", "loss, Spillway", "loss, PyTorch"])
    for name, shape in cases:
        for dropout in (0, 0.1):
            if arguments.only in f"{name} {dropout}":
                tables.print_row(compare(name, {**shape, "dropout": dropout}, arguments, core))
    if not arguments.brief and not arguments.only:
        compare_dropout(arguments, core)


if __name__ == "__main__":
    main()
