"""Samples of fixed length, made of documents."""

from __future__ import annotations

import bisect
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from ._core import Data
from .data import data
from .documents import Documents, Path, Span
from .errors import ConfigError
from .export import ExportedModel
from .export.spw import header_of, map_safetensors, write_tensor

__all__ = ["Samples", "pack", "pad"]

IGNORED = -100  # the label of what has no loss, as PyTorch and transformers have it
_BLOCK = 256  # samples that are written at once
_WAYS = ("error", "truncate", "split", "drop")


@dataclass(frozen=True)
class Samples:
    """Tensors [samples, tokens] by the names of a model's arguments."""

    tensors: Mapping[str, torch.Tensor]  # int32; of a file, mapped

    def __len__(self) -> int:
        return len(next(iter(self.tensors.values())))

    @classmethod
    def open(cls, path: Path) -> Samples:
        """What `pack` or `pad` wrote there. Raises ConfigError (`path`)."""
        try:
            return cls(map_safetensors(pathlib.Path(path)))
        except (OSError, KeyError, ValueError) as error:
            raise ConfigError(f"path: '{os.fspath(path)}' is not what spillway.pack writes "
                              f"({error})", "path") from None

    def example(self) -> dict[str, torch.Tensor]:
        """The first sample, as `from_pretrained` takes it."""
        return {name: tensor[:1].long() for name, tensor in self.tensors.items()}

    def data(self, model: ExportedModel, *, eval_fraction: float = 0.0,
             eval: Samples | None = None) -> Data:
        """What a session trains a model on that was exported with `example`.

        The last `eval_fraction` of the samples are reserved for evaluation, unless `eval` has
        samples for it. Raises ConfigError (`data`).
        """
        return data(*self._parts(model), eval_fraction=eval_fraction,
                    eval=None if eval is None else eval._parts(model))

    def _parts(self, model: ExportedModel) -> list[torch.Tensor]:
        wanted = {part.name: part.shape for part in model.row.parts}
        given = {name: tuple(tensor.shape[1:]) for name, tensor in self.tensors.items()}
        if given != wanted:
            raise ConfigError(f"data: the samples are {_listed(given)}, but the model takes "
                              f"{_listed(wanted)}; export it with example=samples.example()",
                              "data")
        return [self.tensors[name] for name in wanted]


def pack(
    documents: Documents,
    length: int,
    *,
    path: Path | None = None,
    too_long: str = "error",
    position_ids: bool = True,
) -> Samples:
    """Puts several documents into each sample of `length` tokens, as many as fit (best fit).

    A sample is `input_ids`, `labels`, which are -100 where there is no loss, and `position_ids`,
    which begin at 0 in each document. Models of transformers that take these do not let documents
    of a sample attend to one another. Without `position_ids` they attend to those before, and
    positions run on. No document is asked to predict the first token of the next.
    `path`: a file for the samples, which is read as it is needed; by default they are in memory. A
    configuration takes it as `data: {format: tensors}`.
    `too_long`: what becomes of documents of more tokens: "error", "truncate", "split", "drop".
    Parts of them that have nothing to train on are left out.
    Raises ConfigError (`length`, `too_long`).
    """
    pieces = _pieces(documents, length, too_long)
    bins = _best_fit([end - begin for begin, end in pieces], length)
    plan = [[pieces[piece] for piece in each] for each in bins]
    names = ("input_ids", "labels", *(("position_ids",) if position_ids else ()))
    return _made(_Filler(documents, length, names), plan, path)


def pad(
    documents: Documents,
    length: int,
    *,
    path: Path | None = None,
    too_long: str = "error",
) -> Samples:
    """Makes one sample of each document, padded to `length` tokens on the right.

    A sample is `input_ids`, `attention_mask` and `labels`, which are -100 where there is no loss.
    The other arguments are those of `pack`.
    """
    plan = [[piece] for piece in _pieces(documents, length, too_long)]
    names = ("input_ids", "attention_mask", "labels")
    return _made(_Filler(documents, length, names), plan, path)


def _listed(shapes: Mapping[str, Sequence[int]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())


def _pieces(documents: Documents, length: int, too_long: str) -> list[Span]:
    """The parts of documents that become samples, each as (first token, one behind the last)."""
    if length < 2:
        raise ConfigError(f"length: is {length}, must be 2 or more", "length")
    if too_long not in _WAYS:
        raise ConfigError(f"too_long: is {too_long!r}, must be one of {', '.join(_WAYS)}",
                          "too_long")
    ends = documents.ends.tolist()
    runs: list[list[int]] = documents.trained.tolist()
    lasts = [last for _, last in runs]
    pieces: list[Span] = []
    for number, (begin, end) in enumerate(zip([0, *ends], ends), 1):
        if end - begin <= length:
            pieces.append((begin, end))
        elif too_long == "error":
            raise ConfigError(
                f"length: is {length}, but document {number} has {end - begin} tokens; use a "
                "larger one, or too_long='truncate', 'split' or 'drop'", "length")
        elif too_long != "drop":
            several = range(begin, end if too_long == "split" else begin + 1, length)
            cut = ((first, min(first + length, end)) for first in several)
            pieces += [piece for piece in cut if _is_trained(piece, runs, lasts)]
    if not pieces:
        raise ConfigError(f"length: with {length} no document has a token to train on; use a "
                          "larger one", "length")
    return pieces


def _is_trained(piece: Span, runs: Sequence[Sequence[int]], lasts: Sequence[int]) -> bool:
    """Whether some token behind its first one has a loss."""
    run = bisect.bisect_right(lasts, piece[0] + 1)
    return run < len(runs) and runs[run][0] < piece[1]


def _best_fit(sizes: Sequence[int], length: int) -> list[list[int]]:
    """Puts the largest first, and each where the least is left. Bins are in order of their first.

    Source: best-fit decreasing.
    """
    bins: list[list[int]] = []
    open_bins: dict[int, list[int]] = {}  # by the room that they have left
    rooms: list[int] = []  # the keys, in order
    for piece in sorted(range(len(sizes)), key=lambda piece: -sizes[piece]):
        at = bisect.bisect_left(rooms, sizes[piece])
        if at == len(rooms):
            chosen, room = len(bins), length
            bins.append([])
        else:
            room = rooms[at]
            chosen = open_bins[room].pop()
            if not open_bins[room]:
                del open_bins[room], rooms[at]
        bins[chosen].append(piece)
        left = room - sizes[piece]
        if left > 0 and left not in open_bins:
            bisect.insort(rooms, left)
        if left > 0:
            open_bins.setdefault(left, []).append(chosen)
    return sorted(sorted(each) for each in bins)


class _Filler:
    """Writes documents into samples."""

    def __init__(self, documents: Documents, length: int, names: Sequence[str]) -> None:
        self._documents, self.length, self.names = documents, length, names
        self._runs: list[list[int]] = documents.trained.tolist()
        self._lasts = [last for _, last in self._runs]

    def filled(self, plan: Sequence[Sequence[Span]]) -> dict[str, torch.Tensor]:
        """The samples that consist of these pieces."""
        shape = (len(plan), self.length)
        fills = {"input_ids": self._documents.pad_token_id, "labels": IGNORED}
        made = {name: torch.full(shape, fills.get(name, 0), dtype=torch.int32)
                for name in self.names}
        for row, pieces in enumerate(plan):
            at = 0
            for begin, end in pieces:
                self._fill({name: tensor[row] for name, tensor in made.items()}, at, begin, end)
                at += end - begin
            if "position_ids" in made:  # what pads is a document of its own
                made["position_ids"][row, at:] = torch.arange(self.length - at)
        return made

    def _fill(self, rows: Mapping[str, torch.Tensor], at: int, begin: int, end: int) -> None:
        size = end - begin
        tokens = self._documents.tokens[begin:end].to(torch.int32)
        rows["input_ids"][at:at + size] = tokens
        for first, last in self._trained(begin + 1, end):
            rows["labels"][at + first - begin:at + last - begin] = (
                tokens[first - begin:last - begin])
        if "position_ids" in rows:
            rows["position_ids"][at:at + size] = torch.arange(size)
        if "attention_mask" in rows:
            rows["attention_mask"][at:at + size] = 1

    def _trained(self, begin: int, end: int) -> Iterator[Span]:
        run = bisect.bisect_right(self._lasts, begin)
        while run < len(self._runs) and self._runs[run][0] < end:
            yield max(self._runs[run][0], begin), min(self._runs[run][1], end)
            run += 1


def _made(filler: _Filler, plan: Sequence[Sequence[Span]], path: Path | None) -> Samples:
    if path is None:
        return Samples(filler.filled(plan))
    target = pathlib.Path(path)
    shape = [len(plan), filler.length]
    header, begins = header_of({name: (torch.int32, shape) for name in filler.names}, {})
    part = target.with_name(target.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(header)
            for first in range(0, len(plan), _BLOCK):
                for name, tensor in filler.filled(plan[first:first + _BLOCK]).items():
                    file.seek(len(header) + begins[name] + first * filler.length * 4)
                    write_tensor(file, tensor)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return Samples.open(target)
