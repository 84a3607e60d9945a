"""The package `spillway`: events for W&B and trackio."""

import contextlib
import io
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

# trackio asks for its folder when it is imported.
KEPT = tempfile.TemporaryDirectory()
FOLDER = os.environ.setdefault("TRACKIO_DIR", KEPT.name)
os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_ERROR_REPORTING="false",
                  WANDB_DIR=FOLDER, HF_HUB_OFFLINE="1")
try:
    import trackio
    import wandb
    from trackio.sqlite_storage import SQLiteStorage
    from wandb.proto.wandb_internal_pb2 import Record
except ImportError as error:
    print(f"skipped: {error}; run scripts/python.sh")
    sys.exit(77)
import torch

import spillway as sp
from spillway.tracking import Tracker

STEPS = 12
LONG = 60  # of runs that are interrupted
RATES = [0.01, 0.001]
MODULES = {"trackio": (trackio, {"auto_log_cpu": False}), "wandb": (wandb, {})}
METRICS = ("loss", "gradient_norm", "eval_loss", "accuracy")


def config(folder):
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(0, 17, (120, 65), generator=generator)
    rows[:, 64] = rows[:, :10].argmax(1)
    file = pathlib.Path(folder) / "digits.csv"
    file.write_text("".join(",".join(map(str, row)) + "\n" for row in rows.tolist()))
    return {
        "output_dir": f"{folder}/run",
        "devices": [{"memory": "256MiB"}],
        "model": {"family": "mlp", "hidden_size": 768, "num_hidden_layers": 8},
        "data": {"format": "digits", "path": str(file), "eval_fraction": 0.2},
        "train": {"batch_size": 16, "max_steps": LONG, "eval_steps": 4},
        "checkpoint": {"every_steps": 10},
        "sweep": {"parameters": {"train.learning_rate": {"values": RATES}}},
    }


def submit(session, rate, **values):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randint(0, 17, (120, 64), generator=generator)
    data = sp.data(inputs, inputs[:, :10].argmax(1), eval_fraction=0.2)
    return session.submit(sp.mlp(hidden_size=32), data, name=f"rate {rate}", learning_rate=rate,
                          batch_size=16, max_steps=STEPS, eval_steps=4, **values)


def tracker(name, trials, project):
    module, init = MODULES[name]
    return Tracker(module, trials, project=project, group="test", **init)


def tracked(name, project):
    """(name, configuration, rows) of all runs of a project."""
    return (runs_of_trackio if name == "trackio" else runs_of_wandb)(project)


def runs_of_trackio(project):
    return [(run.name, run.config, SQLiteStorage.get_logs(project, run.name, run_id=run.id))
            for run in trackio.Api().runs(project)]


def runs_of_wandb(project):
    """Offline, a run that resumes is a second file with the same id."""
    wandb.teardown()  # writes the files to their end
    runs = {}
    for file in sorted(pathlib.Path(FOLDER).glob("wandb/offline-run-*/*.wandb"),
                       key=lambda file: file.stat().st_mtime):
        records = list(records_of(file))
        begun = next((record.run for record in records if record.HasField("run")), None)
        if begun is not None and begun.project == project:  # one that was killed may have none
            values = {item.key: json.loads(item.value_json) for item in begun.config.update}
            rows = [{item.nested_key[0]: json.loads(item.value_json)
                     for item in record.history.item}
                    for record in records if record.HasField("history")]
            runs.setdefault(begun.run_id, (begun.display_name, values, []))[2].extend(
                {**row, "step": row["_step"]} for row in rows)
    return list(runs.values())


def records_of(file):
    """The records of a file of W&B, which has the format of LevelDB's log."""
    data, at, record = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, kind = struct.unpack_from("<HB", data, at + 4)
        record += data[at + 7:at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or its last part
            yield Record.FromString(record)
            record = b""


def in_metrics(rows):
    return [{"step": row["step"], **{key: row[key] for key in METRICS if key in row}}
            for row in rows]


def train_and_die(name, folder):
    """The process of a test: tracks a run, and dies while it trains."""
    with sp.Session("64MiB") as session, tracker(name, session, "first") as track:
        submit(session, 0.01)  # begin the first run, which takes longest
        session.wait(callback=track)
    track = tracker(name, f"{folder}/run", pathlib.Path(folder).name)

    def callback(event):
        track(event)
        if event.kind == "saved":
            os.kill(os.getpid(), signal.SIGKILL)

    sp.train(config(folder), progress=False, callback=callback)


class TrackingTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        output = contextlib.ExitStack()
        self.addCleanup(output.close)
        output.enter_context(contextlib.redirect_stdout(io.StringIO()))

    def test_tracks_each_trial(self):
        for name in MODULES:
            with self.subTest(name), sp.Session("64MiB") as session:
                trials = [submit(session, rate) for rate in RATES]
                with tracker(name, session, "each") as track:
                    session.wait(callback=track)
                    session.wait(callback=track)  # what it has seen is sent once
                runs = {title: run for title, *run in tracked(name, "each")}
                self.assertEqual(len(runs), len(RATES))
                for trial, rate in zip(trials, RATES, strict=True):
                    values, rows = runs[f"test rate {rate}"]
                    self.assertEqual(values["learning_rate"], rate)
                    self.assertEqual(in_metrics(rows), in_metrics(session.history(trial)))
                    self.assertEqual([row["step"] for row in rows], list(range(1, STEPS + 1)))
                    self.assertEqual(rows[0]["learning_rate"], rate)
                losses = [[row["loss"] for row in rows] for _, rows in runs.values()]
                self.assertNotEqual(*losses)

    def test_goes_on_with_a_killed_run(self):
        for name in MODULES:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                child = subprocess.run([sys.executable, __file__, name, folder], check=False,
                                       env={**os.environ, "TRACKIO_DIR": FOLDER},
                                       stdout=subprocess.DEVNULL)
                self.assertEqual(child.returncode, -signal.SIGKILL)
                self.assertEqual(sp.open(f"{folder}/run").state, "unfinished")
                project = pathlib.Path(folder).name
                with tracker(name, f"{folder}/run", project) as track:
                    run = sp.resume(f"{folder}/run", progress=False, callback=track)
                runs = {values["train.learning_rate"]: rows
                        for _, values, rows in tracked(name, project)}
                self.assertEqual(sorted(runs), sorted(RATES))
                for trial in run.trials:
                    rows = in_metrics(runs[trial["sweep"]["train.learning_rate"]])
                    by_step = {row["step"]: row for row in rows}
                    whole = in_metrics(run.history(trial["name"]))
                    self.assertEqual([by_step[step] for step in sorted(by_step)], whole)
                    if name == "trackio":  # W&B cannot see offline what it has
                        self.assertEqual(rows, whole)

    def test_begins_another_run_for_a_trial_that_begins_anew(self):
        for rate in (0.01, 0.01):
            with sp.Session("64MiB") as session, tracker("trackio", session, "anew") as track:
                submit(session, rate, checkpoint_dir=None)
                session.wait(callback=track)
        self.assertEqual([len(rows) for _, _, rows in tracked("trackio", "anew")], [STEPS, STEPS])

    def test_goes_on_with_a_trial_that_is_extended(self):
        with sp.Session("64MiB") as session, tracker("trackio", session, "extended") as track:
            trial = submit(session, 0.01, until=5)
            session.wait(callback=track)
            session.extend(trial, STEPS)
            session.wait(callback=track)
        runs = tracked("trackio", "extended")
        self.assertEqual([row["step"] for row in runs[0][2]], list(range(1, STEPS + 1)))
        self.assertEqual(len(runs), 1)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in MODULES:
        train_and_die(*sys.argv[1:])
        sys.exit(0)
    # W&B wants the exit code to be an integer.
    sys.exit(int(not unittest.main(exit=False).result.wasSuccessful()))
