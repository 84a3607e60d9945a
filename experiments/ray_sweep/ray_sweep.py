#!/usr/bin/env python3
"""Sweeps on nodes of Ray: beside one session, and with nodes that are lost; prints Markdown tables.

Usage: ray_sweep.py BIN TEXT [DIGITS] [--brief] [--runs N], BIN: folder of the programs. Needs the
package spillway, with Ray. Exits with 1 if a trial has other weights than in one session.
"""

import collections
import concurrent.futures
import contextlib
import importlib
import io
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time
import types

# Of all processes. By default, workers of Ray have a lower priority than other programs.
os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_worker_niceness="0", OMP_WAIT_POLICY="passive")
try:
    import ray
    from ray.cluster_utils import Cluster
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as error:
    print(f"skipped: {error}; run scripts/python.sh", file=sys.stderr)
    sys.exit(77)
from spillway.ray import sweep  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import host_processes  # noqa: E402
import spillway_run  # noqa: E402
import tables  # noqa: E402

DEVICE = "{memory: 8MiB, imitate: {slowdown: 10}}"
NODE = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
# A dead node is noticed after about 5 seconds; another needs 1 or 2 to join.
HEAD = {**NODE, "num_cpus": 0, "_system_config": {
    "health_check_initial_delay_ms": 0, "health_check_period_ms": 1000,
    "health_check_failure_threshold": 5}}
LIMIT_S = 300  # of a sweep; a longer one ends the experiment

# When a node is lost, and when another joins.
MOMENTS = EARLY, BETWEEN, LATE = "before any checkpoint", "after a checkpoint", "after all shares"
JOINS = BEFORE, AFTER, NEVER = "before Ray notices the loss", "after that", "not while it runs"
USUAL = {shares: f"none is lost, {shares} shares" for shares in (2, 4)}
CONTROL = "control: none is lost, another seed"


def gpts(arguments, steps):
    """A sweep of eight."""
    rates = [1e-3 * (number + 1) for number in range(8)]
    return {"name": "gpts", "devices": [{"memory": "8MiB"}],
            "model": {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2,
                      "max_position_embeddings": 16, "dropout": 0.1},
            "data": {"path": os.path.abspath(arguments.text)},
            "train": {"batch_size": 8, "virtual_nodes": 2, "max_steps": steps},
            "checkpoint": {"every_steps": 5},
            "sweep": {"parameters": {"train.learning_rate": {"values": rates}}}}


@contextlib.contextmanager
def cluster_of(size):
    """A cluster with `size` nodes and a head, which trains nothing. Hides what Ray prints."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, \
            contextlib.redirect_stdout(io.StringIO()):
        cluster = Cluster(initialize_head=True, head_node_args={**HEAD, "temp_dir": folder})
        try:
            for _ in range(size):
                cluster.add_node(**NODE)
            ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()


def by_ray(config, place, shares, *overrides):
    """A sweep in the folder `place`: `weights` by trial, `seconds`, of which `start_s` until all
    shares have begun, and `merge_s`; `restarts`."""
    (place / "config.yaml").write_text(json.dumps(config))
    begin = time.time()
    run = sweep(place / "config.yaml", place / "run", shares=shares,
                overrides=[f"devices=[{DEVICE}]", *overrides])
    end = time.time()
    begun = [file.stat().st_mtime for file in place.glob("run/shares/*/config.yaml")]
    return types.SimpleNamespace(
        weights=host_processes.weights_of(run), seconds=end - begin, start_s=max(begun) - begin,
        merge_s=end - (place / "run/config.yaml").stat().st_mtime, restarts=restarts(place / "run"),
        moment=None)


def restarts(output):
    """Of trials whose share went on after a loss: the first step after it."""
    steps = {}
    for log in output.glob("shares/*/events.jsonl"):
        has_restarted = False
        for event in map(json.loads, log.read_text().splitlines()):
            has_restarted |= event["event"] == "restart"
            if has_restarted and event["event"] == "step":
                steps.setdefault((log, event["trial"]), event["step"])
    return list(steps.values())


def undisturbed(config, shares, *overrides):
    """As of by_ray()."""
    with tempfile.TemporaryDirectory() as folder:
        return by_ray(config, pathlib.Path(folder), shares, *overrides)


def by_session(program, config, size):
    """`weights` by trial, and `seconds`."""
    begin = time.time()
    run = host_processes.train(program, config, 1, f"devices=[{', '.join([DEVICE] * size)}]")
    return types.SimpleNamespace(weights=host_processes.weights_of(run),
                                 seconds=time.time() - begin)


def print_makespans(arguments, program):
    """In turns. All weights must be equal."""
    config, of_size = gpts(arguments, arguments.long), collections.defaultdict(list)
    for size in arguments.sizes * arguments.rounds:
        session, begin = by_session(program, config, size), time.time()
        with cluster_of(size):
            cluster_s = time.time() - begin
            of_size[size].append((session, undisturbed(config, size), cluster_s))
    tables.print_head(["nodes", "one session, s", "Ray, s", "Ray / session",
                       "until all shares begin, s", "merge, s", "cluster, not counted, s"])
    for size, rounds in of_size.items():
        columns = zip(*((one.seconds, swept.seconds, swept.seconds / one.seconds, swept.start_s,
                         swept.merge_s, cluster_s) for one, swept, cluster_s in rounds))
        tables.print_row([str(size), *map(tables.spread, columns, (1, 1, 2, 1, 1, 1))])
    weights = [run.weights for rounds in of_size.values() for pair in rounds for run in pair[:2]]
    if any(each != weights[0] for each in weights):
        raise spillway_run.Failed("trials have other weights on nodes than in one session")
    print(f"\nEqual weights in all {len(weights)} runs.\n", flush=True)


def fill(cluster):
    """Brings the cluster to two nodes, whose workers have loaded the package."""
    while len(cluster.worker_nodes) < 2:
        cluster.add_node(**NODE)
    cluster.wait_for_nodes()
    load = ray.remote(importlib.import_module)
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and "CPU" in node["Resources"]]
    ray.get([load.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False))
             .remote("spillway.shares") for node in nodes])


def moment_of(output):
    if (output / "trials").exists():  # shares are being merged
        return LATE
    return BETWEEN if any(output.glob("shares/*/trials/*/checkpoints/0*/MANIFEST")) else EARLY


def lose_one(cluster, draw, sweeping):
    """Removes a node; another joins soon, later or never. Returns when."""
    size = len(cluster.list_all_nodes())

    def alive():
        return sum(node["Alive"] for node in ray.nodes())

    cluster.remove_node(draw.choice(list(cluster.worker_nodes)), allow_graceful=False)
    [joins] = draw.choices([BEFORE, AFTER, NEVER], [5, 3, 2])
    if joins == AFTER:
        while alive() == size:
            time.sleep(0.1)
        concurrent.futures.wait([sweeping], draw.uniform(0, 5))
    if joins == NEVER or sweeping.done():
        return NEVER
    cluster.add_node(**NODE)
    return BEFORE if alive() > size else AFTER


def disturbed(cluster, pool, draw, config, shares, usual_s):
    """As of by_ray(), with `moment` and `joins`. A node is lost, unless the sweep ends before."""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        sweeping = pool.submit(by_ray, config, place, shares)  # nodes begin in the main thread only
        concurrent.futures.wait([sweeping], draw.uniform(0, usual_s))
        moment, joins = LATE, NEVER
        if not sweeping.done():
            moment, joins = moment_of(place / "run"), lose_one(cluster, draw, sweeping)
        done = sweeping.result(LIMIT_S)
        done.moment, done.joins = moment, joins
        return done


def run_all(arguments, config):
    """The runs of each row of the table."""
    rows = {row: [] for row in (*USUAL.values(), *JOINS, CONTROL)}
    with concurrent.futures.ThreadPoolExecutor(1) as pool, cluster_of(2) as cluster:
        for shares, row in [*USUAL.items()] * arguments.rounds:
            fill(cluster)
            rows[row].append(undisturbed(config, shares))
        for seed in range(1, arguments.runs + 1):
            draw = random.Random(seed)
            shares, row = draw.choice([*USUAL.items()])
            usual_s = statistics.median(run.seconds for run in rows[row])
            fill(cluster)
            done = disturbed(cluster, pool, draw, config, shares, usual_s)
            rows[done.joins].append(done)
            print(f"run {seed}, {shares} shares: lost {done.moment}, another joins {done.joins}, "
                  f"steps after it {done.restarts}, {done.seconds:.0f} s, usually {usual_s:.0f}",
                  file=sys.stderr)
        fill(cluster)
        rows[CONTROL].append(undisturbed(config, 2, "seed=2"))
    return rows


def print_losses(arguments, program):
    """Returns whether all weights are equal, but not those of the control."""
    config = gpts(arguments, arguments.short)
    expected = by_session(program, config, 2).weights
    rows = run_all(arguments, config)
    tables.print_head(["another node joins", "runs", *(f"lost {moment}" for moment in MOMENTS),
                       "trials resumed", "trials begun anew", "equal weights", "sweep, s"])
    is_right = True
    for row, runs in rows.items():
        moments = [run.moment for run in runs]
        steps = [step for run in runs for step in run.restarts]
        equal = sum(run.weights == expected for run in runs)
        is_right &= equal == (0 if row == CONTROL else len(runs))
        if runs:
            tables.print_row([row, *map(str, (
                len(runs), *map(moments.count, MOMENTS), sum(step > 1 for step in steps),
                steps.count(1), equal)), tables.spread([run.seconds for run in runs], 1)])
    return is_right


def main():
    parser = spillway_run.parser("few steps, one round, two losses")
    parser.add_argument("--runs", type=int, default=50, help="with a node that is lost")
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.bin) + "/spillway"
    arguments.sizes, arguments.rounds, arguments.long, arguments.short = (1, 2, 4), 3, 80, 48
    if arguments.brief:
        arguments.sizes, arguments.rounds, arguments.long, arguments.short = (2,), 1, 10, 16
        arguments.runs = 2
    print_makespans(arguments, program)
    if not print_losses(arguments, program):
        sys.exit(1)


if __name__ == "__main__":
    main()
