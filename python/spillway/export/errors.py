"""Errors of the export of a module."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import torch

from ..errors import Error

_TORCH_FOLDER = str(Path(torch.__file__).parent)
_OWN_FOLDER = str(Path(__file__).parent)
# Loggers of PyTorch to which it tells at length what it then raises.
_LOUD = ("torch.fx.experimental.symbolic_shapes", "torch._subclasses.fake_tensor")


class ExportError(Error, ValueError):
    """A module that cannot become a `.spw` file; the message says why and what to do."""


def first_line(error: BaseException) -> str:
    """What an error of PyTorch says, without its traces and hints."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def place_of(error: BaseException) -> str:
    """The line of code outside of PyTorch from which it came: "net.py, line 5", if there is one."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((_TORCH_FOLDER, _OWN_FOLDER)):
            return f"{frame.filename}, line {frame.lineno}"
    return "an unknown line"


@contextlib.contextmanager
def told_once() -> Iterator[None]:
    """Within, PyTorch prints no graph and logs nothing about what it raises."""
    loggers = [logging.getLogger(name) for name in _LOUD]
    before, printed = [each.disabled for each in loggers], io.StringIO()
    for each in loggers:
        each.disabled = True
    try:
        with contextlib.redirect_stderr(printed):
            yield
        sys.stderr.write(printed.getvalue())
    finally:
        for each, disabled in zip(loggers, before):
            each.disabled = disabled
