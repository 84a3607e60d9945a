"""The steps of attempts: changes of files, and expectations afterwards."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil

from campaign import BEGINNINGS, config_with
from outcome import difference, outcome, weights_of
from scene import Skip, Surprise

NUMBER = re.compile(r"-?[\d.e+-]+|-?inf|-?nan")
# These change when they are opened, and say nothing about the result.
OF_OPENING = re.compile(r"journal\.sqlite(-wal|-shm)?$|(^|/)lock$")


def furnish(contract=None, variant=None):
    """Configuration and data. `contract` determines the bits, `variant` must not."""
    def step(scene):
        scene.contract = contract or {}
        if "digits" in json.dumps(scene.contract) and not scene.campaign.digits:
            raise Skip("SPILLWAY_DIGITS names no file")
        scene.campaign.furnish(scene.folder, {**scene.contract, **(variant or {})})
    return step


def text_of(name, content):
    """A file with this text, or these bytes."""
    def step(scene):
        path = scene.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return step


def given(name):
    """A copy of a run of the campaign, as `r`, beside its configuration and data."""
    def step(scene):
        made = scene.campaign.beginning(name)
        shutil.copytree(made, scene.folder, dirs_exist_ok=True, symlinks=True)
        config = scene.path("r/config.yaml")
        text = config.read_text().replace(str(made), str(scene.folder))
        config.write_text(re.sub("link: [^,}]+", "link: 0", text))  # slow to end
        scene.contract = BEGINNINGS[name].config
    return step


# Damages. A pattern selects the last file that it matches.

def flip(pattern, at=0.5, bit=0x10):
    """Flips one bit, at a fraction of the file's length."""
    def step(scene):
        path = scene.one(pattern)
        data = bytearray(path.read_bytes())
        data[min(len(data) - 1, int(at * len(data)))] ^= bit
        path.write_bytes(data)
    return step


def flip_all(pattern):
    def step(scene):
        for path in sorted(scene.folder.glob(pattern)):
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 0x10
            path.write_bytes(data)
    return step


def edit(pattern, old, new, count=1):
    """Replaces the last line that matches `old`, a regular expression, by `new`."""
    def step(scene):
        path = scene.one(pattern)
        lines = path.read_bytes().decode().splitlines(keepends=True)
        hits = [number for number, line in enumerate(lines) if re.search(old, line)]
        if not hits:
            raise Surprise(f"no line of {path.name} matches /{old}/")
        for number in hits[-count:]:
            lines[number] = re.sub(old, new, lines[number], count=1)
        path.write_bytes("".join(lines).encode())
    return step


def cut(pattern, part=0.5):
    def step(scene):
        path = scene.one(pattern)
        os.truncate(path, int(path.stat().st_size * part))
    return step


def remove(pattern):
    def step(scene):
        found = sorted(scene.folder.glob(pattern))
        if not found:
            raise Surprise(f"there is no {pattern} to remove")
        for path in found:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return step


def remove_last(pattern):
    def step(scene):
        path = scene.one(pattern)
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return step


def _replaced(pattern, make):
    def step(scene):
        path = scene.one(pattern) if "*" in pattern else scene.path(pattern)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.is_symlink() or path.exists():
            path.unlink()
        make(path)
    return step


def folder_at(pattern):
    return _replaced(pattern, lambda path: path.mkdir(parents=True))


def fifo_at(pattern):
    return _replaced(pattern, os.mkfifo)


def link_at(pattern, target):
    return _replaced(pattern, lambda path: path.symlink_to(target))


def loop_at(pattern):
    return _replaced(pattern, lambda path: path.symlink_to(path.name))


def append(pattern, data):
    def step(scene):
        with open(scene.one(pattern), "ab") as file:
            file.write(data)
    return step


def overwrite_in_place(name, data):
    """Like `dd conv=notrunc`: the same file, other bytes."""
    def step(scene):
        with open(scene.path(name), "r+b") as file:
            file.write(data)
    return step


def renamed_over(name, data):
    """Another file takes the name; a process that has opened the first still reads it."""
    def step(scene):
        path = scene.path(name)
        path.with_suffix(".new").write_bytes(data)
        path.with_suffix(".new").rename(path)
    return step


def made_folder(name):
    return lambda scene: scene.path(name).mkdir(parents=True, exist_ok=True)


def both(*steps):
    def step(scene):
        for each in steps:
            each(scene)
    return step


# Expectations.

def same_bits(folder="r", only_weights=False):
    """The same as an undisturbed run of the same contract."""
    def step(scene):
        wanted = scene.campaign.reference(scene.contract)
        if only_weights:
            found, wanted = weights_of(scene.path(folder)), wanted["weights"]
            problem = "" if found == wanted else f"the weights are {found}, not {wanted}"
        else:
            problem = difference(outcome(scene.path(folder)), wanted)
        if problem:
            raise Surprise(problem)
    return step


def other_bits(than=None):
    """Negative control: this configuration must not give the bits of that one."""
    def step(scene):
        wanted = scene.campaign.reference(than or {})["weights"]
        if set(weights_of(scene.path("r")).values()) & set(wanted.values()):
            raise Surprise("the weights are the same, so nothing can be told by them")
    return step


def equal_trials(first, second):
    """Two trials, given by their folders, have the same weights file."""
    def step(scene):
        if scene.one(first).read_bytes() != scene.one(second).read_bytes():
            raise Surprise(f"{first} and {second} differ")
    return step


def lies_there(*names):
    def step(scene):
        for name in names:
            if not list(scene.folder.glob(name)):
                raise Surprise(f"{name} is gone")
    return step


def is_absent(*names):
    def step(scene):
        for name in names:
            if list(scene.folder.glob(name)) or os.path.lexists(scene.path(name)):
                raise Surprise(f"{name} lies there")
    return step


def has_text(name, pattern):
    def step(scene):
        path = scene.one(name)
        if not re.search(pattern, path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE):
            raise Surprise(f"{name} has no /{pattern}/")
    return step


def tree_of(path):
    """By name below the path, the kind and the bytes; for a link its target."""
    if path.is_symlink():
        return {"": os.readlink(path)}
    if not path.is_dir():
        return {"": path.read_bytes() if path.is_file() else None}
    found = {}
    for file in sorted(path.rglob("*")):
        name = str(file.relative_to(path))
        if OF_OPENING.search(name):
            continue
        found[name] = (os.readlink(file) if file.is_symlink() else
                       file.read_bytes() if file.is_file() else file.is_dir())
    return found


def remember(*names):
    def step(scene):
        for name in names:
            scene.remembered[name] = tree_of(scene.path(name))
    return step


def is_unchanged(*names):
    def step(scene):
        for name in names:
            before, now = scene.remembered[name], tree_of(scene.path(name))
            for key in sorted(set(before) | set(now)):
                if key not in now:
                    raise Surprise(f"{name}/{key} is gone")
                if key not in before:
                    raise Surprise(f"{name}/{key} is new")
                if before[key] != now[key]:
                    raise Surprise(f"{name}/{key} changed")
    return step


def cells_are_harmless(name):
    """No cell starts like a formula, unless it is a number."""
    def step(scene):
        with open(scene.path(name), newline="", encoding="utf-8") as file:
            for row in csv.reader(file):
                for cell in row:
                    if re.match(r"[=+@\t\r-]", cell) and not NUMBER.fullmatch(cell):
                        raise Surprise(f"a spreadsheet computes the cell {cell!r} of {name}")
    return step


def is_json(name):
    def step(scene):
        json.loads(scene.path(name).read_text())
    return step


# Checks of documents; each returns the problems.

def every(*checks):
    return lambda document: next(filter(None, (check(document) for check in checks)), "")


def error_of_kind(*fields, code=2):
    """An error document that names the fields."""
    def check(document):
        error = document.get("error")
        if error is None:
            return "the document has no error"
        if error.get("exit_code") != code:
            return f"the document's exit_code is not {code}"
        if not error.get("message") or not error.get("kind"):
            return "the document has no message or no kind"
        named = {finding.get("field") for finding in error.get("findings", [])}
        missing = [field for field in fields if field not in named]
        return f"the document's findings do not name {missing}" if missing else ""
    return check


def trials_are(*states):
    def check(document):
        found = [trial["state"] for trial in document["trials"]]
        return "" if found == list(states) else f"the trials are {found}"
    return check


def peaks_within_budgets(document):
    for device in document["devices"]:
        if device["peak_bytes"] > device["budget_bytes"]:
            return f"the peak {device['peak_bytes']} exceeds the budget {device['budget_bytes']}"
    if document["host_peak_bytes"] > document["host_budget_bytes"]:
        return "the peak of the host exceeds its budget"
    return ""


def config_text(changes):
    """As JSON, which is YAML too."""
    return json.dumps(config_with(changes))
