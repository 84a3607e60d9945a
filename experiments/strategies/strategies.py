#!/usr/bin/env python3
"""Bits of drawn strategies, time of strategies made by hand or found; prints Markdown tables.

Usage: strategies.py BIN TEXT [DIGITS] [--brief] [--drawn N], BIN: folder of the programs. Exits with
1 if a strategy gives other bits than one device, or if other reduction groups give the same.
"""

import itertools
import os
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import drawn  # noqa: E402
from gpt_strategies import (  # noqa: E402
    LARGE, SMALL, WIDE, by_hand, config_of, placed, slow_device)
import pictures  # noqa: E402
import ranks  # noqa: E402
import spillway_run  # noqa: E402
import tables  # noqa: E402


def time_table(program, text, model, devices, slowdown, rounds, steps, proposals, folder):
    """Whether all have the same bits."""
    plain = config_of(model, text, [slow_device(slowdown)] * devices, steps)
    found = spillway_run.search(program, plain, folder / "found.yaml", proposals)
    compared = by_hand(model, devices)
    if found["best"]["has_strategy"]:
        compared["found"] = ({"strategy": str(folder / "found.yaml")}, None)
    rows = {name: [] for name in compared}
    hashes = set()
    for _ in range(rounds):
        for name, (train, strategy) in compared.items():
            config = {**plain, "train": {**plain["train"], **train}}
            run = placed(config, strategy, lambda c: spillway_run.train(program, c))
            hashes.add(spillway_run.hash_of(run))
            rows[name].append((spillway_run.step_seconds(run),
                               spillway_run.step_seconds(run, "planned"),
                               run.plan["h2d_bytes"]["actual"] / steps))
    tables.print_head(["strategy", "step, ms", "planned, ms", "planned / actual",
                       "time of data parallel / its own", "to devices, MB a step"])
    baseline = statistics.median(step for step, _, _ in rows["data parallel"])
    medians = [[statistics.median(run[i] for run in runs) for runs in rows.values()]
               for i in (0, 1)]
    for name, runs in rows.items():
        steps_s, planned_s, moved = zip(*runs)
        tables.print_row([name, tables.spread([1e3 * s for s in steps_s], 0),
                          tables.spread([1e3 * s for s in planned_s], 0),
                          f"{statistics.median(p / s for p, s in zip(planned_s, steps_s)):.2f}",
                          f"{baseline / statistics.median(steps_s):.2f}",
                          f"{moved[-1] / 1e6:.1f}"])
    print(f"\nKendall's tau of planned and actual medians: {ranks.kendall_tau(*medians):.2f}")
    return len(hashes) == 1


def alexnet(folder):
    """A smaller one, on smaller pictures: model and data of a configuration."""
    size = 64
    pictures.write(folder / "pictures.safetensors", samples=64, channels=3, size=size, classes=100)
    return ({"family": "cnn", "preset": "alexnet", "width_mult": 0.5, "image_size": size,
             "num_classes": 100, "pieces": {"channels": 4}},
            {"format": "tensors", "path": str(folder / "pictures.safetensors")})


def known_steps(search):
    """Seconds of a step by the name of each known strategy that fits."""
    return {each["name"]: each["step_s"] for each in spillway_run.compared(search)
            if each["name"] != "found"}


def search_table(program, configs, numbers, links, proposals, folder):
    """What searches find, by the simulation."""
    tables.print_head(["model", "devices", "link", "data parallel, ms", "best start, ms",
                       "found, ms", "data parallel / found", "best start / found", "simulated",
                       "seconds"])
    for (name, config), devices, link in itertools.product(configs.items(), numbers, links):
        device = slow_device(16, "256MiB", link)
        begin = time.monotonic()
        search = spillway_run.search(program, {**config, "devices": [device] * devices},
                                     folder / f"{name} {devices} {links.index(link)}.yaml",
                                     proposals)
        seconds = time.monotonic() - begin
        steps_s = known_steps(search)
        lanes_s = min(s for known, s in steps_s.items() if known.startswith("data_parallel"))
        start_s, found_s = min(steps_s.values()), search["best"]["step_s"]
        tables.print_row([name, str(devices), link, f"{1e3 * lanes_s:.0f}", f"{1e3 * start_s:.0f}",
                          f"{1e3 * found_s:.0f}", f"{lanes_s / found_s:.2f}",
                          f"{start_s / found_s:.2f}", str(search["models"][0]["simulated"]),
                          f"{seconds:.1f}"])


def memory_table(program, configs, shares, proposals, folder):
    """What searches find with less memory than data parallelism needs to move nothing twice."""
    tables.print_head(["model", "memory of a device", "share of what data parallel uses",
                       "data parallel, ms", "best pipeline, ms", "found, ms",
                       "better of both / found"])
    device = slow_device(16, "1GiB")
    for (name, config), share in itertools.product(configs.items(), shares):
        roomy = {**config, "devices": [device] * 4}
        lanes = spillway_run.planned(program, {**roomy, "train": {**config["train"],
                                                                  "data_parallel": 4}})
        used = max(each["peak_bytes"] for each in lanes["devices"])
        memory = int(used * share) // 4096 * 4096
        tight = {**config, "devices": [{**device, "memory": memory}] * 4}
        search = spillway_run.search(program, tight, folder / f"{name} {share}.yaml", proposals)
        steps_s = known_steps(search)
        lanes_s, pipeline_s = (min((s for known, s in steps_s.items() if known.startswith(kind)),
                                   default=float("inf")) for kind in ("data_par", "pipeline"))
        found_s = search["best"]["step_s"]
        tables.print_row([name, f"{memory / 2**20:.1f} MiB", f"{share:g}", f"{1e3 * lanes_s:.0f}",
                          f"{1e3 * pipeline_s:.0f}", f"{1e3 * found_s:.0f}",
                          f"{min(lanes_s, pipeline_s) / found_s:.2f}"])


def main():
    parser = spillway_run.parser("few strategies of a small model")
    parser.add_argument("--drawn", type=int, default=300, help="number of drawn strategies")
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.bin) + "/spillway"
    text = os.path.abspath(arguments.text)
    print("## Bits\n")
    digits = arguments.digits and os.path.abspath(arguments.digits)
    right = drawn.print_bits(program, text, digits, 6 if arguments.brief else arguments.drawn)
    print("\n## Time\n")
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        if arguments.brief:
            right &= time_table(program, text, SMALL, devices=2, slowdown=1, rounds=1, steps=3,
                                proposals=20, folder=folder)
        else:
            right &= time_table(program, text, LARGE, devices=4, slowdown=16, rounds=3, steps=8,
                                proposals=4000, folder=folder)
        print("\n## Searches\n")
        if arguments.brief:
            small = {"small": config_of(SMALL, text, [], 3)}
            search_table(program, small, [2], ["40MiB/s"], 20, folder)
            print("\n## Less memory\n")
            memory_table(program, small, [0.5], 20, folder)
        else:
            model, data = alexnet(folder)
            wide = config_of(WIDE, text, [], 3)
            search_table(program, {"GPT, many words": config_of(LARGE, text, [], 3),
                                   "GPT, wide": wide,
                                   "AlexNet": {**wide, "host_memory": "4GiB", "model": model,
                                               "data": data}},
                         [4, 8], ["10MiB/s", "40MiB/s", "160MiB/s"], 4000, folder)
            print("\n## Less memory\n")
            memory_table(program, {"GPT, many words": config_of(LARGE, text, [], 3),
                                   "GPT, wide": wide}, [1, 0.5, 0.25], 4000, folder)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
