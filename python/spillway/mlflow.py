"""Writes runs in folders into a store of MLflow. Needs `pip install spillway[mlflow]`.

    python -m spillway.mlflow FOLDER [--tracking-uri URI] [--experiment NAME]
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

from .runs import Run

__all__ = ["write_run"]

_BATCH = 1000  # metrics that MLflow takes at once
_STATUS = {"done": "FINISHED", "stopped early": "FINISHED", "failed": "FAILED",
           "stopped": "KILLED", "waiting": "SCHEDULED", "paused": "SCHEDULED", "running": "RUNNING"}
_ENDS = ("FINISHED", "FAILED", "KILLED")
_TAGS = ("state", "parameters", "num_shards", "data_parallel", "weights_xxh3")

#: Values by metric and step.
Values = dict[tuple[str, int], float]


def write_run(
    folder: str | os.PathLike[str],
    *,
    tracking_uri: str | None = None,
    experiment: str | None = None,
) -> dict[str, str]:
    """Writes each trial as a run of MLflow; returns the ids of the runs by the names of the trials.

    The run in the folder may be going on: a later call adds what is new, and nothing twice. If the
    folder has been overwritten by another run, its trials become new runs. `experiment`: by default
    the name of the folder. Raises ConfigError if the folder holds no run.
    """
    run, client = Run(folder), MlflowClient(tracking_uri)
    where = run.folder.resolve()
    store = _Store(client, experiment or where.name)
    trains = run.state == "running"
    return {trial["name"]: store.write(where, trial, trains) for trial in run.trials}


class _Store:
    """An experiment of MLflow."""

    def __init__(self, client: MlflowClient, name: str) -> None:
        self._client = client
        found = client.get_experiment_by_name(name)
        self._experiment = found.experiment_id if found else client.create_experiment(name)

    def write(self, folder: pathlib.Path, trial: Mapping[str, Any], trains: bool) -> str:
        """Writes a trial; returns its run. `trains`: whether a program trains it now."""
        name = trial["name"]
        values, times = _read(folder / "trials" / name / "metrics.csv")
        key = hashlib.sha256(f"{folder}/{name}".encode()).hexdigest()
        run, known = self._find(key, values) or (self._create(key, folder, name, times), {})
        new = [Metric(metric, value, times[step], step)
               for (metric, step), value in values.items() if (metric, step) not in known]
        for begin in range(0, len(new), _BATCH):
            self._client.log_batch(run, metrics=new[begin:begin + _BATCH])
        params = [Param(key, str(value)) for key, value in trial["sweep"].items()]
        tags = [RunTag(f"spillway.{tag}", str(trial[tag])) for tag in _TAGS
                if trial.get(tag) is not None]
        self._client.log_batch(run, params=params, tags=tags)
        status = _STATUS[trial["state"]]
        self._set_status(run, status if trains or status in _ENDS else "KILLED")
        return run

    def _find(self, key: str, values: Values) -> tuple[str, Values] | None:
        """The run of a trial, with what it has. A run of another trial has other values."""
        for run in self._client.search_runs([self._experiment], f"tags.`spillway.key` = '{key}'"):
            known = {(metric, each.step): each.value for metric in run.data.metrics
                     for each in self._client.get_metric_history(run.info.run_id, metric)}
            if all(_agree(values.get(at), value) for at, value in known.items()
                   if at[0] in ("loss", "eval_loss")):
                return run.info.run_id, known
        return None

    def _create(self, key: str, folder: pathlib.Path, name: str, times: Mapping[int, int]) -> str:
        tags = {"spillway.key": key, "spillway.folder": os.fspath(folder)}
        begin = min(times.values(), default=None)
        run = self._client.create_run(self._experiment, begin, tags, run_name=name)
        return str(run.info.run_id)

    def _set_status(self, run: str, status: str) -> None:
        if self._client.get_run(run).info.status == status:
            return
        if status in _ENDS:
            self._client.set_terminated(run, status)
        else:
            self._client.update_run(run, status)


def _agree(value: float | None, stored: float) -> bool:
    """Whether a store may have written that for this; many cannot write infinity."""
    return value is None or value == stored or not math.isfinite(value)


def _read(file: pathlib.Path) -> tuple[Values, dict[int, int]]:
    """The values of a metrics.csv, and the time of each step in milliseconds."""
    if not file.exists():
        return {}, {}
    text, end = file.read_text(encoding="utf-8"), file.stat().st_mtime
    rows = list(csv.DictReader(text[:text.rfind("\n") + 1].splitlines()))
    last = max((float(row["time_s"]) for row in rows if row["time_s"]), default=0.0)
    values: Values = {}
    times: dict[int, int] = {}
    for row in rows:
        step = int(row["step"])
        times[step] = int(1000 * (end - last + float(row["time_s"] or 0.0)))
        values |= {(name, step): float(value) for name, value in row.items()
                   if name not in ("step", "time_s") and value}
    return values, times


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m spillway.mlflow",
                                     description="Writes a run into a store of MLflow.")
    parser.add_argument("folder", help="of the run, also while it trains")
    parser.add_argument("--tracking-uri", help="of the store, by default that of MLflow")
    parser.add_argument("--experiment", help="by default the name of the folder")
    given = parser.parse_args()
    ids = write_run(given.folder, tracking_uri=given.tracking_uri, experiment=given.experiment)
    for name, run in ids.items():
        print(run, name)


if __name__ == "__main__":
    main()
