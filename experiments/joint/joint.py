#!/usr/bin/env python3
"""Several trials with strategies on the same devices; prints Markdown tables.

Usage: joint.py BIN TEXT [DIGITS] [--brief], BIN: folder of the programs. Exits with 1 if a
strategy changes a weight.
"""

import os
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from gpt_strategies import (  # noqa: E402
    LARGE, SMALL, WIDE, by_hand, config_of, hashes_of, placed, slow_device)
import spillway_run  # noqa: E402
import tables  # noqa: E402


def bubbles_table(program, text, models, rows, steps):
    """How busy pipelines keep devices if several trials share them. `rows`: number of trials,
    model, memory of a device, policy."""
    tables.print_head(["trials", "model", "memory of a device", "policy", "busy, planned",
                       "busy, trained", "steps a second, trained", "to devices, MB a step"])
    for number, model, memory, policy in rows:
        strategy = by_hand(models[model], 4)["pipeline, 1F1B"][1]
        device = slow_device(16, memory, "400MiB/s")
        config = config_of(models[model], text, [device] * 4, steps)
        config["scheduling"] = {"policy": policy}
        config = sweep_of(config, number)
        run = placed(config, strategy, lambda c: spillway_run.train(program, c))
        busy = [statistics.mean(device["busy_share"][kind] for device in run.plan["devices"])
                for kind in ("planned", "actual")]
        ends = sorted(event["time_s"] for event in spillway_run.steps_of(run))
        moved = run.plan["h2d_bytes"]["actual"] / (number * steps)
        tables.print_row([str(number), model, memory, policy, f"{busy[0]:.2f}", f"{busy[1]:.2f}",
                          f"{(len(ends) - number) / (ends[-1] - ends[number - 1]):.2f}",
                          f"{moved / 1e6:.1f}"])


def sweep_of(config, number):
    """With as many trials."""
    rates = [1e-3 / (1 + i) for i in range(number)]
    return {**config, "host_memory": "4GiB",
            "sweep": {"parameters": {"train.learning_rate": {"values": rates}}}}


def trials_table(program, rows, proposals, folder):
    """What a search for all trials brings. `rows`: (model, its configuration, trials)."""
    tables.print_head(["model", "trials", "as configured, s", "found for one trial, s",
                       "found for all, s", "which is", "as configured / found for all",
                       "as configured, trained, s", "found for all, trained, s",
                       "the same, trained"])
    right = True
    for name, config, number in rows:
        config = sweep_of(config, number)
        file = folder / f"{name} {number} trials.yaml"
        search = spillway_run.search(program, config, file, proposals)
        compared = search["compared"]
        configured_s = next(each["run_s"] for each in compared if "step_s" not in each)
        alone_s = min((each["step_s"], each["run_s"]) for each in compared if "run_s" in each
                      and "step_s" in each)[1]
        trained = [spillway_run.train(program, each)
                   for each in (config, spillway_run.with_found(config, search))]
        right &= hashes_of(trained[0]) == hashes_of(trained[1])
        best = search["best"]
        real_s = [run.plan["wall_s"]["actual"] for run in trained]
        tables.print_row([name, str(number), f"{configured_s:.1f}", f"{alone_s:.1f}",
                          f"{best['run_s']:.1f}", best["name"],
                          f"{configured_s / best['run_s']:.2f}", f"{real_s[0]:.1f}",
                          f"{real_s[1]:.1f}", f"{real_s[0] / real_s[1]:.2f}"])
    return right


def main():
    arguments = spillway_run.parser("few trials of small models").parse_args()
    program = os.path.abspath(arguments.bin) + "/spillway"
    text = os.path.abspath(arguments.text)
    roomy, short = "256MiB", "64MiB"
    rows = [*((number, "GPT, wide", roomy, "round_robin") for number in (1, 2, 3, 4)),
            (4, "GPT, wide", roomy, "lrtf"), (4, "GPT, many words", roomy, "round_robin"),
            *((number, "GPT, wide", short, "round_robin") for number in (2, 4))]
    models = {"GPT, many words": LARGE, "GPT, wide": WIDE}
    print("## Pipelines of several trials\n")
    if arguments.brief:
        bubbles_table(program, text, models, [(2, "GPT, wide", short, "lrtf")], steps=3)
    else:
        bubbles_table(program, text, models, rows, steps=12)
    print("\n## Searches for all trials\n")
    links = {"GPT, many words": "40MiB/s", "GPT, wide": "10MiB/s"}
    with tempfile.TemporaryDirectory() as folder:
        if arguments.brief:
            runs = [("small", config_of(SMALL, text, [slow_device(1)] * 4, 3), 2)]
        else:
            runs = [(name, config_of(model, text, [slow_device(16, link=links[name])] * 4, 12),
                     number)
                    for name, model in models.items() for number in (2, 3, 4)]
        right = trials_table(program, runs, 20 if arguments.brief else 4000,
                             pathlib.Path(folder))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
