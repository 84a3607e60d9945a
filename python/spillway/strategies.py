"""Searches for strategies."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ._core import SearchResult
from .data import Data
from .export import ExportedModel
from .models import Model
from .session import Device, Session

__all__ = ["SearchResult", "search_strategy"]


def search_strategy(
    model: Model | ExportedModel,
    data: Data,
    path: str | os.PathLike[str],
    *,
    devices: Device | Sequence[Device],
    links: Sequence[Mapping[str, Any]] | None = None,
    proposals: int = 4000,
    search_seed: int = 1,
    host_memory: str | int | None = None,
    double_buffer: bool | None = None,
    **train: Any,
) -> SearchResult:
    """Looks for the strategy with the shortest step and writes it to `path`.

    Nothing is trained. The session then trains with it by `submit(..., strategy=path)`, to the same
    bits as with any other. `train`: as of `submit`. The result is a function of `proposals`, the
    number of strategies that are tried, `search_seed` and the measured costs. If data parallelism
    is the fastest, no file is written, and `best.data_parallel` says on how many devices. Raises
    ConfigError, also if `path` exists, and DoesNotFit.
    """
    session = Session(devices, links=links, host_memory=host_memory, double_buffer=double_buffer)
    trial = session._add(model, data, train)
    return session._session.search(trial, os.fspath(path), proposals, search_seed)
