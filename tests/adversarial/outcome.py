"""The results of a run that must not depend on where it was trained and how often it was
interrupted.
"""

import csv
import hashlib

OF_TIME = ("tokens_per_s", "time_s")


def rows_of(path, left_out=()):
    with open(path, newline="", encoding="utf-8") as file:
        return [{key: value for key, value in row.items() if key not in left_out}
                for row in csv.DictReader(file)]


def weights_of(folder):
    """By trial, the hash of its file of final weights."""
    return {file.parent.name: hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(folder.glob("trials/*/weights.safetensors"))}


def outcome(folder):
    """Weights, every row of metrics, the end of each trial."""
    return {
        "weights": weights_of(folder),
        "metrics": {file.parent.name: rows_of(file, OF_TIME)
                    for file in sorted(folder.glob("trials/*/metrics.csv"))},
        "trials": [tuple(row[key] for key in ("trial", "state", "steps", "final_loss",
                                              "weights_xxh3", "reason"))
                   for row in rows_of(folder / "results.csv")],
    }


def difference(found, wanted):
    """A sentence, or nothing if they are equal."""
    if found["weights"] != wanted["weights"]:
        return f"the weights are {found['weights']}, not {wanted['weights']}"
    for trial, rows in wanted["metrics"].items():
        for number, row in enumerate(rows):
            other = found["metrics"].get(trial, [])
            if number >= len(other) or other[number] != row:
                there = other[number] if number < len(other) else "missing"
                return f"row {number} of the metrics of {trial} is {there}, not {row}"
    if found != wanted:
        return f"the outcome is {found['trials']}, not {wanted['trials']}"
    return ""
