#!/usr/bin/env python3
"""Planned and actual values of twelve varied runs of `spillway train`; prints Markdown tables.

Usage: plan_accuracy.py BIN TEXT [DIGITS] [--brief], BIN: folder of the programs
"""

import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import spillway_run  # noqa: E402
import tables  # noqa: E402
from configurations import CONFIGURATIONS, DEFAULTS  # noqa: E402


def config_of(changes, data):
    """DEFAULTS with `changes`; a model or data of another kind replaces its whole section."""
    config = {key: {**value} if isinstance(value, dict) else value
              for key, value in DEFAULTS.items()}
    for key, value in changes.items():
        other_kind = key in ("model", "data") and ("family" in value or "format" in value)
        config[key] = {**config.get(key, {}), **value} if (
            isinstance(value, dict) and not other_kind) else value
    config["data"] = {**config["data"], "path": data[config["data"]["path"]]}
    return config


def smallest_budget(program, config):
    """The needed bytes that the program reports."""
    devices = [{"kind": "cpu", "memory": "1GiB"}]
    plan = spillway_run.plan(program, {**config, "devices": devices})
    return max(trial["smallest_budget_bytes"] for trial in plan)


def measure(program, config):
    """A run with costs that its own pilot measures."""
    with tempfile.TemporaryDirectory() as cache:
        run = spillway_run.train(program, config, {"XDG_CACHE_HOME": cache})
    planned_s, actual_s = spillway_run.step_seconds(run, "planned"), spillway_run.step_seconds(run, "real")
    peaks = [device["peak_bytes"] for device in run.plan["devices"]]
    return {"peaks": [peak["planned"] / peak["actual"] for peak in peaks],
            "peak_bytes": max(peak["actual"] for peak in peaks),
            "h2d": run.plan["h2d_bytes"],
            "weights": run.plan["h2d_weight_bytes"],
            "seconds": (planned_s, actual_s),
            "error": planned_s / actual_s - 1}


def deviation(runs, key):
    """Relative error of a plan: "equal", or the largest difference."""
    largest = max((run[key]["planned"] / run[key]["actual"] - 1 for run in runs), key=abs)
    return "equal" if largest == 0 else f"{100 * largest:+.2f} %"


def row_of(name, runs):
    peaks = [peak for run in runs for peak in run["peaks"]]
    return [name, f"{runs[-1]['peak_bytes'] / 2**20:.1f}", f"{min(peaks):.3f}-{max(peaks):.3f}",
            f"{runs[-1]['h2d']['actual'] / 1e6:.1f}", deviation(runs, "h2d"),
            deviation(runs, "weights"),
            tables.spread([1e3 * run["seconds"][0] for run in runs], 1),
            tables.spread([1e3 * run["seconds"][1] for run in runs], 1),
            tables.spread([100 * run["error"] for run in runs], 0)]


def main():
    parser = spillway_run.parser("one run of the first, 3 steps")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="configurations whose name has this in it")
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.bin) + "/spillway"
    data = {"text": os.path.abspath(arguments.text)}
    if arguments.digits:
        data["digits"] = os.path.abspath(arguments.digits)
    tables.print_head(["", "peak, MiB", "planned / actual peak", "h2d, MB", "planned h2d",
                       "planned h2d of weights", "planned step, ms", "actual step, ms",
                       "error, %"])
    for name, changes in CONFIGURATIONS[:1] if arguments.brief else CONFIGURATIONS:
        if arguments.only not in name:
            continue
        config = config_of(changes, data)
        if config["devices"][0]["memory"] == "tightest":
            config["devices"][0]["memory"] = smallest_budget(program, config)
        if arguments.brief:
            config["train"]["max_steps"] = 3
        repeats = 1 if arguments.brief else arguments.repeats
        tables.print_row(row_of(name, [measure(program, config) for _ in range(repeats)]))


if __name__ == "__main__":
    main()
