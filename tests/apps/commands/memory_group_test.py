#!/usr/bin/env python3
"""A run in a group with little memory, which another process uses up: the system kills the run, and
after a resume it ends with the same bits.

Usage: memory_group_test.py SPILLWAY TEXT
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support/run"))
import memory_group  # noqa: E402
import small_run  # noqa: E402

LIMIT = 1 << 30
STEP = 16 << 20
TAKERS = 20
# Takes memory step by step, slowly enough that a killed process is gone before the next step.
TAKE = """
import sys, time
step, most = map(int, sys.argv[1:])
taken = []
while len(taken) * step < most:
    taken.append(b"x" * step)
    time.sleep(0.02)
"""


def taker(in_group):
    """A process in the group that takes memory until a process is killed for it."""
    return subprocess.Popen([*in_group, sys.executable, "-c", TAKE, str(STEP), str(2 * LIMIT)])


def crowd_out(run, in_group):
    """Starts a run, and takes memory beside it until the system kills it."""
    process = small_run.start([*in_group, *run.train_command(small_run.SLOW)])
    # Of all processes in the group it is killed first, but the system may choose a taker before it.
    pathlib.Path(f"/proc/{process.pid}/oom_score_adj").write_text("1000")
    small_run.wait_for(process, lambda: len(run.generations()) >= 2)
    for _ in range(TAKERS):
        beside = taker(in_group)
        while process.poll() is None and beside.poll() is None:
            time.sleep(0.01)
        beside.kill()
        beside.wait()
        if process.poll() is not None:
            break
    killed_by_system = process.poll() == -9
    process.kill()
    text = process.communicate()[0]
    if not killed_by_system:
        sys.exit(f"was not killed by the system: exit code {process.returncode}\n{text}")


def check(program, text, folder, in_group):
    whole = small_run.SmallRun(program, text, folder + "/whole")
    small_run.finish(whole.train_command("checkpoint.every_steps=0"))
    killed = small_run.SmallRun(program, text, folder + "/killed")
    crowd_out(killed, in_group)
    if killed.events("end"):
        sys.exit("the run had ended before: the test proves nothing here")
    said = small_run.finish([*in_group, *killed.resume_command(small_run.FAST)])
    if "resumed after step" not in said:
        sys.exit("did not go on from a checkpoint:\n" + said)
    if killed.weights() != whole.weights():
        sys.exit("the resumed run ended with other weights than the undisturbed one")


def main():
    program, text = (os.path.abspath(argument) for argument in sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder, memory_group.prefix_of(LIMIT) as in_group:
        if not in_group:
            print("skipped: no control group that limits memory can be made here")
            sys.exit(77)
        check(program, text, folder, in_group)
        print("killed by the system in", " ".join(in_group[:4]))


if __name__ == "__main__":
    main()
