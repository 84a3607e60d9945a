"""Modules of PyTorch as files that Spillway trains: see `from_torch`."""

from .errors import ExportError
from .exported_model import ExportedModel, load
from .from_torch import from_torch

__all__ = ["ExportError", "ExportedModel", "from_torch", "load"]
