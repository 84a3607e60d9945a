#!/usr/bin/env python3
"""The cost of checkpoints, and the time until a resumed run continues; prints Markdown tables.

Usage: checkpoint.py BIN TEXT [DIGITS] [--brief], BIN: folder of the programs
"""

import os
import pathlib
import statistics
import sys
import tempfile
import time
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import resumed_sweep  # noqa: E402
import spillway_run  # noqa: E402
import tables  # noqa: E402

FULL = {"blocks": 8, "width": 256, "steps": 36, "every": 8, "pairs": 5,
        "budgets": [("resident", "1GiB"), ("spilled", "24MiB")]}
BRIEF = {"blocks": 2, "width": 64, "steps": 20, "every": 8, "pairs": 1,
         "budgets": [("resident", "64MiB")]}


def config_of(setting, memory, text, every_steps):
    return {"devices": [{"memory": memory}],
            "model": {"num_hidden_layers": setting["blocks"], "hidden_size": setting["width"],
                      "num_attention_heads": 4, "max_position_embeddings": 64},
            "data": {"path": text, "eval_fraction": 0},
            "train": {"batch_size": 4, "virtual_nodes": 4, "max_steps": setting["steps"]},
            "checkpoint": {"every_steps": every_steps}}


def compute_spans(run):
    """Ops of the only device, in order: (step, shard and direction, begin, end) in seconds."""
    spans = [event for event in run.trace if event["ph"] == "X" and event["pid"] == 1]
    return [(span["args"]["step"], span["name"].partition(" vn ")[0], span["ts"] / 1e6,
             (span["ts"] + span["dur"]) / 1e6)
            for span in sorted(spans, key=lambda span: span["ts"]) if span["tid"] == 0]


def unit_seconds(run):
    """The mean of all but the first steps."""
    units = {}
    for step, name, begin, end in compute_spans(run):
        first, _ = units.get((step, name), (begin, end))
        units[step, name] = (first, end)
    return statistics.mean(end - begin for (step, _), (begin, end) in units.items() if step > 1)


class Steps:
    """Step s, from 1: its commit, and how long the device has computed nothing since the previous
    one.
    """

    def __init__(self, run):
        self.commit_s = {event["step"]: event["time_s"] for event in spillway_run.steps_of(run)}
        busy = {}
        for step, _, begin, end in compute_spans(run):
            busy[step + 1] = busy.get(step + 1, 0) + end - begin
        self.idle_s = {step: self.commit_s[step] - self.commit_s[step - 1] - busy[step]
                       for step in self.commit_s if step > 1}

    def run_s(self):
        return self.commit_s[max(self.commit_s)] - self.commit_s[2]


def checkpoints_of(run, steps):
    """Checkpoints that were written during training."""
    last = max(steps.commit_s)
    saved = [event for event in run.events if event["event"] == "saved" and event["step"] < last]
    written = {}  # the steps during which each was written
    for event in saved:
        written[event["step"]] = [
            step for step in range(event["step"] + 1, last + 1)
            if steps.commit_s[step - 1] < event["time_s"]]
    busy = {step for during in written.values() for step in during}
    quiet_s = statistics.median(
        idle for step, idle in steps.idle_s.items() if step > 2 and step not in busy)
    return [types.SimpleNamespace(
        pause_s=sum(steps.idle_s[step] - quiet_s for step in written[event["step"]]),
        steps=len(written[event["step"]]),
        durable_s=event["time_s"] - steps.commit_s[event["step"]]) for event in saved]


def plain_write_seconds(num_bytes):
    """In the folder of temporary files, like the runs."""
    data = os.urandom(num_bytes)
    with tempfile.TemporaryFile() as file:
        begin = time.monotonic()
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        return time.monotonic() - begin


def measure_pair(program, setting, memory, text, environment, results):
    """Runs once without and once with checkpoints; adds the outcomes to `results`."""
    without, saving = (
        spillway_run.train(program, config_of(setting, memory, text, every), environment)
        for every in (0, setting["every"]))
    steps = Steps(saving)
    checkpoints = checkpoints_of(saving, steps)
    run_s = Steps(without).run_s()
    results.unit_s.append(unit_seconds(without))
    results.step_s.append(run_s / (setting["steps"] - 2))
    results.cost_s.append((steps.run_s() - run_s) / len(checkpoints))
    results.checkpoints += checkpoints
    results.generation_bytes = saving.generation_bytes
    results.plain_s.append(plain_write_seconds(saving.generation_bytes))


def measure(program, setting, memory, text, environment):
    results = types.SimpleNamespace(unit_s=[], step_s=[], cost_s=[], checkpoints=[], plain_s=[])
    warm_up = config_of({**setting, "steps": 2}, memory, text, 0)
    spillway_run.train(program, warm_up, environment)
    for _ in range(setting["pairs"]):
        measure_pair(program, setting, memory, text, environment, results)
    return results


def ms(values):
    return tables.spread([1e3 * value for value in values], 1)


def print_pauses(measured):
    tables.print_head(["", "generation, MB", "step, ms", "unit, ms", "pause, ms", "pause, units",
                       "steps meanwhile", "durable after, s", "MB/s", "plain, MB/s"])
    for name, of in measured:
        pauses = [checkpoint.pause_s for checkpoint in of.checkpoints]
        unit_s, megabytes = statistics.median(of.unit_s), of.generation_bytes / 1e6
        durable_s = [checkpoint.durable_s for checkpoint in of.checkpoints]
        tables.print_row([
            name, f"{megabytes:.1f}", ms(of.step_s), ms(of.unit_s), ms(pauses),
            tables.spread([pause / unit_s for pause in pauses], 2),
            tables.spread([checkpoint.steps for checkpoint in of.checkpoints], 0),
            tables.spread(durable_s, 2), tables.spread([megabytes / s for s in durable_s], 0),
            tables.spread([megabytes / s for s in of.plain_s], 0)])


def print_costs(measured):
    tables.print_head(["", "cost of a checkpoint, ms", "at one a minute, %"])
    for name, of in measured:
        tables.print_row([name, ms(of.cost_s),
                          tables.spread([100 * cost / 60 for cost in of.cost_s], 2)])


def print_resumes(resumes):
    tables.print_head(["trials", "checkpoints, MB", "all resumed, s", "first step, s"])
    tables.print_row([str(resumes.trials), f"{resumes.checkpoint_bytes / 1e6:.0f}",
                      tables.spread(resumes.resumed_s, 1), tables.spread(resumes.step_s, 1)])


def main():
    arguments = spillway_run.parser("small, one pair").parse_args()
    program, text = os.path.abspath(arguments.bin) + "/spillway", os.path.abspath(arguments.text)
    setting = BRIEF if arguments.brief else FULL
    with tempfile.TemporaryDirectory() as cache:
        environment = {"XDG_CACHE_HOME": cache}
        measured = [(name, measure(program, setting, memory, text, environment))
                    for name, memory in setting["budgets"]]
        print("## A checkpoint while training goes on\n")
        print_pauses(measured)
        print()
        print_costs(measured)
        print("\n## A run that goes on\n")
        print_resumes(resumed_sweep.measure(program, text, environment, arguments.brief))


if __name__ == "__main__":
    main()
