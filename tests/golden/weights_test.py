#!/usr/bin/env python3
"""The trained weights of the examples, and the output of the API example, equal weights.json: a
change that should not change bits changes none.

Usage: weights_test.py SPILLWAY [CUSTOM_MODEL [--write]]; --write writes the file. Without
CUSTOM_MODEL, the program alone is tested: in the example, the compiler chooses
the order in which the layers of the network draw their initial weights.

Runs are portable, so the weights are the same on every processor with AVX2 and FMA. Only functions
of another C library may give other bits; the test then says so and is skipped.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = pathlib.Path(__file__).with_name("weights.json")
# Those of portable numerics, for the API example.
KERNELS = {"MKL_CBWR": "COMPATIBLE", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
OF_C_LIBRARY = "numerics.scalar_functions"
CASES = {
    "quickstart": ["quickstart.yaml", "train.max_steps=2", "train.eval_batches=1"],
    "quickstart in bf16 on two devices": [
        "quickstart.yaml", "train.max_steps=2", "train.eval_batches=1", "train.dtype=bf16",
        "train.gradient_dtype=bf16", "train.data_parallel=2", "sweep.run_cap=1"],
    "digits": ["digits.yaml", "train.max_steps=10"],
    "digits by sgd": ["digits.yaml", "train.max_steps=10", "train.optimizer=sgd",
                      "train.momentum=0.9", "sweep.run_cap=1"],
    "resnet": ["resnet.yaml", "train.max_steps=4", "devices=[{memory: 2MiB}]"],
}


def environment(folder):
    return {**os.environ, **KERNELS, "XDG_CACHE_HOME": str(folder / "cache")}


def call(folder, *command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          check=False, env=environment(folder))
    if done.returncode != 0:
        raise RuntimeError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def write_data(folder):
    """The same text and digits on every machine."""
    numbers = random.Random(19)
    words = ["".join(numbers.choice("abcdefgh") for _ in range(numbers.randint(1, 7)))
             for _ in range(50)]
    (folder / "data").mkdir()
    (folder / "data/text").write_text(" ".join(numbers.choice(words) for _ in range(8000)))
    (folder / "data/digits").write_text("".join(
        ",".join(str(numbers.randint(0, 16)) for _ in range(64)) + f",{numbers.randint(0, 9)}\n"
        for _ in range(600)))


def fingerprint(folder):
    """The fingerprint of the kernels in a checkpoint's contract."""
    manifest = next(folder.glob("*/trials/*/checkpoints/*/MANIFEST")).read_text(encoding="utf-8")
    return sorted(line for line in manifest.splitlines() if "numerics." in line)


def weights(folder, program, case):
    file, *overrides = CASES[case]
    data = folder / "data" / ("text" if file == "quickstart.yaml" else "digits")
    report = json.loads(call(folder, program, "train", ROOT / "examples" / file, "--json",
                             "numerics=portable", f"output_dir={folder / case}",
                             f"data.path={data}", *overrides))
    return {trial["name"]: trial["weights_xxh3"] for trial in report["trials"]}


def measured(program, custom_model=None):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_data(folder)
        trained = {case: weights(folder, program, case) for case in CASES}
        result = {"numerics": fingerprint(folder), "weights": trained}
        if custom_model:
            result["custom_model"] = call(folder, custom_model).splitlines()
        return result


def main():
    now = measured(*(os.path.abspath(argument) for argument in sys.argv[1:3]))
    if sys.argv[3:] == ["--write"]:
        TABLE.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
        return 0
    then = json.loads(TABLE.read_text(encoding="utf-8"))
    others = [line for line in now["numerics"] if line not in then["numerics"]]
    if any(OF_C_LIBRARY in line for line in others):
        print(f"skipped: the C library computes {others}, not {then['numerics']}")
        return SKIPPED
    for line in others:
        print(f"not portable: {line}")
    wrong = [case for case in CASES if now["weights"][case] != then["weights"][case]]
    if now.get("custom_model", then["custom_model"]) != then["custom_model"]:
        wrong.append("custom_model")
    for case in wrong:
        print(f"{case}: {then['weights'].get(case, then['custom_model'])}\n"
              f"  is now {now['weights'].get(case, now['custom_model'])}")
    return 1 if wrong or others else 0


if __name__ == "__main__":
    sys.exit(main())
