#!/usr/bin/env python3
"""Strategies on devices with links between them; prints a Markdown table.

Usage: links.py BIN TEXT [DIGITS] [--brief], BIN: folder of the programs. Exits with 1 if links or
a strategy change a weight.
"""

import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from gpt_strategies import SMALL, WIDE, config_of, slow_device  # noqa: E402
import ranks  # noqa: E402
import spillway_run  # noqa: E402
import tables  # noqa: E402

FAST = "400MiB/s"
ALL = [0, 1, 2, 3]
LINKS = {
    "none": [],
    "fast": [{"between": ALL, "rate": FAST}],
    "two pairs": [{"between": [0, 1], "rate": FAST}, {"between": [2, 3], "rate": FAST},
                  {"between": ALL, "rate": "2MiB/s", "latency": 2e-4, "shared": True}],
    "slow network": [{"between": ALL, "rate": "2MiB/s", "latency": 2e-4, "shared": True}],
}


def measure(program, config, folder, blind, proposals):
    """(best data parallelism, best known, found, trained seconds a step; those of the strategy that
    was found without links; planned / trained of each strategy; tau; hashes, what was found)."""
    search = spillway_run.search(program, config, folder / "found.yaml", proposals, "--verify")
    rows = spillway_run.compared(search)
    trained = {row["name"]: row["trained_step_s"] for row in rows}
    found = spillway_run.with_found(config, search)
    if "strategy" in found["train"]:
        kept = folder / f"{len(list(folder.iterdir()))}.yaml"
        (folder / "found.yaml").rename(kept)
        found["train"]["strategy"] = str(kept)
    runs = [spillway_run.train(program, each)
            for each in (found, {**config, "train": (blind or found)["train"]})]
    lanes_s = min(s for name, s in trained.items() if name.startswith("data_parallel"))
    known_s = min(s for name, s in trained.items() if name != "found")
    seconds = [lanes_s, known_s, *(spillway_run.step_seconds(run) for run in runs)]
    planned_s = [row["step_s"] for row in rows]
    trained_s = [row["trained_step_s"] for row in rows]
    shares = [planned / actual for planned, actual in zip(planned_s, trained_s)]
    return (seconds, shares, ranks.kendall_tau(planned_s, trained_s),
            {spillway_run.hash_of(run) for run in runs}, found)


def main():
    arguments = spillway_run.parser("few proposals for a small model").parse_args()
    program = os.path.abspath(arguments.bin) + "/spillway"
    text = os.path.abspath(arguments.text)
    model, steps, proposals = (SMALL, 3, 20) if arguments.brief else (WIDE, 10, 4000)
    links = list(LINKS)[:3] if arguments.brief else LINKS
    alone = config_of(model, text, [slow_device(8)] * len(ALL), steps)
    hashes, blind = set(), None
    tables.print_head(["links", "data parallel, ms", "best known, ms", "found, ms",
                       "found without links, ms", "best known / found", "planned / trained",
                       "Kendall's tau"])
    with tempfile.TemporaryDirectory() as place:
        for name in links:
            config = {**alone, "links": LINKS[name]} if LINKS[name] else alone
            seconds, shares, tau, seen, found = measure(program, config, pathlib.Path(place), blind,
                                                        proposals)
            blind = blind or found
            hashes |= seen
            tables.print_row([name, *(f"{1e3 * each:.0f}" for each in seconds),
                              f"{seconds[1] / seconds[2]:.2f}", tables.spread(shares, 2),
                              f"{tau:.2f}"])
    return 0 if len(hashes) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
