#!/usr/bin/env python3
"""Tries to break the program, from outside. See README.md.
Usage: adversarial.py SPILLWAY TEXT [--list] [--only WORDS] [--seed N] [--keep] [--result]"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import shlex
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from campaign import Campaign  # noqa: E402
from groups import GROUPS, RANDOM  # noqa: E402
from run import end_all  # noqa: E402
from scene import Scene, Skip, Surprise  # noqa: E402

USUAL = 60 * int(os.environ.get("SPILLWAY_CAMPAIGN", "1"))  # attempts


def listed():
    """All attempts with names, by group."""
    found = {group: list(module.attempts()) for group, module in GROUPS.items()}
    names = collections.Counter(each.name for group in found.values() for each in group)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise SystemExit(f"two attempts have the name '{twice[0]}'")
    return found


def drawn(number):
    """The attempt for a seed."""
    chance = random.Random(number)
    group = chance.choice(sorted(RANDOM))
    return group, RANDOM[group](chance, number)


def spread(found, count, seed):
    """The basic attempts and others, `count` in all: in proportion to the groups, at equal
    distances."""
    total = sum(map(len, found.values()))
    chosen = [(group, attempt) for group, each in found.items() for attempt in each
              if attempt.is_basic]
    count, taken = max(0, count - len(chosen)), 0
    for number, (group, each) in enumerate(found.items()):
        share = count - taken if number + 1 == len(found) else round(count * len(each) / total)
        taken += share
        quick = [attempt for attempt in each if not (attempt.is_slow or attempt.is_basic)]
        share = min(share, len(quick))
        if share > 0:
            step = len(quick) / share
            offset = random.Random(seed).uniform(0, step)
            chosen += [(group, quick[int(offset + i * step) % len(quick)]) for i in range(share)]
    return chosen


def choose(size, seed):
    found = listed()
    everything = [(group, each) for group, some in found.items() for each in some]
    if size == "all":
        return everything
    more = int(size) - len(everything)
    if more > 0:
        return everything + [drawn(seed + i + 1) for i in range(more)]
    return spread(found, int(size), seed)


def try_one(campaign, group, attempt, number, keep):
    """The line to print, and the outcome: '', 'skipped' or 'surprise'."""
    folder = campaign.root / f"attempt{number}"
    folder.mkdir()
    scene = Scene(campaign, folder)
    begin = time.monotonic()
    came, text = "", ""
    try:
        for step in attempt.steps:
            step(scene)
    except Skip as reason:
        came, text = "skipped", str(reason)
    except Exception as error:  # after any error, the others are still tried
        came = "surprise"
        text = str(error) if isinstance(error, Surprise) else f"{type(error).__name__}: {error}"
    finally:
        for process, _ in scene.processes.values():
            process.end()
    if not (keep and came == "surprise"):
        clear(campaign.root, folder.name)
    return group, attempt.name, came, text, time.monotonic() - begin, str(folder)


def clear(root, name):
    for path in root.glob(name + "*"):
        if path.name == name or path.name.startswith(name + "."):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()


def again(options, name):
    return " ".join(map(shlex.quote, [
        "python3", os.path.relpath(__file__), options.program, options.text, "--keep", "--only",
        name]))


def report(options, results, seconds):
    """The summary; the surprises are last."""
    surprises = [each for each in results if each[2] == "surprise"]
    skipped = collections.Counter(each[3] for each in results if each[2] == "skipped")
    print("\n| group | attempts | skipped | surprises |\n| --- | ---: | ---: | ---: |")
    for group in dict.fromkeys(each[0] for each in results):
        of_it = [each for each in results if each[0] == group]
        counts = collections.Counter(each[2] for each in of_it)
        print(f"| {group} | {len(of_it)} | {counts['skipped']} | {counts['surprise']} |")
    for reason, count in skipped.items():
        print(f"\n{count} skipped: {reason}")
    for group, name, _, text, _, folder in surprises:
        print(f"\nSURPRISE in {group}: {name}\n{text}\nagain: {again(options, name)}")
        if options.keep:
            print(f"kept: {folder}")
    print(f"\n{len(results)} attempts, {len(surprises)} surprises, {seconds:.0f} s")
    return 1 if surprises else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("text")
    parser.add_argument("--list", action="store_true", help="print the names")
    parser.add_argument("--only", help="those whose name contains this; 'seed 7' is a random one")
    parser.add_argument("--group", help="those of one group")
    parser.add_argument("--seed", type=int, default=0, help="of the choice")
    parser.add_argument("--keep", action="store_true", help="keep the folders of surprises")
    parser.add_argument("--times", action="store_true", help="print how long each took")
    options = parser.parse_args()
    chosen = select(options)
    if options.list:
        print("\n".join(f"{group}: {attempt.name}" for group, attempt in chosen))
        return 0
    if not chosen:
        raise SystemExit("no attempt has such a name")
    root = pathlib.Path(tempfile.mkdtemp(prefix="adversarial-"))
    begin = time.monotonic()
    signal.signal(signal.SIGHUP, lambda *_: None)  # nohup's choice must not reach the program
    signal.signal(signal.SIGTERM, lambda *_: interrupted(root))
    signal.signal(signal.SIGINT, lambda *_: interrupted(root))
    try:
        campaign = Campaign(options.program, options.text, os.environ.get("SPILLWAY_DIGITS"), root)
        results = try_all(campaign, chosen, options)
        return report(options, results, time.monotonic() - begin)
    finally:
        if not options.keep:
            shutil.rmtree(root, ignore_errors=True)


def interrupted(root):
    end_all()
    shutil.rmtree(root, ignore_errors=True)
    os._exit(130)  # threads wait for processes that have ended


def select(options):
    if options.only and options.only.startswith("seed "):
        return [drawn(int(options.only.split()[1].rstrip(":")))]
    size = os.environ.get("SPILLWAY_ADVERSARIAL") or ("all" if options.group else USUAL)
    chosen = choose("all" if options.only or options.list else size, options.seed)
    return [(group, attempt) for group, attempt in chosen
            if (options.only or "") in attempt.name and (options.group or group) == group]


def try_all(campaign, chosen, options):
    """Two at a time: an attempt mostly waits for one process."""
    results = []
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        waiting = [pool.submit(try_one, campaign, group, attempt, number, options.keep)
                   for number, (group, attempt) in enumerate(chosen)]
        for done in concurrent.futures.as_completed(waiting):
            results.append(done.result())
            if options.times or results[-1][2] == "surprise":
                group, name, came, text, took_s, _ = results[-1]
                print(f"{took_s:6.1f} s  {came or 'as expected':11}  {group}: {name}", flush=True)
                if options.times and text:
                    print(f"          {text}", flush=True)
    return results


if __name__ == "__main__":
    sys.exit(main())
