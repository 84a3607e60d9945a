"""A sample is a row of numbers, and inputs and targets are parts of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from .errors import ExportError
from .graphs import Graph, Value

# Operators that only move the values of their first argument.
_MOVES = {"aten::alias", "aten::clone", "aten::contiguous", "aten::detach", "aten::expand",
          "aten::flatten", "aten::permute", "aten::reshape", "aten::select", "aten::slice",
          "aten::squeeze", "aten::to", "aten::_to_copy", "aten::transpose", "aten::unsqueeze",
          "aten::view"}
_LARGEST_EXACT = 1 << 24  # of the integers that float32 has


@dataclass(frozen=True)
class Part:
    """A part of each row."""

    name: str
    begin: int
    shape: tuple[int, ...]  # without the sample
    dtype: torch.dtype  # float32, int64 or bool
    limit: int | None = None  # of indices, which are from 0 to limit - 1

    @property
    def end(self) -> int:
        """One behind its last value."""
        return self.begin + torch.Size(self.shape).numel()


@dataclass(frozen=True)
class Row:
    """What a row consists of."""

    parts: tuple[Part, ...]

    @property
    def dtype(self) -> torch.dtype:
        """float32, or int64 if no part has fractions."""
        is_real = any(part.dtype == torch.float32 for part in self.parts)
        return torch.float32 if is_real else torch.int64

    @property
    def elements(self) -> int:
        """Numbers in a row."""
        return max(part.end for part in self.parts)

    def check(self) -> None:
        """Refuses indices that a row of float32 would round."""
        for part in self.parts:
            if self.dtype == torch.float32 and (part.limit or 0) > _LARGEST_EXACT:
                raise ExportError(f"'{part.name}' has indices up to {part.limit}, but beside "
                                  "floating-point inputs a row is exact up to 2^24 only. Give the "
                                  "module integers alone")

    def pack(self, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Rows [N, elements] of tensors [N, ...], one for each part."""
        names = [part.name for part in self.parts]
        if sorted(tensors) != sorted(names):
            raise ExportError(f"a row consists of {', '.join(names)}; these are given: "
                              f"{', '.join(tensors) or 'none'}")
        samples = {len(tensor) for tensor in tensors.values()}
        if len(samples) != 1:
            raise ExportError(f"the tensors have {sorted(samples)} samples; they must have equally "
                              "many")
        rows = torch.zeros(samples.pop(), self.elements, dtype=self.dtype)
        for part in self.parts:
            values = tensors[part.name]
            if tuple(values.shape[1:]) != part.shape:
                raise ExportError(f"'{part.name}' has samples of shape {list(values.shape[1:])}, "
                                  f"must be {list(part.shape)}")
            rows[:, part.begin:part.end] = values.reshape(len(rows), -1)
        return rows


def index_limits(graph: Graph) -> dict[Value, int]:
    """For inputs that go to embeddings: the number of rows of the smallest one."""
    origins: dict[Value, Value] = {value: value for value in graph.inputs}
    limits: dict[Value, int] = {}
    for node in graph.nodes:
        if node.op in _MOVES and node.args[0] in origins:
            origins.update({value: origins[node.args[0]] for value in node.outputs})
        if node.op == "aten::embedding" and node.args[1] in origins:
            weight, origin = node.args[0], origins[node.args[1]]
            assert isinstance(weight, Value)
            limits[origin] = min(limits.get(origin, weight.shape[0]), weight.shape[0])
    return limits
