#!/usr/bin/env python3
"""Response times, as a Markdown table.

Usage: limits.py BIN TEXT [DIGITS] [--brief], BIN: folder of the programs
"""

import argparse
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import tables  # noqa: E402

DEEP = {"devices": [{"memory": "1MiB"}],
        "model": {"hidden_size": 64, "num_attention_heads": 2, "max_position_embeddings": 16},
        "train": {"batch_size": 8, "virtual_nodes": 4}}


def timed(command, exit_codes, interrupt_after=None):
    """Seconds of a command, or from its interruption to its end."""
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
    begin = time.monotonic()
    if interrupt_after is not None:
        time.sleep(interrupt_after)
        process.send_signal(signal.SIGINT)
        begin = time.monotonic()
    said, _ = process.communicate()
    seconds = time.monotonic() - begin
    if process.returncode not in exit_codes:
        sys.exit(f"{command}: exit code {process.returncode}\n{said}")
    return seconds


class Limits:
    def __init__(self, program, text, folder, brief):
        self.program, self.folder, self.brief = program, folder, brief
        self.rounds = 1 if brief else 5
        self.deep = folder / "deep.yaml"
        self.layers = 32 if brief else 1024
        self.deep.write_text(json.dumps(
            {**DEEP, "model": {**DEEP["model"], "num_hidden_layers": self.layers},
             "data": {"path": str(text)}}))

    def row(self, name, limit, measure):
        seconds = [measure() for _ in range(self.rounds)]
        tables.print_row([name, limit, tables.spread(seconds, 3)])

    def plan(self):
        return timed([self.program, "plan", "--no-pilot", self.deep], [0])

    def interrupt(self):
        return timed([self.program, "plan", "--no-pilot", self.deep], [0, 130, -signal.SIGINT],
                     interrupt_after=0.3 if self.brief else 1)

    def refuse(self, megabytes):
        file = self.folder / "list.yaml"
        if not file.exists() or file.stat().st_size < megabytes * 10**6:
            file.write_text("a: [" + "1," * (megabytes * 500_000) + "1]\n")
        return timed([self.program, "plan", file], [2])

    def fingerprint(self):
        said = subprocess.run([self.program, "doctor", "--json"], capture_output=True, check=True)
        return json.loads(said.stdout)["numerics"]["seconds"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("digits", nargs="?")
    parser.add_argument("--brief", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        limits = Limits(options.bin / "spillway", options.text.resolve(), pathlib.Path(folder),
                        options.brief)
        tables.print_head(["", "limit", "seconds"])
        limits.row(f"plan of {limits.layers:,} layers", "some seconds", limits.plan)
        limits.row("Ctrl-C while it plans", "1 s", limits.interrupt)
        for megabytes in [1] if options.brief else [9, 100]:
            limits.row(f"{megabytes} MB of YAML refused", "1 s", lambda: limits.refuse(megabytes))
        limits.row("fingerprint of the kernels", "about 0.02 s", limits.fingerprint)


if __name__ == "__main__":
    main()
