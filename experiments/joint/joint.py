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
    LARGE, SMALL, WIDE, by_hand, config_of, placed, slow_device)
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


def searched_runs(text):
    """Runs of several trials, by name."""
    runs = {}
    for name, model, link in [("GPT, many words", LARGE, "40MiB/s"),
                              ("GPT, wide", WIDE, "10MiB/s")]:
        config = config_of(model, text, [slow_device(16, link=link)] * 4, 12)
        runs.update({f"{name}, {number} alike": sweep_of(config, number) for number in (2, 3, 4)})
        longer = [{"train.max_steps": steps} for steps in (24, 48)]
        runs[f"{name}, 12, 24 and 48 steps"] = {**config, "host_memory": "4GiB",
                                                "sweep": {"trials": longer}}
    # `config` is that of the wide GPT.
    shallow = [{"model.num_hidden_layers": layers} for layers in (2, 2, 4)]
    runs["GPT, wide, 8, 4, 2 and 2 blocks"] = {**config, "host_memory": "4GiB",
                                               "sweep": {"trials": shallow}}
    islands = [{"between": [0, 1], "rate": "100MiB/s"}, {"between": [2, 3], "rate": "100MiB/s"},
               {"between": [0, 1, 2, 3], "rate": "2MiB/s", "latency": 2e-4, "shared": True}]
    runs.update({f"GPT, wide, {number} alike, two islands": {**sweep_of(config, number),
                                                             "links": islands}
                 for number in (2, 3)})
    return runs


def found_alone_s(search, runs_s):
    """Seconds of the run in which each trial has the strategy with its shortest step."""
    fastest = {min((each["step_s"], each["name"]) for each in spillway_run.compared(search, m))[1]
               for m in range(len(search["models"]))}
    # Of several models that have the same one, the run has its name.
    return runs_s[fastest.pop() if len(fastest) == 1 else "the fastest on 4 devices"]


def trials_table(program, runs, proposals, folder):
    """What a search for all trials brings."""
    tables.print_head(["run", "as configured, s", "found for one trial, s", "found for all, s",
                       "which is", "as configured / found for all", "as configured, trained, s",
                       "found for all, trained, s", "the same, trained"])
    right = True
    for name, config in runs.items():
        search = spillway_run.search(program, config, folder / f"{name}.yaml", proposals)
        runs_s = {each["name"]: each["run_s"] for each in search["runs"]}
        trained = [spillway_run.train(program, each)
                   for each in (config, spillway_run.with_found(config, search))]
        right &= spillway_run.hashes_of(trained[0]) == spillway_run.hashes_of(trained[1])
        best = search["best"]
        real_s = [run.plan["wall_s"]["actual"] for run in trained]
        tables.print_row([name, f"{runs_s['as configured']:.1f}",
                          f"{found_alone_s(search, runs_s):.1f}", f"{best['run_s']:.1f}",
                          best["name"], f"{runs_s['as configured'] / best['run_s']:.2f}",
                          f"{real_s[0]:.1f}", f"{real_s[1]:.1f}",
                          f"{real_s[0] / real_s[1]:.2f}"])
    return right


def main():
    parser = spillway_run.parser("few trials of small models")
    parser.add_argument("--searches", action="store_true", help="the second table alone")
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.bin) + "/spillway"
    text = os.path.abspath(arguments.text)
    roomy, short = "256MiB", "64MiB"
    rows = [*((number, "GPT, wide", roomy, "round_robin") for number in (1, 2, 3, 4)),
            (4, "GPT, wide", roomy, "lrtf"), (4, "GPT, many words", roomy, "round_robin"),
            *((number, "GPT, wide", short, "round_robin") for number in (2, 4))]
    models = {"GPT, many words": LARGE, "GPT, wide": WIDE}
    if not arguments.searches:
        print("## Pipelines of several trials\n")
        if arguments.brief:
            bubbles_table(program, text, models, [(2, "GPT, wide", short, "lrtf")], steps=3)
        else:
            bubbles_table(program, text, models, rows, steps=12)
        print()
    print("## Searches for all trials\n")
    runs = searched_runs(text)
    if arguments.brief:
        small = config_of(SMALL, text, [slow_device(1)] * 4, 3)
        runs = {"small": sweep_of(small, 2),
                "small, of two kinds": {**small, "sweep": {
                    "trials": [{"model.num_hidden_layers": 1}]}}}
    with tempfile.TemporaryDirectory() as folder:
        right = trials_table(program, runs, 20 if arguments.brief else 4000,
                             pathlib.Path(folder))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
