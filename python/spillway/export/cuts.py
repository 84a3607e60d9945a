"""Where a graph can be cut into layers: after nodes where exactly one new tensor is alive."""

from __future__ import annotations

import os.path
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .errors import ExportError
from .flow import Flow
from .graphs import Kind, Node, Value

# A layer has at least one of these, which are worth moving weights for.
_PRODUCTS = {"linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "embedding", "lstm",
             "gru", "rnn", "bilinear"}
_TYPES = {torch.float32, torch.bfloat16, torch.int64}
_Key = frozenset[tuple[str, int]]


@dataclass(frozen=True)
class Cut:
    """An end of a layer."""

    end: int  # number of nodes of the work before it
    value: Value  # what the layer gives


def candidates(flow: Flow, output: Value) -> list[Cut]:
    """All places where one tensor is alive, in order. The last is the output itself."""
    last_read: dict[Value, int] = {}
    last_write: dict[Value, int] = {}
    for i, node in enumerate(flow.work):
        for value in node.reads():
            if flow.crosses(value):
                last_read[value] = i
        for value in node.writes():
            last_write[flow.root(value)] = i
    last_read[output] = len(flow.work)
    found = []
    alive: set[Value] = set()
    for i, node in enumerate(flow.work):
        alive.update(value for value in node.outputs if value in last_read)
        alive = {value for value in alive if last_read[value] > i}
        if len(alive) == 1:
            value = next(iter(alive))
            root = flow.root(value)
            if (value.dtype in _TYPES and root.kind == Kind.RESULT
                    and last_write.get(root, -1) <= i):
                found.append(Cut(i + 1, value))
    return [cut for cut in found if cut.end < len(flow.work)] + [Cut(len(flow.work), output)]


def common_cuts(flows: Sequence[Flow], outputs: Sequence[Value]) -> list[list[Cut]]:
    """Cuts that exist in all graphs of a module, for each graph.

    Cuts belong together if the same parameters were read before, and the tensors have one shape
    and type.
    """
    grouped = [_by_parameters(flow, candidates(flow, output)[:-1])
               for flow, output in zip(flows, outputs)]
    everything = _keys(flows[0])[-1]
    chosen: list[list[Cut]] = [[] for _ in flows]
    for key in grouped[0]:
        if not key or key == everything:
            continue
        groups = [group.get(key, []) for group in grouped]
        kinds = set.intersection(*({(cut.value.shape, cut.value.dtype) for cut in group}
                                   for group in groups))
        if not kinds:
            continue
        smallest = min(torch.Size(shape).numel() for shape, _ in kinds)
        for cuts, group in zip(chosen, groups):
            cuts.append([cut for cut in group if cut.value.numel == smallest
                         and (cut.value.shape, cut.value.dtype) in kinds][-1])
    # The last of one group may have another shape of equal size than that of another graph.
    same = [len({(cut.value.shape, cut.value.dtype) for cut in cuts}) == 1
            for cuts in zip(*chosen)]
    chosen = [[cut for cut, fits in zip(cuts, same) if fits] for cuts in chosen]
    keep = _large_enough(flows[0], chosen[0])
    return [[cuts[i] for i in keep] + [Cut(len(flow.work), output)]
            for flow, cuts, output in zip(flows, chosen, outputs)]


def cuts_at(flow: Flow, output: Value, modules: Sequence[str]) -> list[Cut]:
    """The cuts behind the modules of these names."""
    possible = {cut.end: cut for cut in candidates(flow, output)}
    ends: dict[int, Cut] = {}
    for name in modules:
        inside = [i for i, node in enumerate(flow.work)
                  if node.path == name or node.path.startswith(name + ".")]
        if not inside:
            paths = sorted({node.path for node in flow.work if node.path})
            raise ExportError(f"cut_at has '{name}', which is no module that computes with "
                              f"parameters; some that do: {', '.join(paths[:8])}")
        end = inside[-1] + 1
        if end not in possible:
            raise ExportError(f"cut_at has '{name}', but several tensors are alive behind it. Name "
                              "a module whose result alone is used later")
        ends[end] = possible[end]
    ends[len(flow.work)] = Cut(len(flow.work), output)
    return [ends[end] for end in sorted(ends)]


def work_of(flow: Flow, cuts: Sequence[Cut]) -> list[list[Node]]:
    """The nodes between the cuts."""
    begins = [0, *(cut.end for cut in cuts[:-1])]
    return [flow.work[begin:cut.end] for begin, cut in zip(begins, cuts)]


def common_path(paths: Sequence[str]) -> str:
    """The innermost module that contains all these."""
    parts = [path.split(".") if path else [] for path in paths]
    return ".".join(os.path.commonprefix(parts)) if parts else ""


def _keys(flow: Flow) -> list[_Key]:
    """For each number of nodes: which parameters were read before, and how often."""
    counts: Counter[str] = Counter()
    keys: list[_Key] = [frozenset()]
    for node in flow.work:
        names = [value.name for value in node.reads() if flow.is_parameter(value)]
        counts.update(names)
        keys.append(frozenset(counts.items()) if names else keys[-1])
    return keys


def _by_parameters(flow: Flow, cuts: Sequence[Cut]) -> dict[_Key, list[Cut]]:
    keys, groups = _keys(flow), dict[_Key, list[Cut]]()
    for cut in cuts:
        groups.setdefault(keys[cut.end], []).append(cut)
    return groups


def _large_enough(flow: Flow, cuts: list[Cut]) -> list[int]:
    """The positions of the cuts that stay so that each layer has a product with a matrix.

    A piece without one, such as a norm, joins the piece before it. If twins of that piece are
    followed by something else, as all blocks but the last one before a final norm, it joins the
    piece behind it, so that the twins stay equal.
    """
    pieces = work_of(flow, [*cuts, Cut(len(flow.work), flow.work[-1].outputs[0])])
    signatures = [_signature(flow, piece) for piece in pieces]
    followers: dict[tuple[object, ...], set[tuple[object, ...]]] = {}
    for before, behind in zip(signatures, signatures[1:]):
        followers.setdefault(before, set()).add(behind)
    dropped: set[int] = set()
    for i, piece in enumerate(pieces):
        if _has_product(flow, piece):
            continue
        is_unlike_twins = i > 0 and len(followers[signatures[i - 1]]) > 1
        is_last = i + 1 == len(pieces)
        dropped.add(i if not is_last and (i == 0 or is_unlike_twins) else i - 1)
    return [i for i in range(len(cuts)) if i not in dropped]


def _signature(flow: Flow, piece: Sequence[Node]) -> tuple[object, ...]:
    shapes = tuple(value.shape for node in piece for value in node.reads()
                   if flow.is_parameter(value))
    return tuple((node.op, node.overload) for node in piece), shapes


def _has_product(flow: Flow, piece: Sequence[Node]) -> bool:
    has_matrix = any(len(value.shape) >= 2 for node in piece for value in node.reads()
                     if flow.is_parameter(value))
    return has_matrix and any(node.op.startswith("aten::conv")
                              or _PRODUCTS.intersection(node.op.removeprefix("aten::").split("_"))
                              for node in piece)
