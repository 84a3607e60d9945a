#!/usr/bin/env python3
"""A convolutional network divided by channels and by the rows of its pictures; prints a Markdown
table.

Usage: rows.py BIN TEXT [DIGITS] [--brief], BIN: folder of the programs. Exits with 1 if a run has
other bits than it should.
"""

import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import pictures  # noqa: E402
import spillway_run  # noqa: E402
import tables  # noqa: E402

AMPLE = "8GiB"
CLASSES = 100

# Six convolutions of 3 x 3 with batch normalization; each second one ends with a pooling.
CHANNELS = (16, 16, 32, 32, 64, 64)


def network():
    layers = []
    for number, channels in enumerate(CHANNELS):
        layers.append({"type": "conv", "name": f"conv{number}", "out_channels": channels,
                       "kernel_size": 3, "padding": 1, "batch_norm": "true", "activation": "relu"})
        if number % 2 == 1:
            layers.append({"type": "max_pool", "name": f"pool{number}", "kernel_size": 2})
    return [*layers, {"type": "global_avg_pool"}, {"type": "linear", "out_features": CLASSES}]


def print_table(program, folder, side, numbers, proposals):
    """Whether all runs had the bits that they should have."""
    path = folder / "pictures.safetensors"
    pictures.write(path, samples=16, channels=3, size=side, classes=CLASSES)
    ample = {"kind": "cpu", "memory": AMPLE}
    config = {"devices": [ample] * 2, "host_memory": AMPLE,
              "data": {"format": "tensors", "path": str(path)},
              "train": {"batch_size": 1, "virtual_nodes": 1, "learning_rate": 1e-4,
                        "max_steps": 10, "eval_batches": 1}}
    ways = [{}, *({"channels": number} for number in numbers), *({"height": n} for n in numbers)]
    tables.print_head(["divided by", "least budget, MiB", "whole / divided", "compute of a step, ms",
                       "fastest on 2 devices", "planned, ms", "trained", "bits"])
    least, hashes = {}, []
    for number, way in enumerate(ways):
        config["model"] = {"family": "cnn", "image_size": side, "num_classes": CLASSES,
                           "layers": network(), "pieces": way}
        planned = spillway_run.plan(program, config)[0]
        least[number] = planned["smallest_budget_bytes"]
        found = spillway_run.search(program, config, folder / f"{number}.yaml", proposals)
        tight = {**config, "devices": [{"kind": "cpu", "memory": least[number]}]}
        runs = [spillway_run.train(program, each)
                for each in (tight, spillway_run.with_found(config, found))]
        weights, others = map(spillway_run.hash_of, runs)
        equal = weights == others and weights not in hashes
        hashes.append(weights)
        best = found["best"]
        tables.print_row([", ".join(f"{key}: {value}" for key, value in way.items()) or "nothing",
                          f"{least[number] / 2**20:,.1f}", f"{least[0] / least[number]:.2f}",
                          f"{1e3 * planned['compute_s_per_step']:.0f}",
                          "a strategy" if best["has_strategy"] else best["name"],
                          f"{1e3 * best['step_s']:.0f}",
                          f"{1e3 * spillway_run.step_seconds(runs[1]):.0f}",
                          "equal" if equal else "DIFFERENT"])
        if not equal:
            return False
    return True


def main():
    arguments = spillway_run.parser("small pictures, few pieces").parse_args()
    program = os.path.abspath(arguments.bin) + "/spillway"
    side, numbers, proposals = (32, [2], 20) if arguments.brief else (224, [2, 4, 8], 2000)
    with tempfile.TemporaryDirectory() as folder:
        return 0 if print_table(program, pathlib.Path(folder), side, numbers, proposals) else 1


if __name__ == "__main__":
    sys.exit(main())
