"""Compares Spillway's choices in searches with those of other libraries on the same losses."""

import collections
import json
import pathlib
import subprocess

import problems
import spillway_search
import tables

HERE = pathlib.Path(__file__).resolve().parent
TRIALS = 49  # fill Hyperband's brackets: 27, 12, 6 and 4
POPULATION = 12
UNIT = 4
SEED = 1


def record(program, problem, path, trials, rule=None, **train):
    """(losses of each trial by unit, events)."""
    method = {"trials": trials, "at": [1], "rule": rule}
    config = problems.spillway_config(problem, path, method, SEED)
    config["train"].update(train)
    events, _, _ = spillway_search.train(program, config)
    losses = collections.defaultdict(dict)
    for event in events:
        if event["event"] == "eval":
            losses[event["trial"]][event["step"] // problem["unit"]] = event["loss"]
    return [losses[number] for number in range(trials)], events


def ends_of(program, problem, path, trace, rule):
    """When each trial ended, and when it was first evaluated. Losses must be those of the trace."""
    losses, _ = record(program, problem, path, TRIALS, rule)
    for seen, recorded in zip(losses, trace):
        if not seen.items() <= recorded.items():
            raise RuntimeError("a trial that was stopped has other losses than a whole one")
    return [max(seen) for seen in losses], [min(seen) for seen in losses]


def exchanges(program, problem, path, rule):
    """Of population-based training: losses of all trials at each time, and there (trials that took
    over, trials of which they did).
    """
    losses, events = record(program, problem, path, POPULATION, rule)
    names = [trial["name"] for trial in events[0]["trials"]]
    times = range(rule["interval"], problems.FULL, rule["interval"])
    taken = {time: ([], set()) for time in times}
    for event in events:
        if event["event"] == "set":
            takers, sources = taken[event["step"] // problem["unit"]]
            takers.append(event["trial"])
            sources.add(names.index(event["reason"].split("'")[1]))
    return [[seen[time] for seen in losses] for time in times], list(taken.values())


def compare(program, ray_python, name, path):
    problem = {**problems.PROBLEMS[name], "unit": UNIT}
    trace, _ = record(program, problem, path, TRIALS)
    rules = {kind: dict(problems.METHODS[method]["rule"]) for kind, method in
             (("hyperband", "hyperband, all brackets"), ("asha", "asha"), ("median", "median"),
              ("pbt", "pbt"))}
    for kind in ("asha", "median"):
        rules[kind]["max_concurrent_trials"] = 1  # so that trials come one after the other
    ours, first = {}, {}
    for kind in ("hyperband", "asha", "median"):
        ours[kind], first[kind] = ends_of(program, problem, path, trace, rules[kind])
    losses, taken = exchanges(program, problem, path, rules["pbt"])
    brackets = [[number for number in range(TRIALS) if first["hyperband"][number] == unit]
                for unit in reversed(problems.RUNGS)]
    asked = {"eta": problems.ETA, "full": problems.FULL, "pbt": losses,
             "hyperband": {"brackets": brackets, "traces": dict(enumerate(trace))},
             **{kind: {"times": times, "traces": [[seen[time] for time in times] for seen in trace]}
                for kind, times in (("asha", problems.RUNGS), ("median", problems.EVERY_THIRD))}}
    theirs = json.loads(subprocess.run(
        [ray_python, str(HERE / "reference_choices.py")], input=json.dumps(asked), check=True,
        capture_output=True, text=True).stdout)
    print_rows(name, ours, theirs, taken)


def print_rows(name, ours, theirs, taken):
    for kind, reference, key in (
            ("hyperband", "Ray's HyperBandScheduler", "hyperband"),
            ("asha", "Optuna's SuccessiveHalvingPruner", "asha of Optuna"),
            ("asha", "Ray's ASHAScheduler", "asha of Ray"),
            ("median", "Ray's MedianStoppingRule", "median")):
        stopped = sum(end < problems.FULL for end in ours[kind])
        same = sum(a == b for a, b in zip(ours[kind], theirs[key], strict=True))
        tables.print_row([name, kind, reference, f"{TRIALS} trials, {stopped} stopped early",
                          f"{same} of {TRIALS}"])
    same = sum(sorted(takers) == worst and sources <= set(best)
               for (takers, sources), (worst, best) in zip(taken, theirs["pbt"], strict=True))
    tables.print_row([name, "pbt", "Ray's PopulationBasedTraining",
                      f"{len(taken)} exchanges of {POPULATION} trials", f"{same} of {len(taken)}"])


def print_table(program, ray_python, paths):
    tables.print_head(["problem", "rule", "reference", "choices", "the same"])
    for name, path in paths.items():
        compare(program, ray_python, name, path)
