"""A sweep that is stopped, and the time until it continues."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import types


def config_of(trials, brief):
    rates = [1e-4 * (trial + 1) for trial in range(trials)]
    return {"devices": [{"memory": "1GiB"}],
            "model": {"num_hidden_layers": 1 if brief else 4, "hidden_size": 32 if brief else 128,
                      "num_attention_heads": 4, "max_position_embeddings": 64},
            "train": {"batch_size": 4, "virtual_nodes": 4, "max_steps": 2000},
            "sweep": {"parameters": {"train.learning_rate": {"values": rates}}}}


class Lines:
    """The events that are added to a log from now on."""

    def __init__(self, log):
        self.log, self.offset = log, log.stat().st_size if log.exists() else 0

    def more(self):
        """The events as objects; an incomplete line comes later."""
        if not self.log.exists():
            return []
        with open(self.log, "rb") as file:
            file.seek(self.offset)
            whole = file.read().rpartition(b"\n")[0]
        self.offset += len(whole) + 1 if whole else 0
        return [json.loads(line) for line in whole.splitlines()]


def follow(command, log, environment, is_enough):
    """Runs it until `is_enough` holds for the events so far, then interrupts it. Events have
    `after_s`, the time from the start of the process until their line appeared.
    """
    lines, events, begin = Lines(log), [], time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               env={**os.environ, **environment})
    while not is_enough(events):
        if process.poll() is not None:
            raise RuntimeError(process.stderr.read().decode())
        time.sleep(0.005)
        after_s = time.monotonic() - begin
        events += [{**event, "after_s": after_s} for event in lines.more()]
    process.send_signal(signal.SIGINT)
    process.communicate()
    return events


def all_stepped(trials):
    return lambda events: len({event["trial"] for event in events
                               if event["event"] == "step"}) == trials


def last_resumed_s(events, trials):
    after_s = [event["after_s"] for event in events if event["event"] == "resumed"]
    if len(after_s) != trials:
        raise RuntimeError(f"{len(after_s)} of {trials} trials were resumed")
    return max(after_s)


def checkpoint_bytes(output):
    """The bytes of the newest generation of each trial, which a resume reads."""
    total = 0
    for folder in output.glob("trials/*/checkpoints"):
        newest = max(path for path in folder.iterdir() if path.name.isdigit())
        total += sum(file.stat().st_size for file in newest.iterdir())
    return total


def measure(program, text, environment, brief):
    trials, repeats = (3, 1) if brief else (20, 3)
    resumes = types.SimpleNamespace(trials=trials, resumed_s=[], step_s=[])
    with tempfile.TemporaryDirectory() as name:
        folder, output = pathlib.Path(name), pathlib.Path(name) / "run"
        config = {**config_of(trials, brief), "data": {"path": text, "eval_fraction": 0},
                  "output_dir": str(output)}
        (folder / "config.yaml").write_text(json.dumps(config))
        log = output / "events.jsonl"
        follow([program, "train", folder / "config.yaml"], log, environment, all_stepped(trials))
        for _ in range(repeats):
            resumes.checkpoint_bytes = checkpoint_bytes(output)
            events = follow([program, "resume", output], log, environment,
                            lambda events: any(event["event"] == "step" for event in events))
            resumes.resumed_s.append(last_resumed_s(events, trials))
            resumes.step_s.append(next(event["after_s"] for event in events
                                       if event["event"] == "step"))
    return resumes
