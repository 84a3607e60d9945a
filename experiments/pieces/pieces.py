#!/usr/bin/env python3
"""Memory, bits and speed of models whose layers are divided into pieces; prints Markdown tables.

Usage: pieces.py BIN TEXT [DIGITS] [--brief], BIN: folder of the programs. Exits with 1 if a run on a
small device has other bits than one with room, or if other pieces have the same.
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


def pieces(number):
    return {"attention": number, "mlp": number, "vocabulary": number}


def config_of(model, text, number, steps, samples):
    return {"devices": [{"kind": "cpu", "memory": AMPLE}], "host_memory": AMPLE,
            "model": {"family": "gpt", "dropout": 0.1, **model, "pieces": pieces(number)},
            "data": {"format": "bytes", "path": text},
            "train": {"batch_size": samples, "virtual_nodes": samples, "reduction_groups": 1,
                      "learning_rate": 1e-4, "max_steps": steps, "eval_batches": 1}}


def losses_of(run):
    return [event["loss"] for event in spillway_run.steps_of(run)]


def memory_table(program, text, model, numbers):
    """Whether all runs had the bits that they should have."""
    tables.print_head(["pieces", "least budget, MiB", "undivided / divided", "shards there",
                       "loss of step 2", "on that device"])
    least, hashes, right = {}, [], True
    for number in numbers:
        config = config_of(model, text, number, steps=2, samples=1)
        least[number] = spillway_run.plan(program, config)[0]["smallest_budget_bytes"]
        tight = {**config, "devices": [{"kind": "cpu", "memory": least[number]}]}
        small = spillway_run.train(program, tight)
        ample = spillway_run.train(program, config)
        weights, weights_with_room = map(spillway_run.hash_of, (small, ample))
        equal = losses_of(small) == losses_of(ample) and weights == weights_with_room
        right = right and equal and weights not in hashes
        hashes.append(weights)
        tables.print_row([str(number), f"{least[number] / 2**20:,.1f}",
                          f"{least[numbers[0]] / least[number]:.2f}",
                          str(spillway_run.plan(program, tight)[0]["num_shards"]),
                          f"{losses_of(small)[1]:.6f}", "equal" if equal else "DIFFERENT"])
    return right


def speed_table(program, text, shapes, numbers, rounds, steps):
    tables.print_head(["channels x tokens", "pieces", "tokens/s", "relative", "loss"])
    for channels, tokens in shapes:
        model = {"num_hidden_layers": 2, "hidden_size": channels,
                 "num_attention_heads": channels // 32, "max_position_embeddings": tokens,
                 "vocab_size": 8192}
        rates, losses = {number: [] for number in numbers}, {}
        for _ in range(rounds):
            for number in numbers:
                run = spillway_run.train(program, config_of(model, text, number, steps, samples=2))
                rates[number].append(2 * tokens / spillway_run.step_seconds(run))
                losses[number] = losses_of(run)
        for number in numbers:
            differences = [abs(a - b) / b for a, b in zip(losses[number], losses[numbers[0]])]
            relative = [a / b for a, b in zip(rates[number], rates[numbers[0]])]
            tables.print_row([f"{channels} x {tokens}", str(number),
                              tables.spread(rates[number], 0),
                              f"{statistics.median(relative):.3f}", f"{max(differences):.1e}"])


def main():
    arguments = spillway_run.parser("small models, one round").parse_args()
    program = os.path.abspath(arguments.bin) + "/spillway"
    text = os.path.abspath(arguments.text)
    print("## Memory\n")
    right = memory_table(program, text, TINY if arguments.brief else GPT2, [1, 2, 4, 8])
    print("\n## Speed\n")
    if arguments.brief:
        speed_table(program, text, [(64, 32)], [1, 2], rounds=1, steps=3)
    else:
        speed_table(program, text, SHAPES, [1, 2, 4, 8, "auto"], rounds=3, steps=5)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
