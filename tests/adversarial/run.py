"""Runs the program, disturbs it, and compares exit code, streams and documents."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shlex
import signal
import subprocess
import time
import typing

from campaign import generations
from scene import Skip, Surprise

# Internal words that must not appear in messages.
UNHELPFUL = re.compile(r"terminate called|what\(\)|std::|basic_|yaml-cpp|json\.exception|"
                       r"filesystem error|core dumped|Assertion|INTERNAL ASSERT|c10::")
LIVE = set()  # the running process groups
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]")


def end_all():
    """When the campaign itself is ended."""
    for group in list(LIVE):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def patience():
    """How many times longer than on an idle machine a process may take."""
    return max(1, os.getloadavg()[0] / os.cpu_count())


def patterns(value):
    return (value,) if isinstance(value, str) else tuple(value)


@dataclasses.dataclass(frozen=True)
class Run:
    """`spillway COMMAND` from start to end."""
    command: str                 # words of a shell command; HERE is the folder
    code: typing.Any = 0         # the exit code, or the valid ones; -9: killed by signal 9
    err: typing.Any = ()         # patterns, each of which must match standard error
    out: typing.Any = ()         # the same for standard output
    never: typing.Any = ()       # patterns that must match neither
    doc: typing.Any = None       # called with the JSON document, returns its problems
    env: dict = dataclasses.field(default_factory=dict)  # None unsets
    shell: str = "exec {}"       # how a shell runs it: limits, redirections
    during: typing.Sequence = () # pairs of a moment to wait for and what is done then
    within_s: float = 60
    may_end: bool = False        # limit for the moment of the disturbance
    is_loose: bool = False       # the streams are cut or joined: their general rules do not apply

    def __call__(self, scene):
        process = Process(scene, self)
        try:
            for moment, action in self.during:
                if process.wait_for(moment, run_may_end=self.may_end):
                    action(scene) if not isinstance(action, int) else process.send(action)
            process.finish(self.within_s)
        finally:
            process.end()
        process.check(self)


@dataclasses.dataclass(frozen=True)
class Start:
    """Starts a run that continues beside the next steps."""
    name: str
    run: Run

    def __call__(self, scene):
        scene.processes[self.name] = (Process(scene, self.run), self.run)


@dataclasses.dataclass(frozen=True)
class Finish:
    """Waits for started runs, in the given order, and checks them."""
    names: typing.Sequence

    def __call__(self, scene):
        for name in patterns(self.names):
            process, run = scene.processes.pop(name)
            process.finish(run.within_s)
            process.check(run)


@dataclasses.dataclass(frozen=True)
class Until:
    """Waits for a moment of a started run."""
    name: str
    moment: typing.Any

    def __call__(self, scene):
        scene.processes[self.name][0].wait_for(self.moment)


@dataclasses.dataclass(frozen=True)
class Send:
    name: str
    number: int

    def __call__(self, scene):
        scene.processes[self.name][0].send(self.number)


class Process:
    """The running program, with its streams in files beside the folder."""

    def __init__(self, scene, run):
        self.scene = scene
        words = shlex.split(run.command.replace("HERE", str(scene.folder)))
        line = " ".join(shlex.quote(word) for word in [scene.campaign.program, *words])
        self.line = run.shell.replace("{}", line)
        scene.commands.append(self.line)
        environment = {**scene.campaign.environment(), **run.env}
        number = len(scene.commands)
        self.streams = [scene.folder.parent / f"{scene.folder.name}.{kind}{number}"
                        for kind in ("out", "err")]
        with open(self.streams[0], "wb") as out, open(self.streams[1], "wb") as err:
            self.popen = subprocess.Popen(
                ["bash", "-c", self.line], cwd=scene.folder, stdout=out, stderr=err,
                stdin=subprocess.DEVNULL, start_new_session=True,
                env={key: value.replace("HERE", str(scene.folder))
                     for key, value in environment.items() if value is not None})
        LIVE.add(self.popen.pid)
        self.is_json = "--json" in words
        self.verb = words[0] if words else ""

    def wait_for(self, moment, run_may_end=False):
        """True if it happened before the process ended."""
        begin = time.monotonic()
        while not moment(self.scene, self, time.monotonic() - begin):
            if self.popen.poll() is not None:
                if run_may_end:
                    return False
                raise Surprise(f"ended with {self.popen.returncode} before it was disturbed: "
                               + self.text(1)[-500:])
            if time.monotonic() - begin > 60 * patience():
                raise Surprise("the moment to disturb it did not come")
            time.sleep(0.005)
        return True

    def send(self, number):
        self.popen.send_signal(number)

    def finish(self, within_s):
        within_s *= patience()
        try:
            self.popen.wait(timeout=within_s)
            LIVE.discard(self.popen.pid)
        except subprocess.TimeoutExpired:
            self.end()
            raise Surprise(f"'{self.line}' did not end within {within_s:.0f} s") from None

    def end(self):
        """The rest of the process group: a shell may have started several."""
        if self.popen.poll() is None:
            os.killpg(self.popen.pid, signal.SIGKILL)
            self.popen.wait()
        LIVE.discard(self.popen.pid)

    def text(self, stream):
        return self.streams[stream].read_bytes().decode("utf-8", "replace")

    def check(self, run):
        out, err, code = self.text(0), self.text(1), self.popen.returncode
        told = f"'{self.line}' exits with {code}\nstdout: {out[-700:]}\nstderr: {err[-1500:]}"
        if code == 77 and "spillway" not in err:
            raise Skip(err.strip().splitlines()[-1] if err.strip() else "not allowed here")
        codes = run.code if isinstance(run.code, tuple) else (run.code,)
        if code not in codes:
            raise Surprise(f"the exit code should be {' or '.join(map(str, codes))}: {told}")
        for kind, text, wanted in (("error", err, run.err), ("output", out, run.out)):
            for pattern in patterns(wanted):
                if not re.search(pattern, text, re.MULTILINE):
                    raise Surprise(f"/{pattern}/ is not on standard {kind}: {told}")
        for pattern in patterns(run.never):
            if re.search(pattern, out + err, re.MULTILINE):
                raise Surprise(f"/{pattern}/ should not be said: {told}")
        problem = "" if run.is_loose else self.broken_rule(code, out, err)
        if not problem and run.doc is not None:
            problem = run.doc(json.loads(out))
        if problem:
            raise Surprise(f"{problem}: {told}")

    def broken_rule(self, code, out, err):
        """The rules that hold for every attempt; returns a sentence if one is broken."""
        if UNHELPFUL.search(out + err):
            return f"the message speaks of the program's insides ({UNHELPFUL.search(out + err)[0]})"
        if CONTROL.search(out.replace("\r\n", "\n") + err):
            return "a control character stands on a stream"
        if code not in (0, 130) and code > 0 and not (out + err):
            return "it fails without a word"
        if self.is_json and code >= 0:
            return self.broken_document(code, out)
        if code == 2 and out:
            return "standard output has something though nothing was done"
        return ""

    @staticmethod
    def broken_document(code, out):
        try:
            document = json.loads(out)
        except ValueError as error:
            return f"standard output is not one JSON document ({error})"
        if code == 2 and document.get("error", {}).get("exit_code") != 2:
            return "the document has no error with exit_code 2"
        return ""


# Moments: true if something has happened in a process, for which the caller waits.

def checkpoints(count, folder="r"):
    """Each trial has this number."""
    def has_come(scene, _process, _waited_s):
        found = generations(scene.path(folder))
        return bool(found) and min(found.values()) >= count
    return has_come


def seconds(count):
    return lambda _scene, _process, waited_s: waited_s >= count


def exists(name):
    return lambda scene, _process, _waited_s: scene.path(name).exists()


def says(pattern):
    def has_come(_scene, process, _waited_s):
        return re.search(pattern, process.text(0) + process.text(1)) is not None
    return has_come


def takes(number):
    """It handles the signal itself, as every run does once it has started."""
    def has_come(_scene, process, _waited_s):
        with open(f"/proc/{process.popen.pid}/status", encoding="utf-8") as file:
            masks = [line.split()[1] for line in file if line.startswith(("SigCgt", "SigIgn"))]
        return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)
    return has_come
