#!/usr/bin/env python3
"""Hosts that are killed, frozen, leave or join while others train; prints Markdown tables.

Usage: host_loss.py BIN TEXT [DIGITS] [--brief] [--first N] [--runs N] [--timed N] [--jobs N]
    [--torchrun N] [--only TRIAL] [--state STATE]
BIN: folder of the programs.
"""

import collections
import concurrent.futures
import contextlib
import functools
import importlib.util
import json
import math
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import host_processes  # noqa: E402
import spillway_run  # noqa: E402
import tables  # noqa: E402
import torchrun_loss  # noqa: E402

STEPS = 60
SLOW = "devices=[{memory: 16MiB, imitate: {link: 20MiB/s}}]"
SIGNALS = {"killed": signal.SIGKILL, "frozen": signal.SIGSTOP, "asked to leave": signal.SIGTERM}
FIRST = "host 0, killed"
# What ends training together.
MEETING = "host 0, killed while hosts meet"
LEAVES = "host 0, asked to leave"
ENDS = {"host 0, frozen": signal.SIGSTOP, LEAVES: signal.SIGTERM, MEETING: signal.SIGKILL}
STATES = {"replicated": [], "sharded": ["hosts.state=sharded", "checkpoint.every_steps=5"],
          "shadowed": ["hosts.state=shadowed", "checkpoint.every_steps=1000"]}
SILENT_S = 4


def gpt(text):
    return {"name": "gpt", "devices": [{"memory": "16MiB"}],
            "model": {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2,
                      "max_position_embeddings": 16, "dropout": 0.1},
            "data": {"path": text},
            "train": {"batch_size": 12, "virtual_nodes": 6, "reduction_groups": 6,
                      "max_steps": STEPS, "eval_steps": 7, "eval_batches": 2}}


def configs(arguments):
    """By name."""
    base = gpt(arguments.text)
    rates = {"parameters": {"train.learning_rate": {"values": [1e-3, 1e-4]}}}
    found = {"gpt": base,
             "gpt in bf16": {**base, "train": {**base["train"], "dtype": "bf16",
                                               "gradient_dtype": "bf16"}},
             "two gpts": {**base, "sweep": rates}}
    if arguments.digits:
        found["resnet"] = {
            **base, "name": "resnet",
            "model": {"family": "resnet", "hidden_sizes": [8, 16], "depths": [1, 1]},
            "data": {"format": "digits", "augment": "shift", "path": arguments.digits},
            "train": {**base["train"], "optimizer": "sgd"}}
    return found


class Events:
    """The events of a run that is under way, and the clock of this process at its time 0."""

    def __init__(self, path):
        self.path, self.events, self.read = path, [], 0
        # When the log's time was 0. It leaves out what passes between a session and the next.
        self.begins_s = [math.inf]

    def update(self):
        if not self.path.exists():
            return
        with open(self.path, encoding="utf-8") as log:
            log.seek(self.read)
            text = log.read()
        whole = text.rfind("\n") + 1
        self.read += len(text[:whole].encode())
        now_s = time.monotonic()
        for line in text[:whole].splitlines():
            event = json.loads(line)
            if event["event"] == "restart":
                self.begins_s.append(math.inf)
            self.events.append({**event, "clock": len(self.begins_s) - 1})
            if "time_s" in event:  # it was written before it was seen
                self.begins_s[-1] = min(self.begins_s[-1], now_s - event["time_s"])

    def go_on_since(self, number):
        """Whether another host has taken over and made a step since the log had so many events."""
        kinds = [event["event"] for event in self.events[number:]]
        return "restart" in kinds and "step" in kinds[kinds.index("restart"):]

    def steps(self, kind):
        return [event["step"] for event in self.events if event["event"] == kind]

    def times(self, kind, first_clock=0, **fields):
        """By the clock of this process; each is at most a little too late."""
        return [self.begins_s[event["clock"]] + event["time_s"] for event in self.events
                if event["event"] == kind and event["clock"] >= first_clock
                and fields.items() <= event.items()]


def wait_until(condition, hosts, limit_s=120):
    """`hosts`: undisturbed."""
    end = time.monotonic() + limit_s
    while not condition():
        if any(host.poll() for host in hosts):
            raise spillway_run.Failed("an undisturbed host has failed")
        if time.monotonic() > end:
            raise spillway_run.Failed("nothing happens")
        time.sleep(0.001)


def lose_while_they_meet(draw, hosts):
    """Sends signals while hosts start. Host 0 is spared, as the others could not go on."""
    losses = []
    for victim in draw.sample(range(1, len(hosts)), draw.randint(1, len(hosts) - 1)):
        time.sleep(draw.random() * 1.5)
        how = draw.choice(list(SIGNALS))
        hosts[victim].send_signal(SIGNALS[how])
        losses.append((victim, time.monotonic(), how))
    return losses


def lose_some(draw, hosts, events):
    """Sends signals; returns (number, when, how) of each victim, in order. The first of the hosts
    that are left, which writes the outputs, is killed: if it is asked to leave, all end, and if it
    is frozen, none can take its place."""
    victims = draw.sample(range(len(hosts)), draw.randint(1, len(hosts) - 1))
    at_once = draw.random() < 0.3
    losses, step = [], draw.randrange(STEPS - 30)
    left, seen = set(range(len(hosts))), None

    def has_come():
        events.update()
        return len(events.times("step")) > step and (seen is None or events.go_on_since(seen))

    for number, victim in enumerate(victims):
        is_first = victim == min(left)
        if seen is not None and draw.random() < 0.5:  # while the others meet again
            time.sleep(draw.random() * 1.5)
            at_once = False
        elif number == 0 or not at_once:
            wait_until(has_come, [hosts[host] for host in left])
            step += draw.randrange(1, 10)
            time.sleep(draw.random() * 0.03)
        how = draw.choice(list(SIGNALS))
        hosts[victim].send_signal(signal.SIGKILL if is_first else SIGNALS[how])
        losses.append((victim, time.monotonic(), FIRST if is_first else how))
        if is_first:
            seen = len(events.events)
        left.remove(victim)
    return losses


def end_all(draw, hosts, events):
    """Host 0 is lost in a way that ends training together, and the others end by themselves."""
    how = draw.choice(list(ENDS))
    if how == MEETING:
        time.sleep(draw.random() * 1.5)
    else:
        step = draw.randrange(STEPS - 10)
        wait_until(lambda: events.update() or len(events.times("step")) > step, hosts)
    hosts[0].send_signal(ENDS[how])
    lost_s = time.monotonic()
    wait_until(lambda: all(host.poll() is not None for host in hosts[1:]), [])
    codes = [host.returncode for host in hosts[1:]]
    events.update()
    if how == MEETING and events.times("step"):
        how, expected = FIRST, {0}  # it has just begun to train, and the others go on
    else:
        expected = {1}
        took_s = time.monotonic() - lost_s
        if took_s > 5 * SILENT_S:
            raise spillway_run.Failed(f"hosts ended {took_s:.0f} s after host 0")
    if set(codes) != expected:
        raise spillway_run.Failed(f"exit codes {codes} after: {how}")
    if how == LEAVES and hosts[0].wait(timeout=60) != 130:
        raise spillway_run.Failed(f"host 0 has exit code {hosts[0].returncode}, not 130")
    hosts[0].kill()
    hosts[0].wait()
    return [(0, lost_s, how)]


def let_one_join(draw, command, hosts, events, errors):
    """After some step. Others may be lost while it joins."""
    step = draw.randrange(STEPS - 40)
    wait_until(lambda: events.update() or len(events.times("step")) > step, hosts)
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)


def train_on(hosts, events, losses):
    """What the hosts that are left print. All must succeed."""
    lost = {victim for victim, _, _ in losses}
    left = [host for number, host in enumerate(hosts) if number not in lost]

    def have_ended():
        events.update()
        return all(host.poll() is not None for host in left)
    wait_until(have_ended, left)
    if any(host.returncode != 0 for host in left):
        raise spillway_run.Failed("a host that is left has failed")
    return [host.stdout.read() for host in left]


def run(program, config, draw, state):
    """Trains with hosts of which some are lost. Returns the weights by trial and the losses."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        place = pathlib.Path(folder)
        size = draw.randint(2, 4)
        errors, of_joined = (stack.enter_context(open(place / name, "w+", encoding="utf-8"))
                             for name in ("errors", "errors of the one that joins"))
        when = draw.choices(["while they train", "while they meet", "host 0"], [7, 2, 1])[0]
        limits = (["hosts.timeout_s=5", "hosts.start_size=1"] if when == "while they meet"
                  else [f"hosts.timeout_s={SILENT_S}"])
        hosts = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True,
                                  env={**os.environ, "OMP_WAIT_POLICY": "passive"})
                 for command in host_processes.commands(program, config, place, size, SLOW, *limits,
                                                        *STATES[state])]
        joined = None
        try:
            events = Events(place / "run/events.jsonl")
            if when == "host 0":
                losses = end_all(draw, hosts, events)
                outputs = host_processes.outputs(
                    [[program, "train", str(place / "config.yaml"), "resume=auto", "--json"]])
                events.update()
                if losses[0][2] == LEAVES and not all(events.steps("resumed")):
                    raise spillway_run.Failed("host 0 has not saved its trials")
            elif when == "while they meet":
                losses = lose_while_they_meet(draw, hosts)
                outputs = train_on(hosts, events, losses)
            else:
                if draw.random() < 0.3:
                    joined = let_one_join(
                        draw, host_processes.join_command(program, hosts[0].args, SLOW), hosts,
                        events, of_joined)
                losses = lose_some(draw, hosts, events)
                outputs = train_on(hosts, events, losses)
        except spillway_run.Failed as failed:
            errors.seek(0)
            raise spillway_run.Failed(f"{failed}: {errors.read()}") from failed
        finally:
            for host in [*hosts, *([joined] if joined else [])]:
                host.kill()
                host.wait()
        of_joined.seek(0)
        has_joined = "joined" in of_joined.read()
    [report] = [json.loads(out) for out in outputs if out]
    weights = {trial["name"]: trial["weights_xxh3"] for trial in report["trials"]}
    return types.SimpleNamespace(weights=weights, losses=losses, events=events,
                                 asked_to_join=joined is not None, has_joined=has_joined)


def delays(done):
    """(how, noticed after, next commit after that is more than a step) of the first loss, if it came
    before the end and was alone. The log does not say when the loss of host 0 was noticed."""
    victim, sent_s, how = done.losses[0]
    commits = done.events.times("step")
    before = [time_s for time_s in commits if time_s < sent_s]
    alone = len(done.losses) == 1 or done.losses[1][1] > done.losses[0][1] + 1
    if len(before) < 3 or not alone or done.asked_to_join or how in ENDS:
        return None
    if how == FIRST:
        noticed, after = [], done.events.times("step", first_clock=1)
    else:
        noticed = done.events.times("lost", host=victim)
        after = [time_s for time_s in commits if noticed and time_s > noticed[0]]
    if not after:
        return None
    step_s = statistics.median(b - a for a, b in zip(before, before[1:]))
    return how, noticed[0] - sent_s if noticed else None, after[0] - sent_s - step_s


def trained_again(events):
    """The number of steps of a run that were trained after an earlier commit was lost."""
    trained = [(event["trial"], event["step"]) for event in events.events
               if event["event"] == "step"]
    return len(trained) - len(set(trained))


def is_single(done):
    """Whether one host was lost, and the others trained on."""
    return len(done.losses) == 1 and done.losses[0][2] not in ENDS


def run_of(seed, program, cases, states, expected):
    """Run number `seed` and its trial, for people. `done` is nothing if the run has failed."""
    draw = random.Random(seed)
    name = draw.choice(list(cases))
    state = draw.choice(states)
    shown = f"{name}, {state}"
    try:
        done = run(program, cases[name], draw, state)
        require_no_other_loss(done, state)
        if state == "shadowed" and is_single(done) and trained_again(done.events):
            raise spillway_run.Failed("commits were lost")
    except spillway_run.Failed as failed:
        print(f"run {seed}, {shown}, has failed: {failed}", file=sys.stderr)
        return types.SimpleNamespace(shown=shown, state=state, done=None, is_equal=False)
    joins = ("one joins, " if done.has_joined else
             "one asks to join, " if done.asked_to_join else "")
    is_equal = done.weights == expected[name]
    print(f"run {seed}, {shown}: {joins}{[(victim, how) for victim, _, how in done.losses]}"
          f", {trained_again(done.events)} steps again{'' if is_equal else ': differs'}",
          file=sys.stderr)
    return types.SimpleNamespace(shown=shown, state=state, done=done, is_equal=is_equal)


def require_no_other_loss(done, state):
    """No host is lost that nobody disturbed. Where hosts meet again, they change their numbers."""
    meet_again = (state != "replicated" or done.asked_to_join or
                  any(victim == 0 for victim, _, _ in done.losses))
    heard = {event["host"] for event in done.events.events
             if event["event"] == "lost" and "host" in event}
    if not meet_again and heard - {victim for victim, _, _ in done.losses}:
        raise spillway_run.Failed(f"a host was lost that nobody disturbed: {heard}")


def print_torchrun(text, kinds, runs):
    if importlib.util.find_spec("torch") is None:
        print("this Python has no PyTorch, so there is no table of torchrun", file=sys.stderr)
        return
    print()
    tables.print_head(["killed under torchrun, of 3 workers with PyTorch DDP", "runs",
                       "next step after a step and, ms"])
    for kind in kinds:
        times = [1e3 * torchrun_loss.next_step_s(kind, text) for _ in range(runs)]
        tables.print_row([kind, str(runs), tables.spread(times, 0)])


def main():
    parser = spillway_run.parser("three runs, and one under torchrun")
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--timed", type=int, default=200,
                        help="the first of them, one at a time: their times count")
    parser.add_argument("--jobs", type=int, default=3, help="the others, so many at a time")
    parser.add_argument("--torchrun", type=int, default=5,
                        help="runs of each kind under torchrun, 0: none")
    parser.add_argument("--only", help="one of the trials")
    parser.add_argument("--state", choices=list(STATES), help="the only hosts.state; default: all")
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.bin) + "/spillway"
    cases = configs(arguments)
    expected = {name: host_processes.weights_of(host_processes.train(program, config, 1))
                for name, config in cases.items()}
    # Runs, hosts lost, hosts joined, steps repeated, steps trained again, equal.
    rows = collections.defaultdict(lambda: [0] * 6)
    noticed, commits = collections.defaultdict(list), collections.defaultdict(list)
    seeds = range(arguments.first, arguments.first + (3 if arguments.brief else arguments.runs))
    if arguments.only not in (None, *cases):
        parser.error(f"--only: there is no {arguments.only!r}; there are {', '.join(cases)}")
    drawn = {name: case for name, case in cases.items() if arguments.only in (None, name)}
    states = [arguments.state] if arguments.state else list(STATES)
    run_one = functools.partial(run_of, program=program, cases=drawn, states=states,
                                expected=expected)
    outcomes = [run_one(seed) for seed in seeds[:arguments.timed]]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        outcomes += pool.map(run_one, seeds[arguments.timed:])
    for number, outcome in enumerate(outcomes):
        row = rows[outcome.shown]
        row[0] += 1
        row[5] += outcome.is_equal
        if not outcome.done:
            continue
        row[1] += len(outcome.done.losses)
        row[2] += outcome.done.has_joined
        row[3] += len(outcome.done.events.times("redone"))
        row[4] += trained_again(outcome.done.events)
        delay = delays(outcome.done) if number < arguments.timed else None
        if delay:
            how, noticed_s, commit_s = delay
            how = f"{how}; {outcome.state}"
            if noticed_s is not None:
                noticed[how].append(1e3 * noticed_s)
            commits[how].append(1e3 * commit_s)
    tables.print_head(["trial, state", "runs", "hosts lost", "hosts joined", "steps repeated",
                       "commits lost", "runs with equal weights"])
    for name, row in sorted(rows.items()):
        tables.print_row([name, *map(str, row)])
    other = {**cases["gpt"], "train": {**cases["gpt"]["train"], "virtual_nodes": 4,
                                       "reduction_groups": 4}}
    other = host_processes.weights_of(host_processes.train(program, other, 1))
    tables.print_row(["control: gpt with 4 virtual nodes, 1 host", "1", "0", "0", "0", "0",
                      str(int(other == expected["gpt"]))])
    print()
    tables.print_head(["a host is", "runs", "noticed after, ms", "next commit after a step and, ms"])
    for how in [f"{kind}; {state}" for state in STATES for kind in [*SIGNALS, FIRST]]:
        if commits[how]:
            tables.print_row([how, str(len(commits[how])),
                              tables.spread(noticed[how], 0) if noticed[how] else "",
                              tables.spread(commits[how], 0)])
    if other == expected["gpt"] or not all(outcome.is_equal for outcome in outcomes):
        sys.exit(1)
    kinds = list(torchrun_loss.KINDS)
    if arguments.brief:  # the other takes a minute
        print_torchrun(arguments.text, kinds[:1], runs=1)
    elif arguments.torchrun > 0:
        print_torchrun(arguments.text, kinds, arguments.torchrun)


if __name__ == "__main__":
    main()
