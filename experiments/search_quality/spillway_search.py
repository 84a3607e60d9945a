"""Searches with `spillway train`, and what its log says about that."""

import json
import pathlib
import subprocess
import tempfile
import time


class Failed(Exception):
    """The program exited with a code other than 0."""


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(done.stderr)
    return done.stdout


def draws(program, config):
    """The drawn values of each trial, which are its name."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(config, file)
        file.flush()
        trials = json.loads(run([program, "plan", file.name, "--json"]))["trials"]
    return [{key: float(value) for key, value in
             (part.split("=") for part in trial["name"].split(","))} for trial in trials]


def train(program, config):
    """(events, seconds from the start of the program to its time 0, seconds in all)."""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        (place / "config.yaml").write_text(json.dumps({**config, "output_dir": f"{folder}/run"}))
        begin = time.time()
        run([program, "train", str(place / "config.yaml")])
        wall_s = time.time() - begin
        log = place / "run/events.jsonl"
        events = [json.loads(line) for line in log.read_text().splitlines()]
        last = max(event["time_s"] for event in events if "time_s" in event)
        return events, max(log.stat().st_mtime - last - begin, 0), wall_s


def search(program, config):
    """In the form of ray_search.search()."""
    events, zero_s, wall_s = train(program, config)
    first = min(event["time_s"] for event in events if event.get("state") == "running")
    evals, steps_of = [], {}
    for event in events:
        if event["event"] != "eval":
            continue
        trained = event["step"] - steps_of.get(event["trial"], 0)
        if trained > 0:
            evals.append((zero_s + event["time_s"], event["trial"], event["step"], event["loss"],
                          trained))
            steps_of[event["trial"]] = event["step"]
    return {"start_s": zero_s + first, "wall_s": wall_s, "evals": evals,
            "steps": sum(event["event"] == "step" for event in events)}
