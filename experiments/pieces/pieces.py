#!/usr/bin/env python3
"""Memory, bits and speed of models whose layers are divided into pieces; prints Markdown tables.

Usage: pieces.py BIN TEXT [DIGITS] [--brief] [--lstms], BIN: folder of the programs. Exits with 1 if
a run on a small device has other bits than one with room, or if other pieces have the same.
"""

import os
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import spillway_run  # noqa: E402
import tables  # noqa: E402

AMPLE = "8GiB"
GPT2 = {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12,
        "max_position_embeddings": 1024, "vocab_size": 50257}
TINY = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 8,
        "max_position_embeddings": 16, "vocab_size": 512}
SHAPES = [(256, 256), (512, 512)]  # channels, tokens
LSTMS = {"num_hidden_layers": 2, "hidden_size": 1024, "max_position_embeddings": 20,
         "vocab_size": 8192}
TINY_LSTMS = {"num_hidden_layers": 2, "hidden_size": 32, "max_position_embeddings": 4,
              "vocab_size": 512}


def gpt(model, number):
    pieces = {"attention": number, "mlp": number, "vocabulary": number}
    return {"family": "gpt", "dropout": 0.1, **model, "pieces": pieces}


def lstms(model, chunk_steps, number):
    return {"family": "rnn", "dropout": 0, **model, "chunk_steps": chunk_steps,
            "pieces": {"vocabulary": number, "hidden": number}}


def config_of(model, text, steps, samples, virtual_nodes=None):
    return {"devices": [{"kind": "cpu", "memory": AMPLE}], "host_memory": AMPLE, "model": model,
            "data": {"format": "bytes", "path": text},
            "train": {"batch_size": samples, "virtual_nodes": virtual_nodes or samples,
                      "reduction_groups": 1, "learning_rate": 1e-4, "max_steps": steps,
                      "eval_batches": 1}}


def losses_of(run):
    return [event["loss"] for event in spillway_run.steps_of(run)]


def memory_table(program, what, configs):
    """Prints a row for each of `configs`, by label; the first is undivided. Returns whether all runs
    had the bits that they should have."""
    tables.print_head([what, "least budget, MiB", "undivided / divided", "host memory, MiB",
                       "shards there", "loss of step 2", "on that device"])
    least, hashes, right = [], [], True
    for label, config in configs.items():
        least.append(spillway_run.plan(program, config)[0]["smallest_budget_bytes"])
        tight = {**config, "devices": [{"kind": "cpu", "memory": least[-1]}]}
        small = spillway_run.train(program, tight)
        ample = spillway_run.train(program, config)
        weights, weights_with_room = map(spillway_run.hash_of, (small, ample))
        equal = losses_of(small) == losses_of(ample) and weights == weights_with_room
        right = right and equal and weights not in hashes
        hashes.append(weights)
        planned = spillway_run.plan(program, tight)[0]
        tables.print_row([label, f"{least[-1] / 2**20:,.1f}", f"{least[0] / least[-1]:.2f}",
                          f"{planned['host_bytes'] / 2**20:,.0f}", str(planned["num_shards"]),
                          f"{losses_of(small)[1]:.6f}", "equal" if equal else "DIFFERENT"])
    return right


def print_speeds(program, name, configs, tokens, rounds):
    """Prints a row for each of `configs`, by label; the first is undivided. `tokens`: of a step."""
    rates, losses = {label: [] for label in configs}, {}
    for _ in range(rounds):
        for label, config in configs.items():
            run = spillway_run.train(program, config)
            rates[label].append(tokens / spillway_run.step_seconds(run))
            losses[label] = losses_of(run)
    first = next(iter(configs))
    for label, of_label in rates.items():
        differences = [abs(a - b) / b for a, b in zip(losses[label], losses[first])]
        relative = [a / b for a, b in zip(of_label, rates[first])]
        tables.print_row([name, label, tables.spread(of_label, 0),
                          f"{statistics.median(relative):.3f}", f"{max(differences):.1e}"])


def print_gpt_speeds(program, text, shapes, numbers, rounds, steps):
    tables.print_head(["channels x tokens", "pieces", "tokens/s", "relative", "loss"])
    for channels, tokens in shapes:
        model = {"num_hidden_layers": 2, "hidden_size": channels,
                 "num_attention_heads": channels // 32, "max_position_embeddings": tokens,
                 "vocab_size": 8192}
        configs = {str(number): config_of(gpt(model, number), text, steps, samples=2)
                   for number in numbers}
        print_speeds(program, f"{channels} x {tokens}", configs, 2 * tokens, rounds)


def print_lstms(program, text, model, numbers, rounds):
    """Returns whether all runs had the bits that they should have."""
    ways = {"10-step chunks": (10, 1), "1-step chunks": (1, 1),
            **{f"1-step chunks in {number}": (1, number) for number in numbers}}
    configs = {label: config_of(lstms(model, *way), text, steps=5, samples=16, virtual_nodes=1)
               for label, way in ways.items()}
    right = memory_table(program, "LSTM layers", configs)
    print()
    tables.print_head(["network", "LSTM layers", "tokens/s", "relative", "loss"])
    print_speeds(program, f"{model['hidden_size']} wide", configs,
                 16 * model["max_position_embeddings"], rounds)
    return right


def main():
    parser = spillway_run.parser("small models, one round")
    parser.add_argument("--lstms", action="store_true", help="the last part alone")
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.bin) + "/spillway"
    text = os.path.abspath(arguments.text)
    numbers, right = [2, 4, 8], True
    if not arguments.lstms:
        print("## Memory\n")
        gpt2 = TINY if arguments.brief else GPT2
        right = memory_table(program, "pieces", {
            str(number): config_of(gpt(gpt2, number), text, steps=2, samples=1)
            for number in [1, *numbers]})
        print("\n## Speed\n")
        if arguments.brief:
            print_gpt_speeds(program, text, [(64, 32)], [1, 2], rounds=1, steps=3)
        else:
            print_gpt_speeds(program, text, SHAPES, [1, *numbers, "auto"], rounds=3, steps=5)
    print("\n## LSTMs\n")
    if arguments.brief:
        right = print_lstms(program, text, TINY_LSTMS, [2], rounds=1) and right
    else:
        right = print_lstms(program, text, LSTMS, numbers, rounds=3) and right
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
