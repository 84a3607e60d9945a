#!/usr/bin/env python3
"""Kills a job that commits checkpoints before every system call that changes the disk, and restarts
it: no committed step is lost, nothing is damaged, and the journal agrees.

Usage: commit_kill_test.py COMMIT_RUN
"""

import collections
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))
# `?`: skipped on systems without the call.
CALLS = ("open openat creat write pwrite64 pwritev writev ftruncate truncate fallocate fsync "
         "fdatasync sync_file_range msync rename renameat renameat2 unlink unlinkat link linkat "
         "symlinkat mkdir mkdirat rmdir copy_file_range sendfile").split()
SELECTED = ",".join("?" + call for call in CALLS)


def strace(*arguments, log="/dev/null"):
    return subprocess.run(["strace", "-f", "-qq", "-o", log, *arguments], capture_output=True,
                          text=True, timeout=60, check=False)


def why_not():
    """Why calls cannot be intercepted on this machine; empty if they can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = strace("-e", "inject=?exit_group:signal=KILL:when=1", "true")
    return "" if tried.returncode == -9 else "no process may be traced: " + tried.stderr.strip()


class Job:
    """A job in a folder of its own."""

    def __init__(self, folder, bug=()):
        self.folder, self.bug, self.printed = pathlib.Path(folder), bug, 0

    def write(self, *tracer):
        """True if the job finished; `tracer` may kill it."""
        done = subprocess.run([*tracer, PROGRAM, "write", self.folder, *self.bug], timeout=60,
                              capture_output=True, text=True, check=False)
        self.printed = max([self.printed, *map(int, done.stdout.split())]) if (
            done.returncode in (0, -9)) else sys.exit(done.stdout + done.stderr)
        return done.returncode == 0

    def write_until(self, call, number):
        """Kills the job before the call of this number."""
        return self.write("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e",
                          f"inject={call}:signal=KILL:when={number}")

    def problem(self):
        """The problems after a restart; empty if there are none."""
        check = subprocess.run([PROGRAM, "check", self.folder, str(self.printed)], timeout=60,
                               capture_output=True, text=True, check=False)
        return check.stdout + check.stderr if check.returncode != 0 else ""

    def content(self):
        checkpoints = self.folder / "checkpoints"
        return {str(file.relative_to(checkpoints)): file.read_bytes()
                for file in checkpoints.rglob("*") if file.is_file()}


def calls_of(bug=()):
    """How often an undisturbed job makes each call."""
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile("r") as log:
        done = strace("-e", f"trace={SELECTED}", PROGRAM, "write", folder, *bug, log=log.name)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        return collections.Counter(re.findall(r"^\d+ +(\w+)\(", log.read(), re.MULTILINE))


def places_of(calls):
    """Every call, by name and number."""
    return [(call, i + 1) for call, count in sorted(calls.items()) for i in range(count)]


def problem_after_kill(place, bug):
    with tempfile.TemporaryDirectory() as folder:
        job = Job(folder, bug)
        if job.write_until(*place):
            return "was not killed"
        return job.problem()


class CommitKill(unittest.TestCase):
    def problem_of(self, place):
        """Kills the job, restarts it, kills it at the same call again if it gets that far, and then
        lets it finish.
        """
        with tempfile.TemporaryDirectory() as folder:
            job = Job(folder)
            if job.write_until(*place):
                return "was not killed"
            problem = job.problem()
            if not problem and not job.write_until(*place):
                problem = job.problem()
            job.write()
            problem = problem or job.problem()
            # A kill during the removal of the oldest may leave it until the next commit.
            as_whole = self.whole.items() <= job.content().items()
            return problem or ("" if as_whole else "ends with other bytes")

    def test_a_kill_at_any_call_loses_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            whole = Job(folder)
            whole.write()
            self.assertEqual(whole.problem(), "")
            self.whole = whole.content()
        calls = calls_of()
        for call in ("fallocate", "pwrite64", "fsync", "fdatasync"):
            self.assertGreater(calls[call], 3, "the job does not do what is to be broken off")
        places = places_of(calls)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            problems = list(pool.map(self.problem_of, places))
        found = [f"{place}: {problem}" for place, problem in zip(places, problems) if problem]
        self.assertEqual(found, [])
        print(f"killed at {len(places)} calls: {dict(calls)}")

    def test_invalid_commits_are_detected(self):
        for bug, call, words in (("written_in_place", "pwrite64", "MANIFEST"),
                                 ("recorded_early", "fallocate", "the journal and the folder"),
                                 ("removed_early", "fallocate", "is lost")):
            with self.subTest(bug):
                places = places_of({call: calls_of((bug,))[call]})
                problems = (problem_after_kill(place, (bug,)) for place in places)
                self.assertTrue(any(words in problem for problem in problems))


if __name__ == "__main__":
    if why_not():
        print("skipped: " + why_not())
        sys.exit(77)
    unittest.main()
