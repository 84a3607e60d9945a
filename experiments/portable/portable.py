#!/usr/bin/env python3
"""Bits of portable numerics on other processors, by emulation, and their cost; prints Markdown.

Usage: portable.py BIN TEXT [DIGITS] [--brief] [--only TABLE] [--trials NAME...]
BIN: folder of the programs. PYTHONPATH must contain PyTorch. Exits with 1 if a trial has other bits
on another processor, and with 77 without QEMU.
"""

import concurrent.futures
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import spillway_run  # noqa: E402
import tables  # noqa: E402

EMULATOR = "qemu-x86_64"
# Two of Intel, one each of AMD and Hygon.
PROCESSORS = ["Haswell", "Skylake-Client", "EPYC-Rome", "Dhyana"]
# Each makes a library choose other kernels on this machine, unless numerics are portable.
LEVELS = ["ATEN_CPU_CAPABILITY=default", "ATEN_CPU_CAPABILITY=avx2", "ATEN_CPU_CAPABILITY=avx512",
          "MKL_ENABLE_INSTRUCTIONS=SSE4_2", "MKL_ENABLE_INSTRUCTIONS=AVX2",
          "MKL_ENABLE_INSTRUCTIONS=AVX512", "MKL_CBWR=COMPATIBLE", "MKL_CBWR=AVX2",
          "MKL_CBWR=AVX512", "ONEDNN_MAX_CPU_ISA=SSE41", "ONEDNN_MAX_CPU_ISA=AVX2",
          "ONEDNN_MAX_CPU_ISA=AVX512_CORE"]


def trials(text, digits):
    """By name: model, data and values of `train`."""
    of_text, of_digits = ({"format": "bytes", "path": text}, {"format": "digits", "path": digits})
    gpt = {"family": "gpt", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
           "max_position_embeddings": 32, "vocab_size": 256, "dropout": 0.1}
    return {
        "mlp": ({"family": "mlp", "num_hidden_layers": 2, "hidden_size": 96}, of_digits, {}),
        "gpt": (gpt, of_text, {}),
        "small gpt in bf16": ({**gpt, "num_hidden_layers": 1, "hidden_size": 32,
                               "max_position_embeddings": 16}, of_text, {"dtype": "bf16"}),
        "cnn": ({"family": "cnn", "num_channels": 1, "image_size": 8, "num_classes": 10,
                 "input_scale": 0.0625, "layers": [
                     {"type": "conv", "out_channels": 16, "kernel_size": 3, "batch_norm": True,
                      "activation": "gelu"},
                     {"type": "max_pool", "kernel_size": 2},
                     {"type": "linear", "out_features": 64, "activation": "tanh"},
                     {"type": "linear", "out_features": 10}]}, of_digits, {}),
        "resnet": ({"family": "resnet", "hidden_sizes": [8, 16], "depths": [1, 1]}, of_digits, {}),
        "rnn": ({"family": "rnn", "vocab_size": 256, "hidden_size": 64, "chunk_steps": 8,
                 "max_position_embeddings": 32}, of_text, {}),
    }


def config_of(model, data, train, numerics, batch_size=16, steps=4):
    return {"devices": [{"kind": "cpu", "memory": "1GiB"}], "numerics": numerics, "model": model,
            "data": data,
            "train": {"batch_size": batch_size, "virtual_nodes": 4, "learning_rate": 1e-3,
                      "max_steps": steps, "eval_batches": 1, **train}}


class Place:
    """Where a trial trains: this machine, an emulated processor, or with a variable."""

    def __init__(self, processor="", variable=""):
        self.name = f"on a {processor}" if processor else variable
        self._prefix = [EMULATOR, "-cpu", processor] if processor else []
        self._variables = dict([variable.split("=")]) if variable else {}

    def run(self, command, **variables):
        return subprocess.run([*self._prefix, *command], capture_output=True, text=True,
                              check=False, env={**os.environ, **self._variables, **variables})


HERE_PLACE = Place()


def computed(program, place, config):
    """The hash of the weights, and those of the probes of kernels."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "config.yaml").write_text(json.dumps({**config, "output_dir": f"{name}/run"}))
        # The measured costs of another processor mean nothing here.
        done = place.run([program, "train", str(folder / "config.yaml")], XDG_CACHE_HOME=name)
        if done.returncode != 0:
            raise spillway_run.Failed(f"{place.name}: {done.stderr}")
        events = map(json.loads, (folder / "run/events.jsonl").read_text().splitlines())
        weights = next(event["weights_xxh3"] for event in events if "weights_xxh3" in event)
        manifest = next(folder.glob("run/trials/*/checkpoints/*/MANIFEST")).read_text()
        return weights, sorted(line for line in manifest.splitlines() if "numerics." in line)


def verdict(here, other):
    if other == here:
        return "equal"
    return "other probes" if other[0] == here[0] else f"{other[0][:8]}"


def places_table(program, configs, controls, places):
    """Whether weights and probes of each trial are equal everywhere, and a control's are not."""
    everything = {**configs, **controls}
    tables.print_head(["weights", *everything])
    different = set()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        def row(place):
            return list(pool.map(lambda config: computed(program, place, config),
                                 everything.values()))
        here = row(HERE_PLACE)
        tables.print_row(["on this machine", *(weights[:8] for weights, _ in here)])
        for place in places:
            others = row(place)
            different |= {name for name, own, other in zip(everything, here, others)
                          if other != own}
            tables.print_row([place.name, *map(verdict, here, others)])
    return different == set(controls)


def samples_of_operators(place, python, folder):
    """By name of an operator: the number of samples, and hashes of results and gradients."""
    results, start = {}, ""
    while True:
        command = [python, str(HERE / "operators.py"), start]
        done = place.run(command, PYTHONPATH=folder)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        results.update({line["name"]: line for line in lines if "results" in line})
        if done.returncode == 0:
            return results
        start = lines[-1]["name"]  # the emulator ended in it; go on behind


def script(*command):
    """The last line that a script of the project prints."""
    done = subprocess.run(["bash", *command], cwd=HERE.parent.parent, stdout=subprocess.PIPE,
                          text=True, check=True)
    return done.stdout.splitlines()[-1]


def operators_table():
    python = script("scripts/python.sh")
    packages = script("scripts/data.sh", "operators")  # the Python that has them
    folder = next(pathlib.Path(packages).parent.parent.glob("lib/*/site-packages"))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        here, other = pool.map(lambda p: samples_of_operators(p, python, str(folder)),
                               [HERE_PLACE, Place("Haswell")])
    compared = [name for name in here if name in other]
    differ = [name for name in compared if here[name] != other[name]]
    tables.print_head(["operators", "samples", "with other bits on a Haswell"])
    tables.print_row([str(len(compared)), str(sum(here[name]["samples"] for name in compared)),
                      f"{len(differ)}: {', '.join(differ)}" if differ else "0"])


def cost_table(program, configs, rounds):
    tables.print_head(["trial", "native, ms a step", "portable, ms a step", "portable / native"])
    for name, (model, data, train) in configs.items():
        steps_s = {"native": [], "portable": []}
        for _ in range(rounds):
            for numerics, seconds in steps_s.items():
                config = config_of(model, data, train, numerics, batch_size=32, steps=8)
                seconds.append(spillway_run.step_seconds(spillway_run.train(program, config,
                                                                            core=0)))
        native, portable = ([1e3 * s for s in seconds] for seconds in steps_s.values())
        ratio = statistics.median(portable) / statistics.median(native)
        tables.print_row([name, tables.spread(native, 0), tables.spread(portable, 0),
                          f"{ratio:.2f}"])


def costly(text, digits):
    of_text = {"format": "bytes", "path": text}
    return {
        "gpt, 4 blocks of 256": ({"family": "gpt", "num_hidden_layers": 4, "hidden_size": 256,
                                  "num_attention_heads": 8, "max_position_embeddings": 64,
                                  "vocab_size": 256}, of_text, {}),
        "rnn, 2 layers of 256": ({"family": "rnn", "vocab_size": 256, "hidden_size": 256,
                                  "max_position_embeddings": 64}, of_text, {}),
        "resnet, 3 stages from 32": ({"family": "resnet", "hidden_sizes": [32, 64, 128]},
                                     {"format": "digits", "path": digits}, {}),
        "mlp, 3 layers of 1024": ({"family": "mlp", "num_hidden_layers": 3, "hidden_size": 1024},
                                  {"format": "digits", "path": digits}, {}),
    }


def chosen(configs, names):
    return {name: config for name, config in configs.items() if not names or name in names}


def main():
    parser = spillway_run.parser("one trial and one processor")
    wanted = ["processors", "levels", "operators", "cost"]
    parser.add_argument("--only", choices=wanted)
    parser.add_argument("--trials", nargs="+", help="of the tables of processors and levels")
    arguments = parser.parse_args()
    if shutil.which(EMULATOR) is None:
        print(f"{EMULATOR} is missing", file=sys.stderr)
        return 77
    program = os.path.abspath(arguments.bin) + "/spillway"
    text, digits = (os.path.abspath(path) for path in (arguments.text, arguments.digits or "."))
    small = trials(text, digits)
    configs = {name: config_of(*trial, "portable") for name, trial in small.items()}
    controls = {"control: gpt, native": config_of(*small["gpt"], "native")}
    if arguments.brief:
        places = [Place("Haswell"), Place(variable=LEVELS[0])]
        return 0 if places_table(program, {"gpt": configs["gpt"]}, {}, places) else 1
    for name in arguments.trials or []:
        if name not in {**configs, **controls}:
            parser.error(f"--trials: there is no {name!r}; there are "
                         f"{', '.join([*configs, *controls])}")
    configs, controls = (chosen(each, arguments.trials) for each in (configs, controls))
    right = True
    for table in [arguments.only] if arguments.only else wanted:
        print(f"## {table.capitalize()}\n")
        if table == "processors":
            right &= places_table(program, configs, controls, [Place(p) for p in PROCESSORS])
        if table == "levels":
            right &= places_table(program, configs, controls,
                                  [Place(variable=level) for level in LEVELS])
        if table == "operators":
            operators_table()
        if table == "cost":
            cost_table(program, costly(text, digits), rounds=3)
        print()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
