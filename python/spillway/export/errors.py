"""Errors of the export of a module."""

from __future__ import annotations

from ..errors import Error


class ExportError(Error, ValueError):
    """A module that cannot become a `.spw` file; the message says why and what to do."""


def first_line(error: BaseException) -> str:
    """What an error of PyTorch says, without its traces and hints."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
