"""Modules of PyTorch as files that Spillway trains: see `from_torch`."""

from .errors import ExportError
from .from_torch import ExportedModel, from_torch

__all__ = ["ExportError", "ExportedModel", "from_torch"]
