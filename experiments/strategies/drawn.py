"""Drawn strategies of all families: do they give the bits of one device?"""

import collections
import itertools
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

from gpt_strategies import NODES, PIECES, SMALL, placed
import pictures
import spillway_run
import tables

STEPS = 5


def families(text, digits, folder):
    """By name: model, data, and names of layers."""
    of_text, of_digits = ({"format": "bytes", "path": text}, {"format": "digits", "path": digits})
    pictures.write(folder / "28.safetensors", samples=64, channels=1, size=28, classes=10)
    blocks = [f"h.{block}.{part}" for block in range(SMALL["num_hidden_layers"])
              for part in ("ln_1", "attn", "ln_2", "mlp")]
    found = {
        "gpt": ({"family": "gpt", "dropout": 0.1, **SMALL, "pieces": PIECES}, of_text,
                ["embed", *blocks, "ln_f", "head"]),
        "cnn": ({"family": "cnn", "preset": "lenet", "num_channels": 1, "image_size": 28,
                 "num_classes": 10, "pieces": {"channels": 2}},
                {"format": "tensors", "path": str(folder / "28.safetensors")},
                ["conv1", "pool1", "conv2", "pool2", "fc1", "fc2", "fc3"]),
        "rnn": ({"family": "rnn", "preset": "rnnlm", "vocab_size": 256, "hidden_size": 16,
                 "max_position_embeddings": 10, "chunk_steps": 5, "pieces": {"vocabulary": 4}},
                of_text, ["embed", "lstm.0.*", "lstm.1.0", "lstm.1.1", "output", "head"]),
    }
    if digits:
        found["mlp"] = ({"family": "mlp", "hidden_size": 32, "pieces": {"hidden": 4}}, of_digits,
                        ["h.0", "h.1", "head"])
        found["resnet"] = ({"family": "resnet", "hidden_sizes": [8, 16], "depths": [1, 1]},
                           of_digits, ["conv1", "layer1.*", "layer2.0.conv1", "layer2.0.conv2"])
    return found


def config_of(model, data, **train):
    return {"devices": [{"kind": "cpu", "memory": "64MiB"}], "host_memory": "1GiB", "model": model,
            "data": data,
            "train": {"batch_size": 2 * NODES, "virtual_nodes": NODES, "learning_rate": 1e-3,
                      "max_steps": STEPS, "eval_batches": 1, **train}}


def strategy_of(draw, layers):
    tracks = draw.randint(1, 4)
    place = [{"layers": "*", "tracks": [draw.randrange(tracks)]}]
    while layers:
        taken = draw.randint(1, len(layers))
        pieces = draw.randint(1, 4)
        entries = pieces * draw.randint(1, 3)
        place.append({"layers": layers[:taken], "pieces": pieces, "set": draw.choice([0, 0, 0, 1]),
                      "tracks": [draw.randrange(tracks) for _ in range(entries)]})
        layers = layers[taken:]
    return {"place": place, "order": {"first": draw.choice(["forward", "backward"]),
                                      "chunk": draw.randint(0, 3), "window": draw.randint(0, 4),
                                      "graphs": draw.choice(["keep", "keep", "recompute"]),
                                      "stage_weights": draw.choice([0, 0, 1, 4096, 65536])}}


def devices_of(draw, least_bytes):
    """One to four devices with little more memory than a unit needs."""
    memory = least_bytes * draw.randint(100, 200) // 100
    return [{"kind": "cpu", "memory": memory} for _ in range(draw.randint(1, 4))]


def train_killed(program, config, draw, devices):
    """The hash after a kill between two steps or within one, and `resume` with other devices; None
    if the run ended before."""
    slow = [{**device, "imitate": {"slowdown": 20}} for device in config["devices"]]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run = folder / "run"
        (folder / "config.yaml").write_text(json.dumps(
            {**config, "devices": slow, "checkpoint": {"every_steps": 1}, "output_dir": str(run)}))
        process = subprocess.Popen([program, "train", str(folder / "config.yaml")],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        saved = draw.randint(1, STEPS - 2)
        while process.poll() is None and saved_in(run) < saved:
            time.sleep(0.001)
        time.sleep(draw.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:
            return None
        done = subprocess.run([program, "resume", str(run), f"devices={json.dumps(devices)}"],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise spillway_run.Failed(done.stderr)
        return spillway_run.hash_of(spillway_run.read(run, itertools.repeat((0, 0))))


def saved_in(run):
    log = run / "events.jsonl"
    return log.read_text().count('"event":"saved"') if log.exists() else 0


def try_one(program, config, strategy, seed, draw, counts):
    """The hash of the weights. Every third seed loses a device, every other third is killed."""
    least = placed(config, strategy, lambda c: spillway_run.plan(program, c))
    least_bytes = least[0]["smallest_budget_bytes"]
    devices = devices_of(draw, least_bytes)
    if seed % 3 == 1:
        later = devices_of(draw, least_bytes)
        found = placed({**config, "devices": devices}, strategy,
                       lambda c: train_killed(program, c, draw, later))
        counts["killed"] += found is not None
        if found is not None:
            return found
    if len(devices) > 1 and seed % 3 == 0:
        devices[-1]["imitate"] = {"fault": {"kind": "fail", "after_ops": draw.randint(1, 60)}}
    run = placed({**config, "devices": devices}, strategy,
                 lambda c: spillway_run.train(program, c))
    used = run.plan["devices"]
    counts["lost"] += any(event["event"] == "lost" for event in run.events)
    counts["tight"] += sum(device["evictions"]["actual"] for device in used) > 0
    counts["kept"] += sum(device["kept_graphs"]["actual"] for device in used) > 0
    return spillway_run.hash_of(run)


def print_bits(program, text, digits, number):
    """Whether all of `number` drawn strategies have the bits of one device, and controls have
    others."""
    tables.print_head(["family", "drawn strategies", "with the bits of one device",
                       "of these evicted copies", "kept graphs", "lost a device",
                       "were killed and resumed", "control: one reduction group"])
    right = True
    with tempfile.TemporaryDirectory() as place:
        known = families(text, digits, pathlib.Path(place))
        for nth, (family, (model, data, layers)) in enumerate(known.items()):
            config = config_of(model, data)
            alone = spillway_run.hash_of(spillway_run.train(program, config))
            other = spillway_run.hash_of(
                spillway_run.train(program, config_of(model, data, reduction_groups=1)))
            counts = collections.Counter()
            seeds = range(1 + nth, 1 + number, len(known))
            for seed in seeds:
                draw = random.Random(seed)
                found = try_one(program, config, strategy_of(draw, layers), seed // len(known),
                                draw, counts)
                counts["equal"] += found == alone
                if found != alone:
                    print(f"{family}, seed {seed}: other bits", file=sys.stderr)
            tables.print_row([family, str(len(seeds)),
                              *(str(counts[what]) for what in ("equal", "tight", "kept", "lost",
                                                               "killed")),
                              "other bits" if other != alone else "THE SAME BITS"])
            right &= counts["equal"] == len(seeds) and other != alone
    return right
