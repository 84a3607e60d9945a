#!/usr/bin/env python3
"""One trial on several hosts, which are processes of one machine: bits, bytes and time, beside
PyTorch; prints Markdown tables.

Usage: hosts.py BIN TEXT [DIGITS] [--brief] [--only TABLE] [--sizes N...] [--rounds N]
BIN: folder of the programs. PYTHONPATH must contain the PyTorch to compare with.
"""

import json
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import host_processes  # noqa: E402
import spillway_run  # noqa: E402
import tables  # noqa: E402
import torch_run  # noqa: E402

SHAPE = {"blocks": 4, "width": 256, "heads": 8, "positions": 64, "batch": 24, "virtual_nodes": 12,
         "dropout": 0, "steps": 12}
TINY = {**SHAPE, "blocks": 1, "width": 32, "heads": 4, "steps": 4}
SIZES = (1, 2, 3, 4)
PYTORCH = {"ddp": "DDP", "fsdp": "FSDP"}


def gpt_config(shape, text):
    return {
        "name": "gpt", "devices": [{"memory": "1GiB"}],
        "model": {"family": "gpt", "num_hidden_layers": shape["blocks"],
                  "hidden_size": shape["width"], "num_attention_heads": shape["heads"],
                  "max_position_embeddings": shape["positions"], "dropout": shape["dropout"]},
        "data": {"path": text, "eval_fraction": 0},
        "train": {"batch_size": shape["batch"], "virtual_nodes": shape["virtual_nodes"],
                  "reduction_groups": shape["virtual_nodes"], "max_steps": shape["steps"],
                  "learning_rate": 3e-4, "weight_decay": 0.1},
        "checkpoint": {"keep": 0},
    }


def resnet_config(digits, steps):
    return {"name": "resnet", "devices": [{"memory": "64MiB"}],
            "model": {"family": "resnet", "hidden_sizes": [8, 16], "depths": [1, 1]},
            "data": {"format": "digits", "augment": "shift", "path": digits},
            "train": {"optimizer": "sgd", "batch_size": 48, "virtual_nodes": 12,
                      "reduction_groups": 6, "max_steps": steps, "eval_steps": steps // 2},
            "checkpoint": {"keep": 0}}


def smallest_device(program, gpt):
    """The override. Hosts need a little more than one that trains alone."""
    least = spillway_run.plan(program, gpt)[0]["smallest_budget_bytes"]
    return f"devices=[{{memory: {least + 65536}}}]"


def cases(shape, arguments):
    """(name, configuration, overrides, overrides of each host)"""
    gpt = gpt_config(shape, arguments.text)
    small = smallest_device(f"{arguments.bin}/spillway", gpt)
    two = "devices=[{memory: 1GiB}, {memory: 1GiB}]"
    all_cases = [
        ("gpt", gpt, [], {}),
        ("gpt, smallest budget", gpt, [small], {}),
        ("gpt, order shard_major", gpt, ["scheduling.order=shard_major"], {}),
        ("gpt, two devices on each host", gpt, [two, "train.data_parallel=2"], {}),
        ("gpt, hosts differ in budget, order and devices", gpt, [],
         {1: [small], 2: ["scheduling.order=shard_major"], 3: [two, "train.data_parallel=2"]}),
        ("gpt, dropout", {**gpt, "model": {**gpt["model"], "dropout": 0.1}}, [], {}),
        ("gpt in bf16, gradients too", gpt,
         ["train.dtype=bf16", "train.gradient_dtype=bf16"], {}),
    ]
    if arguments.digits:
        all_cases.append(("resnet", resnet_config(arguments.digits, shape["steps"]), [], {}))
    return all_cases


def by_pytorch(how, shape, text, size):
    port = host_processes.free_port()
    outputs = host_processes.outputs(
        [[sys.executable, str(HERE / "distributed_gpt.py"), how, str(rank), str(size), str(port),
          json.dumps(shape), text] for rank in range(size)])
    return json.loads(outputs[0])


def print_bits(shape, arguments):
    program = f"{arguments.bin}/spillway"
    tables.print_head(["different weights on 1, 2, 3 and 4 hosts", "runs", "hashes"])
    for name, config, overrides, own in cases(shape, arguments):
        hashes = [json.dumps(host_processes.weights_of(host_processes.train(
            program, config, size, *overrides, own=own))) for size in arguments.sizes]
        tables.print_row([name, str(len(hashes)), str(len(set(hashes)))])
    other = gpt_config({**shape, "virtual_nodes": 6}, arguments.text)
    hashes = {json.dumps(host_processes.weights_of(host_processes.train(program, config, 1)))
              for config in (gpt_config(shape, arguments.text), other)}
    tables.print_row(["control: gpt with 12 and 6 virtual nodes, 1 host", "2", str(len(hashes))])
    for how, name in PYTORCH.items():
        hashes = {by_pytorch(how, shape, arguments.text, size)["weights"]
                  for size in arguments.sizes}
        tables.print_row([f"control: PyTorch {name}, 1 to 4 processes, the same batch",
                          str(len(arguments.sizes)), str(len(hashes))])


def step_s(run):
    """The median, without the first quarter."""
    ends = sorted(span["ts"] + span["dur"] for span in run.trace
                  if span["ph"] == "X" and span["pid"] == 1 and span["name"] == "commit")
    seconds = [(b - a) / 1e6 for a, b in zip(ends, ends[1:])]
    return statistics.median(seconds[len(seconds) // 4:])


def covered(spans):
    """The intervals in which at least one of the spans is, in order."""
    found = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([begin, end])
    return found


def hidden_share(run):
    """The part of the time in which host 0 exchanges that lies under its computing."""
    spans = [span for span in run.trace if span["ph"] == "X" and span["pid"] == 1]

    def times(kinds):
        return covered((span["ts"], span["ts"] + span["dur"]) for span in spans
                       if span["name"].split()[0] in kinds)
    exchanges, computes = times({"exchange"}), times({"forward", "backward"})
    both = sum(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a in exchanges for b in computes)
    return both / sum(end - begin for begin, end in exchanges)


def print_steps(shape, arguments):
    """In turns: hosts, as many devices of one host, PyTorch."""
    program, config = f"{arguments.bin}/spillway", gpt_config(shape, arguments.text)
    tables.print_head(["milliseconds a step", "hosts", "with sharded state",
                       "with shadowed state", "devices of one host",
                       "PyTorch DDP", "PyTorch FSDP", "hosts / DDP", "sharded / FSDP",
                       "exchange under compute", "MiB sent a step, planned",
                       "on the loopback interface", "by DDP", "by FSDP"])
    for size in arguments.sizes:
        times = {"hosts": [], "sharded": [], "shadowed": [], "devices": [], **{how: [] for how in PYTORCH}}
        sent, hidden = {}, []

        def counted(side, train):
            before = host_processes.loopback_bytes()
            done = train()
            sent[side] = (host_processes.loopback_bytes() - before) / 2**20 / shape["steps"]
            return done
        for _ in range(arguments.rounds):
            run = counted("hosts", lambda: host_processes.train(program, config, size))
            times["hosts"].append(1e3 * step_s(run))
            if size > 1:
                hidden.append(100 * hidden_share(run))
                for state in ("sharded", "shadowed"):
                    times[state].append(1e3 * step_s(host_processes.train(
                        program, config, size, f"hosts.state={state}")))
            devices = f"devices=[{', '.join(['{memory: 1GiB}'] * size)}]"
            times["devices"].append(1e3 * step_s(host_processes.train(
                program, config, 1, devices, f"train.data_parallel={size}")))
            for how in PYTORCH:
                seconds = counted(how, lambda: by_pytorch(how, shape, arguments.text, size))["seconds"]
                times[how].append(1e3 * statistics.median(seconds[len(seconds) // 4:]))
        planned = sum(spillway_run.planned(program, config, f"hosts.size={size}",
                                           f"hosts.number={number}")["trials"][0]["sent_bytes_per_step"]
                      for number in range(size)) if size > 1 else 0
        tables.print_row([
            f"{size}", *(tables.spread(times[side], 0) if times[side] else "" for side in times),
            tables.spread([a / b for a, b in zip(times["hosts"], times["ddp"])], 2),
            tables.spread([a / b for a, b in zip(times["sharded"], times["fsdp"])], 2)
            if size > 1 else "",
            f"{tables.spread(hidden, 0)} %" if size > 1 else "",
            f"{planned / 2**20:.1f}",
            *(f"{sent[side]:.1f}" if size > 1 else "0" for side in ("hosts", *PYTORCH))])


def print_spilled(shape, arguments):
    """Of a model that is several shards, whose sums are ready one after the other."""
    program, config = f"{arguments.bin}/spillway", gpt_config(shape, arguments.text)
    small = smallest_device(program, config)
    tables.print_head(["hosts with the smallest budget", "shards", "milliseconds a step",
                       "exchange under compute"])
    for size in [each for each in arguments.sizes if each > 1]:
        runs = [host_processes.train(program, config, size, small)
                for _ in range(arguments.rounds)]
        hidden = tables.spread([100 * hidden_share(run) for run in runs], 0)
        tables.print_row([str(size), str(runs[0].trials[0]["num_shards"]),
                          tables.spread([1e3 * step_s(run) for run in runs], 0), f"{hidden} %"])


def print_exchange(_, arguments):
    """Of one layer's sums, nothing else running."""
    tables.print_head([f"{arguments.mebibytes} MiB of sums over hosts", "Spillway, ms",
                       "with a token, ms", "Gloo, ms", "Spillway / Gloo", "with a token / Gloo",
                       "elements that differ: Spillway", "with a token", "Gloo"])
    for size in [each for each in arguments.sizes if each > 1]:
        port = host_processes.free_port()
        text = host_processes.outputs(
            [[f"{arguments.bin}/hosts_exchange", str(port), str(number), str(size),
              str(arguments.mebibytes), str(arguments.exchanges)] for number in range(size)])[0]
        *rounds, different = [line.split() for line in text.splitlines()]
        plain, sealed, gloo = ([float(ms) * 1e3 for ms in column] for column in zip(*rounds))
        elements = arguments.mebibytes << 18
        tables.print_row([
            str(size), *(tables.spread(column, 0) for column in (plain, sealed, gloo)),
            *(tables.spread([ours / theirs for ours, theirs in zip(column, gloo)], 2)
              for column in (plain, sealed)),
            *(f"{100 * int(number) / elements:.0f} %" for number in different)])


def main():
    parts = {"bits": print_bits, "exchange": print_exchange, "spilled": print_spilled,
             "steps": print_steps}
    parser = spillway_run.parser("tiny shapes, 1 and 2 hosts")
    parser.add_argument("--only", choices=parts, help="one of the tables")
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="numbers of hosts")
    parser.add_argument("--rounds", type=int, default=5, help="of the last two tables")
    arguments = parser.parse_args()
    shape, arguments.exchanges, arguments.mebibytes = SHAPE, 15, 32
    if arguments.brief:
        shape, arguments.sizes = TINY, SIZES[:2]
        arguments.rounds, arguments.exchanges, arguments.mebibytes = 1, 2, 1
    torch_run.skip_without_torch()
    for name, print_part in parts.items():
        if arguments.only in (None, name):
            print_part(shape, arguments)
            print()


if __name__ == "__main__":
    main()
