"""Writes runs in folders into a store of MLflow. Needs `pip install spillway[mlflow]`.

    python -m spillway.mlflow FOLDER [--tracking-uri URI] [--experiment NAME]
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import time
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
    store = _Store(client, experiment or run.folder.resolve().name)
    return {trial["name"]: store.write(run, trial) for trial in run.trials}


class _Store:
    """An experiment of MLflow."""

    def __init__(self, client: MlflowClient, name: str) -> None:
        self._client = client
        found = client.get_experiment_by_name(name)
        self._experiment = found.experiment_id if found else client.create_experiment(name)

    def write(self, run: Run, trial: Mapping[str, Any]) -> str:
        """Writes a trial; returns the id of its run."""
        name, folder = trial["name"], os.fspath(run.folder.resolve())
        rows = run.history(name)
        values = {(metric, int(row["step"])): value for row in rows for metric, value in row.items()
                  if metric not in ("step", "time_s")}
        key = hashlib.sha256(f"{folder}/{name}".encode()).hexdigest()
        found = self._find(key, values)
        id, known = found or (self._create({"key": key, "folder": folder}, name), {})
        times = {int(row["step"]): row["time_s"] for row in rows if "time_s" in row}
        begin = time.time() - max(times.values(), default=0.0)
        new = [Metric(metric, value, int(1000 * (begin + times.get(step, 0.0))), step)
               for (metric, step), value in values.items() if (metric, step) not in known]
        for first in range(0, len(new), _BATCH):
            self._client.log_batch(id, metrics=new[first:first + _BATCH])
        params = [Param(key, str(value)) for key, value in trial["sweep"].items()]
        tags = [RunTag(f"spillway.{tag}", str(trial[tag])) for tag in _TAGS
                if trial.get(tag) is not None]
        self._client.log_batch(id, params=params, tags=tags)
        status = _STATUS[trial["state"]]
        killed = status not in _ENDS and run.state != "running"
        self._set_status(id, "KILLED" if killed else status)
        return id

    def _find(self, key: str, values: Values) -> tuple[str, Values] | None:
        """The run of a trial, with what it has. A run of another trial has other values."""
        for run in self._client.search_runs([self._experiment], f"tags.`spillway.key` = '{key}'"):
            known = {(metric, each.step): each.value for metric in run.data.metrics
                     for each in self._client.get_metric_history(run.info.run_id, metric)}
            if all(_agree(values.get(at), value) for at, value in known.items()
                   if at[0] in ("loss", "eval_loss")):
                return run.info.run_id, known
        return None

    def _create(self, tags: Mapping[str, str], name: str) -> str:
        tags = {f"spillway.{tag}": value for tag, value in tags.items()}
        return str(self._client.create_run(self._experiment, tags=tags, run_name=name).info.run_id)

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
