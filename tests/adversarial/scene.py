"""An attempt, and the folder in which it is made."""

from __future__ import annotations

import dataclasses
import pathlib
import typing


class Surprise(Exception):
    """Something came otherwise than expected."""


class Skip(Exception):
    """The attempt needs what this machine does not allow."""


@dataclasses.dataclass(frozen=True)
class Attempt:
    """What is tried, in words, and how: each step is called with the scene, and raises a Surprise
    where what it finds is not what it expects."""
    name: str
    steps: typing.Sequence
    is_slow: bool = False  # only where all attempts are made


class Scene:
    """The folder of one attempt, and what its steps leave for those after them."""

    def __init__(self, campaign, folder):
        self.campaign, self.folder = campaign, pathlib.Path(folder)
        self.contract = {}    # the configuration that decides the bits
        self.remembered = {}  # by path, what lay there
        self.processes = {}   # by name, those that run
        self.commands = []    # all that were run, as a shell would take them

    def path(self, name):
        return self.folder / name

    def one(self, pattern):
        """The only file that the pattern stands for, or the last of several."""
        found = sorted(self.folder.glob(pattern))
        if not found:
            raise Surprise(f"there is no {pattern}")
        return found[-1]
