"""An attempt, and its folder."""

from __future__ import annotations

import dataclasses
import pathlib
import typing


class Surprise(Exception):
    """An unexpected outcome."""


class Skip(Exception):
    """The attempt needs something that this machine does not allow."""


@dataclasses.dataclass(frozen=True)
class Attempt:
    """An attempt: its description and its steps. Each step is called with the scene, and raises a
    Surprise if it finds something unexpected.
    """
    name: str
    steps: typing.Sequence
    is_slow: bool = False   # only if all attempts are made
    is_basic: bool = False  # in every selection: no other test holds this promise


class Scene:
    """The folder of one attempt, and what its steps pass to later ones."""

    def __init__(self, campaign, folder):
        self.campaign, self.folder = campaign, pathlib.Path(folder)
        self.contract = {}    # the configuration that determines the bits
        self.remembered = {}  # by path, its earlier content
        self.processes = {}   # by name, running ones
        self.commands = []    # all commands so far, as for a shell

    def path(self, name):
        return self.folder / name

    def one(self, pattern):
        """The only file that matches the pattern, or the last of several."""
        found = sorted(self.folder.glob(pattern))
        if not found:
            raise Surprise(f"there is no {pattern}")
        return found[-1]
