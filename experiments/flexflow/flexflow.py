#!/usr/bin/env python3
"""What searches find for the models of FlexFlow, and how it trains; prints a Markdown table.

Usage: flexflow.py BIN TEXT [DIGITS] [--brief] [--only MODEL] [--slow], BIN: folder of the programs.
"""

import itertools
import os
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import pictures  # noqa: E402
import ranks  # noqa: E402
import spillway_run  # noqa: E402
import tables  # noqa: E402

NODES = 8
STEPS = 10  # that --verify trains; the first ones also map memory
EXECUTED = 4  # steps of a training, with which a proposal is compared
ROUNDS = 2  # in each, it trains all strategies
CNN = {"family": "cnn", "num_classes": 100, "pieces": {"channels": 4}}
RNN = {"family": "rnn", "pieces": {"vocabulary": 4}}
# By name: the model, and the samples of a virtual node.
MODELS = {
    "AlexNet": ({**CNN, "preset": "alexnet", "width_mult": 0.5, "image_size": 64}, 2),
    "Inception-v3": ({**CNN, "preset": "inception_v3", "width_mult": 0.25, "image_size": 107}, 1),
    "ResNet-101": ({**CNN, "preset": "resnet101", "width_mult": 0.25, "image_size": 64}, 1),
    "RNNTC": ({**RNN, "preset": "rnntc", "vocab_size": 4096, "hidden_size": 128}, 2),
    "RNNLM": ({**RNN, "preset": "rnnlm", "vocab_size": 4096, "hidden_size": 128}, 2),
    "NMT": ({**RNN, "preset": "nmt", "vocab_size": 4096, "hidden_size": 128,
             "max_position_embeddings": 80}, 1),
}
SLOW, FAST = "20MiB/s", "80MiB/s"
EXPERT = "pieces or batch"
UNEQUAL = (4, 4, 16, 16)


def config_of(name, slowdowns, link, text, folder):
    model, samples = MODELS[name]
    data = {"format": "bytes", "path": text}
    if model["family"] == "cnn":
        path = folder / f"{model['image_size']}.safetensors"
        if not path.exists():
            pictures.write(path, samples=64, channels=3, size=model["image_size"], classes=100)
        data = {"format": "tensors", "path": str(path)}
    devices = [{"kind": "cpu", "memory": "512MiB", "imitate": {"slowdown": each, "link": link}}
               for each in slowdowns]
    return {"devices": devices, "host_memory": "8GiB", "model": model, "data": data,
            "train": {"batch_size": NODES * samples, "virtual_nodes": NODES,
                      "learning_rate": 1e-3, "max_steps": STEPS, "eval_batches": 1}}


def all_reduce_s(trial, slowdowns, link):
    """What a step takes at least if devices keep the weights and reduce gradients in a ring, over
    the same links and hidden under compute: the longer of both."""
    devices, mebibytes = len(slowdowns), 4 * trial["parameters"] / 2**20
    ring_s = 2 * (devices - 1) / devices * mebibytes / float(link.removesuffix("MiB/s"))
    return max(ring_s, trial["compute_s_per_step"] / sum(1 / each for each in slowdowns))


def searched(program, config, folder, proposals):
    """The plan of the trial, [(name, planned seconds, trained seconds)] of all strategies that fit,
    the seconds of the search by proposal, and those of training a strategy, with its start."""
    def seconds_of(*options):
        begin = time.monotonic()
        found = spillway_run.search(program, config, folder / "found.yaml", proposals, *options)
        (folder / "found.yaml").unlink(missing_ok=True)
        return time.monotonic() - begin, found

    spillway_run.planned(program, config)  # measures the layers
    begin = time.monotonic()
    trial = spillway_run.plan(program, config)[0]
    plan_s = time.monotonic() - begin
    search_s, search = seconds_of()
    rounds = [seconds_of("--verify") for _ in range(ROUNDS)]
    verify_s = statistics.median(s for s, _ in rounds) - search_s
    rows = {}  # by strategy: planned and trained seconds of the rounds
    for _, found in rounds:
        for row in spillway_run.compared(found):
            rows.setdefault(row["name"], []).append((row["step_s"], row["trained_step_s"]))
    table = [(name, *map(statistics.median, zip(*steps))) for name, steps in rows.items()]
    others_s = (STEPS - EXECUTED) * statistics.mean(trained_s for _, _, trained_s in table)
    return (trial, table, (search_s - plan_s) / search["models"][0]["simulated"],
            verify_s / len(rows) - others_s)


def distinct(rows):
    """(planned, trained) seconds. Strategies that are planned alike count once."""
    alike = {}
    for _, planned_s, trained_s in rows:
        alike.setdefault(planned_s, []).append(trained_s)
    return alike.keys(), [statistics.median(each) for each in alike.values()]


def devices_of(slowdowns):
    """"8", or "2 of 4, 2 of 16"."""
    counts = {each: slowdowns.count(each) for each in slowdowns}
    if len(counts) == 1:
        return str(len(slowdowns))
    return ", ".join(f"{count} of {each}" for each, count in counts.items())


def print_cell(name, slowdowns, link, trial, rows, proposal_s, training_s):
    names, planned_s, trained_s = zip(*rows)
    trained = dict(zip(names, trained_s))
    lanes = ("data_parallel", "data parallelism")  # without a strategy, and as one
    lanes_s = min(s for each, s in trained.items() if each.startswith(lanes))
    known_s, known_name = min((s, each) for each, s in trained.items()
                              if each != "found" and not each.startswith(lanes))
    found_s = trained.get("found", min(lanes_s, known_s))
    shares = [planned / actual for planned, actual in zip(planned_s, trained_s)]
    reduced_s = all_reduce_s(trial, slowdowns, link)
    tables.print_row([name, devices_of(slowdowns), link, f"{1e3 * lanes_s:.0f}", f"{1e3 * reduced_s:.0f}",
                      f"{1e3 * trained[EXPERT]:.0f}" if EXPERT in trained else "",
                      f"{1e3 * known_s:.0f} ({known_name})", f"{1e3 * found_s:.0f}",
                      f"{lanes_s / found_s:.2f}", f"{reduced_s / found_s:.2f}",
                      f"{known_s / found_s:.2f}", tables.spread(shares, 2),
                      f"{ranks.kendall_tau(*distinct(rows)):.2f}",
                      f"{1e3 * proposal_s:.2f}", f"1/{training_s / proposal_s:,.0f}"])


def main():
    parser = spillway_run.parser("one small model, few proposals")
    parser.add_argument("--only", choices=MODELS, help="one of the models")
    parser.add_argument("--slow", action="store_true", help="8 devices and slow links alone")
    parser.add_argument("--unequal", action="store_true", help="4 devices of two speeds alone")
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.bin) + "/spillway"
    names = [arguments.only] if arguments.only else list(MODELS)
    eight = (8,) * 8
    machines, proposals = [(eight, SLOW), (eight, FAST), (eight[:4], SLOW), (UNEQUAL, SLOW)], 20000
    if arguments.slow:
        machines = machines[:1]
    if arguments.unequal:
        machines = machines[3:]
    if arguments.brief:
        MODELS["RNNLM"][0].update(vocab_size=256, hidden_size=16)
        names, machines, proposals = ["RNNLM"], [((8, 8), FAST)], 20
    tables.print_head(["model", "devices", "link", "data parallel, ms", "all-reduce at least, ms",
                       "expert rule, ms", "best known, ms", "found, ms", "data parallel / found",
                       "all-reduce / found", "best known / found",
                       "planned / trained", "Kendall's tau", "ms a proposal", "of training it"])
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        for (slowdowns, link), name in itertools.product(machines, names):
            config = config_of(name, slowdowns, link, os.path.abspath(arguments.text), folder)
            print_cell(name, slowdowns, link, *searched(program, config, folder, proposals))


if __name__ == "__main__":
    main()
