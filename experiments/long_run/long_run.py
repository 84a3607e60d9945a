#!/usr/bin/env python3
"""Memory of longer and longer runs, as a Markdown table.

Usage: long_run.py BIN TEXT [DIGITS] [--brief], BIN: folder of the programs
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tables  # noqa: E402

STEPS = [10_000, 100_000, 150_000]
BRIEF = [50, 100]


def config_of(text, steps):
    return {"name": "long",
            "devices": [{"memory": "16MiB"}],
            "model": {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 1,
                      "max_position_embeddings": 4},
            "data": {"path": text, "eval_fraction": 0.1},
            "train": {"batch_size": 1, "virtual_nodes": 1, "max_steps": steps, "eval_steps": 100,
                      "eval_batches": 1},
            "checkpoint": {"every_steps": 10_000}}


def peak_mib(command):
    """The peak resident memory of the process."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{command}: status {status}")
    return usage.ru_maxrss / 1024


def megabytes(file):
    return f"{file.stat().st_size / 1e6:,.2f}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("text")
    parser.add_argument("digits", nargs="?")
    parser.add_argument("--brief", action="store_true")
    options = parser.parse_args()
    program = options.bin / "spillway"
    tables.print_head(["steps", "memory, MiB", "events.jsonl, MB", "metrics.csv, MB", "results, s",
                       "results, MiB"])
    for steps in BRIEF if options.brief else STEPS:
        with tempfile.TemporaryDirectory() as folder:
            config, run = pathlib.Path(folder) / "config.yaml", pathlib.Path(folder) / "run"
            config.write_text(json.dumps(config_of(options.text, steps)))
            memory = peak_mib([program, "train", config, f"output_dir={run}"])
            begin = time.monotonic()
            to_read = peak_mib([program, "results", run])
            seconds = time.monotonic() - begin
            tables.print_row([f"{steps:,}", f"{memory:,.0f}", megabytes(run / "events.jsonl"),
                              megabytes(run / "trials/long/metrics.csv"), f"{seconds:.1f}",
                              f"{to_read:,.0f}"])


if __name__ == "__main__":
    main()
