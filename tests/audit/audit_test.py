#!/usr/bin/env python3
"""Are the tests of checkpoints able to fail? Each bug of bugs.py must be caught by its test.

Usage: audit_test.py SOURCE_DIR WORK_DIR COMPILER -- COMPILE_ARG... -- LINK_ARG...
A bug's file is changed, compiled with the other files of its room, as libraries are, and linked in
front of the libraries, whose own copies are then not taken; the test named beside the bug must fail.
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


def build(source, folder, compiler, compile_args, link_args, bug):
    folder.mkdir(parents=True, exist_ok=True)
    room, compiled, program = folder / "room.cpp", folder / "room.o", folder / "program"
    (folder / "changed.cpp").write_text(changed_source(source, bug), encoding="utf-8")
    files = [str(file.relative_to(source)) for file in sorted((source / bug.file).parent.glob("*.cpp"))]
    files[files.index(bug.file)] = "changed.cpp"
    room.write_text("".join(f'#include "{file}"\n' for file in files), encoding="utf-8")
    run([*compiler, *compile_args, f"-I{source}", f"-I{source}/include", "-c", str(room), "-o",
         str(compiled)])
    run([compiler[-1], str(compiled), *link_args, "-o", str(program)])
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


def audit(number, bug, arguments):
    source, work, compiler, compile_args, link_args = arguments
    try:
        program = build(source, work / str(number), compiler, compile_args, link_args, bug)
        problem = problem_of(program, bug.test)
        program.unlink()
    except RuntimeError as error:
        problem = str(error)
    print(f"{'ok    ' if not problem else 'FAILED'} {bug.name}: {problem or bug.test}", flush=True)
    return not problem


def main():
    arguments = split_arguments(sys.argv[1:])
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        caught = list(pool.map(lambda item: audit(*item, arguments), enumerate(BUGS)))
    print(f"{sum(caught)} of {len(BUGS)} bugs are caught")
    return 0 if all(caught) else 1


if __name__ == "__main__":
    sys.exit(main())
