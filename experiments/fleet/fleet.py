#!/usr/bin/env python3
"""Plans of many hosts: beside hosts that train over a network of a given rate, and for up to 100
hosts with ten devices each; prints Markdown tables.

Usage: fleet.py BIN TEXT [DIGITS] [--brief] [--plans], BIN: folder of the programs.
"""

import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import host_processes  # noqa: E402
import shaped_network  # noqa: E402
import spillway_run  # noqa: E402
import tables  # noqa: E402

MB = 1_000_000
RATES = (5 * MB, 20 * MB, 80 * MB)
DEVICES = 10  # of a host
SAMPLES = 4  # of a virtual node
GBIT = 125 * MB  # bytes a second
STEPS = 1000  # of the plans
SLOW = {"memory": "1GiB", "imitate": {"slowdown": 8}}  # four leave two cores idle at times


def gpt(arguments, batch, virtual_nodes, groups, devices, steps):
    return {"name": "gpt", "devices": devices,
            "model": {"num_hidden_layers": 4, "hidden_size": arguments.width, "num_attention_heads": 8,
                      "max_position_embeddings": 64},
            "data": {"path": arguments.text, "eval_fraction": 0},
            "train": {"batch_size": batch, "virtual_nodes": virtual_nodes,
                      "reduction_groups": groups, "data_parallel": len(devices),
                      "max_steps": steps},
            "checkpoint": {"keep": 0}}


def trained_steps(program, config, size, rate):
    """Milliseconds a step, trained and planned, and the rate of TCP on the network. One host has no
    network."""
    tcp_rate = None
    if size == 1:
        run = host_processes.train(program, config, size)
    else:
        with shaped_network.Network(size, rate) as network:
            tcp_rate = network.tcp_rate(rate)
            run = host_processes.train(program, config, size,
                                       f"hosts.network_rate={tcp_rate / 1000:.0f}kB/s",
                                       network=network)
    return [*(1e3 * spillway_run.step_seconds(run, process) for process in ("real", "planned")),
            tcp_rate]


def print_trained(arguments):
    """Plans beside what hosts need."""
    program = f"{arguments.bin}/spillway"
    tables.print_head(["hosts", "network of a host, MB/s", "TCP both ways, MB/s",
                       "trained, ms a step", "planned", "planned / trained"])
    worst = 1
    for size in arguments.sizes:
        config = gpt(arguments, 12, 12, 12, [SLOW], arguments.steps)
        for rate in arguments.rates if size > 1 else [None]:
            steps = [trained_steps(program, config, size, rate) for _ in range(arguments.rounds)]
            real, planned, tcp_rates = zip(*steps)
            ratios = [p / r for r, p, _ in steps]
            worst = max(worst, statistics.median(ratios), 1 / statistics.median(ratios))
            carried = tables.spread([each / MB for each in tcp_rates], 0) if rate else ""
            tables.print_row([str(size), str(rate // MB) if rate else "", carried,
                              tables.spread(real, 0), tables.spread(planned, 0),
                              tables.spread(ratios, 2)])
    return worst


def planned_and_time(program, config, *overrides):
    """Planned seconds of training, and how long it took to plan them."""
    begin = time.monotonic()
    planned = spillway_run.planned(program, config, "--no-pilot", *overrides)
    return planned["wall_s"], time.monotonic() - begin


def print_scaling(arguments, title, batch_of, groups_of):
    """Efficiency: samples a second and device, compared with one host."""
    program = f"{arguments.bin}/spillway"
    tables.print_head([title, *(f"{rate / GBIT:g} Gbit/s" for rate in arguments.wide_rates),
                       "devices", "training at the fastest, hours", "longest plan, s"])
    alone = None
    for size in arguments.fleet:
        batch = batch_of(size)
        config = gpt(arguments, batch, batch // SAMPLES, groups_of(size), [SLOW] * DEVICES, STEPS)
        row, times = [], []
        for rate in arguments.wide_rates:
            times.append(planned_and_time(program, config, f"hosts.size={size}",
                                          f"hosts.network_rate={rate // 1000}kB/s"))
            per_device = batch / times[-1][0] / (DEVICES * size)
            alone = alone or per_device
            row.append(f"{100 * per_device / alone:.0f} %")
        trained_s, plan_s = zip(*times)
        tables.print_row([f"{size} hosts", *row, str(DEVICES * size),
                          f"{trained_s[-1] / 3600:.1f}", f"{max(plan_s):.1f}"])


def main():
    parser = spillway_run.parser("two hosts at one rate, and up to 8")
    parser.add_argument("--plans", action="store_true", help="the tables without training")
    arguments = parser.parse_args()
    arguments.sizes, arguments.rates, arguments.rounds = (1, 2, 3, 4), RATES, 3
    arguments.steps, arguments.width = 5, 256
    arguments.wide_rates = (GBIT // 10, GBIT, 10 * GBIT, 100 * GBIT, 400 * GBIT)
    arguments.fleet = (1, 2, 8, 32, 100)
    if arguments.brief:
        arguments.sizes, arguments.rates, arguments.rounds = (1, 2), (100 * MB,), 1
        arguments.steps, arguments.width = 3, 32
        arguments.wide_rates, arguments.fleet = (100 * MB,), (1, 8)
    if not arguments.plans and shaped_network.is_possible():
        worst = print_trained(arguments)
        print(f"\nAt most {100 * (worst - 1):.0f} % off.\n")
    print_scaling(arguments, "weak: 40 samples a host", lambda size: SAMPLES * DEVICES * size,
                  lambda size: DEVICES * size)
    print()
    print_scaling(arguments, "strong: 4,000 samples", lambda _: 4000, lambda _: 1000)


if __name__ == "__main__":
    main()
