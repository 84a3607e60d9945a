"""The command `spillway`: the C++ program of the package, without importing PyTorch first.

`import`, `export`, `eval`, `generate` and `merge`, which need Python, are here.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import signal
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
    except Exception as error:
        from spillway import Error

        if not isinstance(error, (Error, ValueError, OSError)):
            raise
        print(f"spillway: {error}", file=sys.stderr)
        return 1
    return 0


def _import(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="spillway import",
        description="Writes a language model of Hugging Face as a .spw file.")
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


def _eval(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="spillway eval", description="Evaluates the final weights of a trial.")
    parser.add_argument("run", help="folder of the run")
    parser.add_argument("trial", nargs="?", help="by default the best one")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE",
                        help="values to replace, such as devices='[{memory: 1GiB}]'")
    parser.add_argument("--data", action="append", metavar="FILE",
                        help="of the run's format; by default the run's evaluation data")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    given = parser.parse_args(arguments)
    import spillway

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # there is nothing to save
    run = spillway.open(given.run)
    found = run.evaluate(given.trial, data=given.data, overrides=given.overrides)
    values = {"loss": found.loss, **found.metrics}
    print(json.dumps(values) if given.json else
          "  ".join(f"{name} {value:.6g}" for name, value in values.items()))


def _generate(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="spillway generate", description="Lets a trained language model go on with a text.")
    parser.add_argument("run", help="folder of the run")
    parser.add_argument("trial", nargs="?", help="by default the best one")
    parser.add_argument("--prompt", required=True, metavar="TEXT")
    parser.add_argument("--max-new-tokens", type=int, default=100, metavar="N")
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T",
                        help="0, the default: the likeliest tokens; else tokens are drawn")
    parser.add_argument("--seed", type=int, default=0, help="of the draws")
    parser.add_argument("--like", metavar="FOLDER",
                        help="the model's folder of Hugging Face, with its tokenizer")
    given = parser.parse_args(arguments)
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    import spillway

    print(spillway.open(given.run).generate(
        given.prompt, trial=given.trial, like=given.like, max_new_tokens=given.max_new_tokens,
        temperature=given.temperature, seed=given.seed))


def _merge(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="spillway merge", description="Makes one run of the shares of a sweep.")
    parser.add_argument("folder", help="its folders shares/1, shares/2, ... become one run there")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE",
                        help="values to replace, such as devices='[{memory: 1GiB}]'")
    given = parser.parse_args(arguments)
    import spillway.shares

    run = spillway.shares.merge(given.folder, given.overrides, progress=False)
    print(f"{given.folder}: {len(run.trials)} trials")


_COMMANDS = {"import": _import, "export": _export, "eval": _eval, "generate": _generate,
             "merge": _merge}
