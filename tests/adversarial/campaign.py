"""Shared by all attempts of a campaign: the program, the text, undisturbed runs for comparison, and
runs in known states as starting points.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import threading

from outcome import outcome

BASE = {
    "name": "base",
    "seed": 1,
    "output_dir": "r",
    "devices": [{"memory": "64MiB"}],
    "model": {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2,
              "max_position_embeddings": 16},
    "data": {"path": "text.txt", "eval_fraction": 0.05},
    "train": {"batch_size": 8, "virtual_nodes": 4, "max_steps": 10, "learning_rate": 1e-3,
              "eval_steps": 5, "eval_batches": 2},
}
# Steps take a while on any machine, without changing a bit.
SLOW_DEVICE = "devices='[{memory: 64MiB, imitate: {link: 10MiB/s}}]'"
LONG = {"train.max_steps": 120, "train.eval_steps": 40, "checkpoint.every_steps": 4}
THREE_RATES = {"sweep": {"parameters": {"train.learning_rate": {"values": [1e-3, 2e-3, 3e-3]}}}}


@dataclasses.dataclass(frozen=True)
class Beginning:
    """A run that attempts start from: its configuration, and the number of checkpoints per trial at
    which a signal ends it; None: it runs to its end.
    """
    config: dict
    generations: int | None = None
    signal: int = signal.SIGKILL


BEGINNINGS = {
    "a run that has ended": Beginning({**LONG, "train.max_steps": 20}),
    "a run that was killed": Beginning(LONG, generations=2),
    "a run that was interrupted": Beginning(LONG, generations=2, signal=signal.SIGTERM),
    "a sweep that has ended": Beginning({**LONG, **THREE_RATES, "train.max_steps": 20}),
    "a sweep that was killed": Beginning({**LONG, **THREE_RATES}, generations=2),
}


def config_with(changes):
    """The base with some keys, written as `train.data_parallel`, replaced; None removes a key."""
    config = copy.deepcopy(BASE)
    for key, value in changes.items():
        *path, last = key.split(".")
        place = config
        for part in path:
            place = place.setdefault(part, {})
        if value is None:
            place.pop(last, None)
        else:
            place[last] = copy.deepcopy(value)
    return config


def generations(run_folder):
    """By trial, its number of complete checkpoints."""
    found = {}
    for trial in run_folder.glob("trials/*"):
        names = (path.name for path in trial.glob("checkpoints/*"))
        found[trial.name] = sum(len(name) == 12 and name.isdigit() for name in names)
    return found

KERNELS = ["MKL_ENABLE_INSTRUCTIONS"]  # cmake/Spillway.cmake


class Campaign:
    def __init__(self, program, text, digits, root):
        self.program, self.digits, self.root = os.path.abspath(program), digits, root
        self.text = pathlib.Path(text).read_bytes()
        self.home = root / "home"
        self.home.mkdir()
        self._made, self._locks, self._lock = {}, {}, threading.Lock()

    def environment(self):
        """Only PATH and the test kernels of the caller's environment: other variables could change
        kernels or places. All attempts share one cache of measured costs.
        """
        kernels = {name: os.environ[name] for name in KERNELS if name in os.environ}
        return {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": str(self.home),
                "XDG_CACHE_HOME": str(self.home / ".cache"), "LC_ALL": "C.UTF-8", **kernels}

    def furnish(self, folder, changes):
        """Writes the configuration and its data into the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "text.txt").write_bytes(self.text)
        if self.digits:
            shutil.copy(self.digits, folder / "digits.csv")
        (folder / "base.yaml").write_text(json.dumps(config_with(changes), indent=1) + "\n")

    def once(self, key, make):
        """The result of `make`, which is called once per key."""
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._made:
                self._made[key] = make()
            return self._made[key]

    def reference(self, changes):
        """The outcome of an undisturbed run."""
        key = json.dumps(changes, sort_keys=True)

        def make():
            folder = self.root / f"reference{abs(hash(key))}"
            self.furnish(folder, changes)
            self._run(folder, "train", "base.yaml")
            return outcome(folder / "r")
        return self.once(key, make)

    def beginning(self, name):
        """The folder that holds a run in that state, as `r`."""
        begin = BEGINNINGS[name]

        def make():
            folder = self.root / name.replace(" ", "-")
            self.furnish(folder, begin.config)
            if begin.generations is None:
                self._run(folder, "train", "base.yaml")
            else:
                self._run_and_end(folder, begin)
            return folder
        return self.once(name, make)

    def _run(self, folder, *words):
        done = subprocess.run([self.program, *words], cwd=folder, env=self.environment(),
                              capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"the undisturbed run in {folder} exits with {done.returncode}: "
                               + done.stderr)

    def _run_and_end(self, folder, begin):
        num_trials = 3 if "sweep" in begin.config else 1
        command = [self.program, "train", "base.yaml", *shlex.split(SLOW_DEVICE)]
        process = subprocess.Popen(command, cwd=folder, env=self.environment(),
                                   stdout=subprocess.DEVNULL)
        try:
            while True:
                found = generations(folder / "r")
                if len(found) == num_trials and min(found.values()) >= begin.generations:
                    return
                if process.poll() is not None:
                    raise RuntimeError("the run that was to be ended ended by itself")
                threading.Event().wait(0.02)
        finally:
            process.send_signal(begin.signal)
            process.wait()
