"""The command `spillway`: the C++ program of the package, without importing PyTorch first.

`import` and `export`, which need Python, are here.
"""

import argparse
import importlib.util
import os
import pathlib
import sys
from collections.abc import Callable


def main() -> None:
    """Becomes the program, with the arguments of this process, unless the command is in Python."""
    package = importlib.util.find_spec("spillway")
    if package is None or package.origin is None:
        sys.exit("spillway: the package spillway is not installed")
    command = _COMMANDS.get(sys.argv[1]) if len(sys.argv) > 1 else None
    if command:
        sys.exit(_run(command, sys.argv[2:]))
    program = pathlib.Path(package.origin).parent / "bin" / "spillway"
    os.execv(program, ["spillway", *sys.argv[1:]])


def _run(command: Callable[[list[str]], None], arguments: list[str]) -> int:
    try:
        command(arguments)
    except (ValueError, OSError) as error:
        print(f"spillway: {error}", file=sys.stderr)
        return 1
    return 0


def _import(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="spillway import", description="Writes a language model of Hugging Face as a .spw file.")
    parser.add_argument("folder", help="with config.json and safetensors files")
    parser.add_argument("-o", "--output", required=True, metavar="FILE",
                        help="the .spw file, for model.path")
    parser.add_argument("--batch-size", type=int, default=1, help="samples of a virtual node")
    parser.add_argument("--sequence-length", type=int, default=128, help="tokens of a sample")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    given = parser.parse_args(arguments)
    import spillway

    model = spillway.from_pretrained(
        given.folder, path=given.output, batch_size=given.batch_size,
        sequence_length=given.sequence_length, dtype=given.dtype)
    print(f"{given.output}: {len(model.layers)} layers, for virtual nodes of {model.batch_size} "
          f"samples of {model.row.elements} tokens")


def _export(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="spillway export", description="Writes a trained trial for other programs.")
    parser.add_argument("run", help="folder of the run")
    parser.add_argument("trial", nargs="?", help="by default the best one")
    parser.add_argument("--to", nargs=2, required=True, metavar=("hf", "FOLDER"),
                        help="hf: a folder that transformers, or PEFT for an adapter, loads")
    parser.add_argument("--like", metavar="FOLDER",
                        help="the model's folder of Hugging Face; a built-in gpt needs none")
    given = parser.parse_args(arguments)
    kind, folder = given.to
    if kind != "hf":
        parser.error(f"--to has '{kind}', must be hf")
    import spillway

    spillway.open(given.run).save_pretrained(folder, trial=given.trial, like=given.like)
    print(f"{folder}: written")


_COMMANDS = {"import": _import, "export": _export}
