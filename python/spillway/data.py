"""Samples to train on. What lies in memory or in a mapped file as it is needed is not copied."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from . import _core
from ._core import Data
from .errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    Array = torch.Tensor | np.ndarray[Any, Any]

__all__ = ["Data", "bytes_data", "data", "dataset", "token_data"]

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def _tensor(array: Array) -> torch.Tensor:
    if isinstance(array, torch.Tensor):
        return array
    with warnings.catch_warnings():
        # A mapped array is read-only, and nothing here writes to it.
        warnings.filterwarnings("ignore", message=".*not writable.*")
        return torch.as_tensor(array)


def data(
    *parts: Array, eval_fraction: float = 0.0, eval: Sequence[Array] | None = None
) -> Data:
    """Samples in tensors or NumPy arrays [N, ...]: a sample is parts[0][i], parts[1][i] and so on.

    For most models that is `data(inputs, targets)`. The arrays are read in place, also mapped ones
    (`numpy.memmap`), so they must not change. The last `eval_fraction` of the samples are reserved
    for evaluation, unless `eval` has samples for it. Integers beside floating-point numbers must
    lie between -2^24 and 2^24. Raises ConfigError (`data`, `data.eval_fraction`).
    """
    evaluation = None if eval is None else [_tensor(part) for part in eval]
    return _core.tensor_data([_tensor(part) for part in parts], eval_fraction, evaluation)


def dataset(rows: Any, columns: Sequence[str], *, eval_fraction: float = 0.0) -> Data:
    """Columns of a `datasets.Dataset` with rows of fixed length, read from its mapped Arrow files.

    Tables that lie in several files are copied into memory once. Raises ConfigError (`data`).
    """
    return data(*(_column(rows, name) for name in columns), eval_fraction=eval_fraction)


def _column(rows: Any, name: str) -> Array:
    if rows._indices is not None:  # shuffled or selected: the table has another order
        rows = rows.flatten_indices()
    column = rows.data.column(name)
    chunk = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    depth = 0
    while hasattr(chunk, "flatten") and hasattr(chunk.type, "value_type"):
        chunk, depth = chunk.flatten(), depth + 1
    values = _tensor(chunk.to_numpy(zero_copy_only=False))
    if values.shape[0] % len(rows) != 0:
        raise ConfigError(
            f"data: column '{name}' has rows of varying length; pad or pack them first", "data"
        )
    return values.reshape(len(rows), -1) if depth else values


def _paths(paths: Paths) -> list[str]:
    several = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    return [os.fspath(path) for path in several]


def bytes_data(paths: Paths, sequence_length: int, *, eval_fraction: float = 0.0) -> Data:
    """Bytes of files, or of all files in a folder, as tokens 0 to 255.

    A sample is `sequence_length` + 1 tokens. Raises ConfigError (`data.path`).
    """
    return _core.bytes_data(_paths(paths), sequence_length, eval_fraction)


def token_data(
    paths: Paths,
    sequence_length: int,
    *,
    vocab_size: int,
    dtype: str = "uint16",
    eval_fraction: float = 0.0,
) -> Data:
    """Files of token numbers of type `dtype` (uint16 or uint32), as tokenizers write them.

    Raises ConfigError (`data.path`), also if a token is not below `vocab_size`.
    """
    return _core.tokens_data(_paths(paths), dtype, vocab_size, sequence_length, eval_fraction)
