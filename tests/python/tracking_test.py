"""The package `spillway`: events for W&B and trackio."""

import contextlib
import csv
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

# trackio asks for its folder when it is imported.
FOLDER = os.environ.setdefault("TRACKIO_DIR", tempfile.mkdtemp())
os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_ERROR_REPORTING="false",
                  WANDB_DIR=FOLDER, HF_HUB_OFFLINE="1")
try:
    import trackio
    import wandb
    from trackio.sqlite_storage import SQLiteStorage
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore
except ImportError as error:
    print(f"skipped: {error}; run scripts/python.sh")
    sys.exit(77)
import torch

import spillway as sp
from spillway.tracking import Tracker

STEPS = 12
LONG = 60  # of runs that are interrupted
RATES = [0.01, 0.001]
MODULES = {"trackio": trackio, "wandb": wandb}
INIT = {"trackio": {"auto_log_cpu": False}, "wandb": {}}


def submit(session, rate, **values):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randint(0, 17, (120, 64), generator=generator)
    data = sp.data(inputs, inputs[:, :10].argmax(1), eval_fraction=0.2)
    return session.submit(sp.mlp(hidden_size=32), data, name=f"rate {rate}", learning_rate=rate,
                          batch_size=16, max_steps=STEPS, eval_steps=4, **values)


def tracker(name, trials, project):
    return Tracker(MODULES[name], trials, project=project, group="test", **INIT[name])


def runs_of(name, project):
    """All runs of a project in the order of their begin: name, configuration, and rows by step."""
    if name == "trackio":
        runs = sorted(trackio.Api().runs(project), key=lambda run: run.config["_Created"])
        return [(run.name, run.config, {row["step"]: row for row in SQLiteStorage.get_logs(
            project, run.name, run_id=run.id)}) for run in runs]
    files = sorted(pathlib.Path(FOLDER).glob("wandb/offline-run-*/*.wandb"),
                   key=lambda file: file.stat().st_ctime)
    return [run for run in map(read_wandb, files) if run[0].startswith(project)]


def read_wandb(file):
    store, name, config, rows = DataStore(), "", {}, {}
    store.open_for_scan(str(file))
    while (data := store.scan_data()) is not None:
        record = Record()
        record.ParseFromString(data)
        print(record)
    return name, config, rows
