"""Runs `spillway train` in a temporary folder and returns its outputs."""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import time
import types


class Failed(Exception):
    """The program exited with a code other than 0."""


def parser(brief):
    """The arguments of an experiment: BIN, the folder of the programs, TEXT, perhaps DIGITS, and
    --brief, of which `brief` says what it does."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("bin")
    arguments.add_argument("text")
    arguments.add_argument("digits", nargs="?")
    arguments.add_argument("--brief", action="store_true", help=brief)
    return arguments


def train(program, config, environment=None, core=None):
    """The outputs of a run of `config`, a dict like the YAML file: plan (planned and actual
    values), events, trace, and the size of its largest checkpoint. Events have `cpu_s`, the CPU
    time of the process when their line appeared, and `system_s`, the part of the system.
    `core`: the only core that it may use.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        (place / "config.yaml").write_text(json.dumps({**config, "output_dir": f"{folder}/run"}))
        command = [program, "train", str(place / "config.yaml")]
        if core is not None:
            command = ["taskset", "-c", str(core), *command]
        with open(place / "errors", "w+") as errors:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors,
                                       env={**os.environ, **(environment or {})})
            seen = watch(process, place / "run/events.jsonl")
            if process.returncode != 0:
                errors.seek(0)
                raise Failed(errors.read())
        return read(place / "run", seen)


def planned(program, config, *options):
    """What `spillway plan --json` says."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(config, file)
        file.flush()
        done = subprocess.run([program, "plan", file.name, "--json", *options],
                              capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def plan(program, config):
    """What it says of the trials."""
    return planned(program, config)["trials"]


def search(program, config, strategy_file, proposals, *options):
    """What it says of a search, which writes the strategy to a new file."""
    return planned(program, config, "--search", str(strategy_file), "--proposals",
                   str(proposals), *options)["search"]


def compared(search, number=0):
    """The strategies that fit, of the model with this number."""
    return [each for each in search["models"][number]["compared"] if "step_s" in each]


def with_found(config, search):
    """The configuration with what the search found."""
    found = dict(config)
    for override in search["overrides"]:
        path, value = override.split("=", 1)
        section, key = path.split(".")
        found[section] = {**found.get(section, {}), key: int(value) if value.isdigit() else value}
    return found


def step_seconds(run, process="real"):
    """Seconds from the first commit to the last, per step; `process` is its name in the trace."""
    number = {"real": 1, "planned": 2}[process]
    ends = sorted(span["ts"] + span["dur"] for span in run.trace
                  if span["ph"] == "X" and span["pid"] == number and span["name"] == "commit")
    return (ends[-1] - ends[0]) / (len(ends) - 1) / 1e6


def read(output, seen):
    events = [json.loads(line) for line in (output / "events.jsonl").read_text().splitlines()]
    for event, (user_s, system_s) in zip(events, seen):
        event.update(cpu_s=user_s + system_s, system_s=system_s)
    return types.SimpleNamespace(plan=json.loads((output / "plan.json").read_text()),
                                 events=events, generation_bytes=generation_bytes(output),
                                 trace=json.loads((output / "trace.json").read_text())["traceEvents"])


def generation_bytes(output):
    """The size in bytes; 0 without checkpoints."""
    return max((sum(file.stat().st_size for file in folder.iterdir())
                for folder in output.glob("trials/*/checkpoints/*")), default=0)


def watch(process, log):
    """Waits until the process ends; returns its CPU time when each line of the log appeared."""
    seen, size = [], 0
    while process.poll() is None:
        time.sleep(0.005)
        if log.exists() and log.stat().st_size != size:
            cpu_s = cpu_seconds(process.pid)
            size = log.stat().st_size
            seen += [cpu_s] * (log.read_bytes().count(b"\n") - len(seen))
    return seen


def cpu_seconds(pid):
    """(user, system) time of all threads."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:13]]


def hashes_of(run):
    """Of the weights, by trial."""
    return {event["trial"]: event["weights_xxh3"] for event in run.events
            if "weights_xxh3" in event}


def hash_of(run):
    """Of the weights of the trial that has ended first."""
    return next(iter(hashes_of(run).values()))


def steps_of(run):
    return [event for event in run.events if event["event"] == "step"]
