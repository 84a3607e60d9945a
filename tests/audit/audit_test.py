#!/usr/bin/env python3
"""Are the tests of checkpoints able to fail? Each bug of bugs.py must be caught by its test.

Usage: audit_test.py SOURCE_DIR WORK_DIR COMPILER -- COMPILE_ARG... -- LINK_ARG...
A bug's file is changed and compiled. It and the other files of its room are linked in front of the
libraries, whose own copies are then not taken; the test named beside the bug must fail.
"""
import concurrent.futures
import os
import subprocess
import sys
from pathlib import Path

from bugs import BUGS

TIMEOUT_S = 120


def split_arguments(arguments):
    first = arguments.index("--")
    second = arguments.index("--", first + 1)
    source, work, *compiler = arguments[:first]
    return Path(source), Path(work), compiler, arguments[first + 1:second], arguments[second + 1:]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")


def changed_source(source, bug):
    text = (source / bug.file).read_text(encoding="utf-8")
    if text.count(bug.old) != 1:
        raise RuntimeError(f"stands {text.count(bug.old)} times in {bug.file}, not once: {bug.old}")
    return text.replace(bug.old, bug.new)


class Rooms:
    """The files of rooms, each compiled once, and programs with one of them changed."""

    def __init__(self, source, work, compiler, compile_args, link_args):
        self.source, self.work, self.compiler = source, work, compiler
        self.compile_args, self.link_args = compile_args, link_args

    def files_of(self, bug):
        """The files of the room that has the bug."""
        return sorted((self.source / bug.file).parent.glob("*.cpp"))

    def object_of(self, file):
        return self.work / file.relative_to(self.source).with_suffix(".o")

    def compile(self, file, compiled):
        compiled.parent.mkdir(parents=True, exist_ok=True)
        run([*self.compiler, *self.compile_args, f"-I{self.source}", f"-I{self.source}/include",
             "-c", str(file), "-o", str(compiled)])

    def build(self, folder, bug):
        """The program with this bug, in a folder of its own."""
        folder.mkdir(parents=True, exist_ok=True)
        changed, program = folder / "changed.cpp", folder / "program"
        changed.write_text(changed_source(self.source, bug), encoding="utf-8")
        self.compile(changed, changed.with_suffix(".o"))
        others = [str(self.object_of(file)) for file in self.files_of(bug)
                  if file != self.source / bug.file]
        run([self.compiler[-1], str(changed.with_suffix(".o")), *others, *self.link_args,
             "-o", str(program)])
        return program


def problem_of(program, test):
    """Empty if a test of that name ran and failed."""
    try:
        done = subprocess.run([program, f"--gtest_filter={test}", "--gtest_brief=1"],
                              capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return "its test did not end"
    if done.returncode == 0:
        return f"not caught by {test}"
    return ""


def audit(number, bug, rooms):
    try:
        program = rooms.build(rooms.work / str(number), bug)
        problem = problem_of(program, bug.test)
        program.unlink()
    except RuntimeError as error:
        problem = str(error)
    print(f"{'ok    ' if not problem else 'FAILED'} {bug.name}: {problem or bug.test}", flush=True)
    return not problem


def main():
    rooms = Rooms(*split_arguments(sys.argv[1:]))
    files = sorted({file for bug in BUGS for file in rooms.files_of(bug)})
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda file: rooms.compile(file, rooms.object_of(file)), files))
        caught = list(pool.map(lambda item: audit(*item, rooms), enumerate(BUGS)))
    print(f"{sum(caught)} of {len(BUGS)} bugs are caught")
    return 0 if all(caught) else 1


if __name__ == "__main__":
    sys.exit(main())
