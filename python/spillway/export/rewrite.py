"""Makes a graph one that a layer may run: keyed dropout, observed statistics, no other chance."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import torch
from torch import nn

from .errors import ExportError
from .graphs import Argument, Graph, Kind, Node, Value, read_program, substituted, values_in
from .replacements import Attention, Bernoulli, Counts, FeatureDropout, NormByStatistics

_RECURRENT = {"aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu"}
_REMEDIES = {
    "aten::rrelu": "Use LeakyReLU",
    "aten::alpha_dropout": "Use Dropout",
    "aten::feature_alpha_dropout": "Use Dropout",
}


@dataclass(frozen=True)
class Statistic:
    """A buffer that batch norm moves."""

    kind: str  # "average" or "count"
    momentum: float | None = None  # of an average; None: the mean over all steps
    mean: str = ""  # of a count: the running mean that it belongs to


def statistics_of(graph: Graph, without_momentum: Iterable[str] = ()) -> dict[str, Statistic]:
    """The buffers that batch norms of a graph in train mode move, by name.

    `without_momentum` names modules whose momentum is None.
    """
    found: dict[str, Statistic] = {}
    owners: dict[str, str] = {}
    for node in graph.nodes:
        if _observes(node):
            mean, variance = cast(Value, node.args[3]), cast(Value, node.args[4])
            owner = mean.name.rpartition(".")[0]
            momentum = None if owner in without_momentum else float(cast(float, node.args[6]))
            found[mean.name] = found[variance.name] = Statistic("average", momentum)
            owners[owner] = mean.name
    for node in graph.nodes:
        count = node.args[0] if node.op == "aten::add_" else None
        if isinstance(count, Value) and count.kind == Kind.STATE and count.shape == ():
            owner = count.name.rpartition(".")[0]
            if owner in owners and count.dtype == torch.int64:
                found[count.name] = Statistic("count", mean=owners[owner])
    return found


def rewritten(graph: Graph, statistics: dict[str, Statistic]) -> Graph:
    """The graph as layers may run it. Its nodes may have become others; values stay the same."""
    return _Rewriter(graph, statistics).result


def _observes(node: Node) -> bool:
    """Whether a node is a batch norm that moves running statistics."""
    return node.op == "aten::batch_norm" and node.args[5] is True and node.args[3] is not None


class _Rewriter:
    def __init__(self, graph: Graph, statistics: dict[str, Statistic]) -> None:
        self.result = Graph(inputs=graph.inputs, constants=dict(graph.constants))
        self._statistics = statistics
        self._instead: dict[Value, Value] = {}
        self._uniform: dict[Value, Node] = {}  # random numbers, maybe plus a number
        self._keep: dict[Value, float] = {}  # that number
        self._learned: set[Value] = set()  # may depend on weights
        self._whole: set[Value] = set()  # floating-point numbers without fractions
        self._has_writes = any(value.kind != Kind.STATE for node in graph.nodes
                               for value in node.writes())
        self._handlers: dict[str, Callable[[Node], Value | None]] = {
            "aten::dropout": self._dropout,
            "aten::dropout_": self._in_place(self._dropout),
            "aten::feature_dropout": self._feature_dropout,
            "aten::feature_dropout_": self._in_place(self._feature_dropout),
            "aten::scaled_dot_product_attention": self._attention,
            "aten::batch_norm": self._batch_norm,
            "aten::detach_": self._detach,
            "aten::add_": self._count,
            "aten::rand": self._rand,
            "aten::add": self._shifted_rand,
            "aten::floor": self._floor,
            "aten::floor_": self._floor,
            "aten::bernoulli_": self._in_place(self._bernoulli),
            "aten::view": self._view,
            "aten::to": self._converted,
            "aten::histc": self._histc,
        }
        self._add_all(graph.nodes)
        self.result.outputs = [self._now(value) for value in graph.outputs]

    def _now(self, value: Value) -> Value:
        while value in self._instead and self._instead[value] is not value:
            value = self._instead[value]
        return value

    def _add_all(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            node.args = [substituted(each, self._now) for each in node.args]
            if any(value in self._learned or _is_weight(value) for value in node.reads()):
                self._learned.update((*node.outputs, *node.writes()))
            handler = self._handlers.get(node.op)
            instead = handler(node) if handler else None
            if instead is not None:
                for output in node.outputs:
                    self._instead[output] = instead
                continue
            self._check(node)
            self.result.nodes.append(node)

    def _check(self, node: Node) -> None:
        for value in node.reads():
            if value in self._uniform:  # only _floor knows what they are for
                node = self._uniform[value]
        where = f"the module {node.path or 'itself'} calls {node.op}"
        for value in node.writes():
            if value.kind != Kind.RESULT:
                what = "the input" if value.kind == Kind.INPUT else "the parameter or buffer"
                raise ExportError(f"{where}, which changes {what} {value.name} in place. Compute "
                                  "a new tensor instead")
        if node.op in _RECURRENT:
            if _drops(node):
                raise ExportError(f"{where} with dropout inside. Use one module per recurrent "
                                  "layer and nn.Dropout between them")
        elif node.is_random and node.op not in ("spillway::dropout", *_SOMETIMES_RANDOM):
            self._refuse_chance(node)

    def _refuse_chance(self, node: Node) -> NoReturn:
        remedy = _REMEDIES.get(node.op, "Only dropout and drop path can be random; set the option "
                               "that calls it to 0 or remove it")
        raise ExportError(f"the module {node.path or 'itself'} calls {node.op}, which draws random "
                          f"numbers. {remedy}")

    def _dropout(self, node: Node) -> Value | None:
        x, p, train = cast(Value, node.args[0]), cast(float, node.args[1]), node.args[2]
        if not train or p == 0:
            return x
        if p >= 1:
            raise ExportError(f"the module {node.path} drops with p = {p}; p must be below 1")
        result = Value(Kind.RESULT, x.shape, x.dtype)
        self.result.nodes.append(Node("spillway::dropout", "", [x, p], [result], node.path))
        return result

    def _feature_dropout(self, node: Node) -> Value | None:
        x, p, train = cast(Value, node.args[0]), cast(float, node.args[1]), node.args[2]
        if not train or p == 0:
            return x
        return self._inline(node, FeatureDropout(p), [x])

    def _rand(self, node: Node) -> Value:
        self._uniform[node.outputs[0]] = node
        return node.outputs[0]

    def _shifted_rand(self, node: Node) -> Value | None:
        """Drop path as Hugging Face writes it: floor(keep + rand)."""
        x, keep = node.args[0], node.args[1]
        if not isinstance(x, Value) or x not in self._uniform or not isinstance(keep, float):
            return None
        self._uniform[node.outputs[0]] = self._uniform[x]
        self._keep[node.outputs[0]] = keep
        return node.outputs[0]

    def _floor(self, node: Node) -> Value | None:
        x = cast(Value, node.args[0])
        if x not in self._keep:
            return None
        return self._inline(node, Bernoulli(self._keep[x], x.shape, x.dtype), [])

    def _bernoulli(self, node: Node) -> Value | None:
        x, p = cast(Value, node.args[0]), node.args[1]
        if not isinstance(p, float):
            self._refuse_chance(node)
        return self._inline(node, Bernoulli(p, x.shape, x.dtype), [])

    def _view(self, node: Node) -> None:
        """A view, or a copy: on GPUs, results can have other strides than in this graph."""
        if node.overload == "" and not self._has_writes:
            node.op, node.target = "aten::reshape", torch.ops.aten.reshape.default

    def _converted(self, node: Node) -> None:
        x = node.args[0]
        if isinstance(x, Value) and not x.dtype.is_floating_point:
            self._whole.update(node.outputs)

    def _histc(self, node: Node) -> Value | None:
        """How models count the tokens of each expert. The operator is not deterministic on GPUs."""
        x, bins, least, most = node.args
        if x not in self._whole or least != 0 or most != cast(int, bins) - 1:
            return None
        return self._inline(node, Counts(cast(int, bins)), [x])

    def _in_place(self, handler: Callable[[Node], Value | None]) -> Callable[[Node], Value]:
        """Computes a result apart, then copies it over the input."""
        def handle(node: Node) -> Value:
            x, result = cast(Value, node.args[0]), handler(node)
            if result is not None and result is not x:
                copy = torch.ops.aten.copy_.default
                copied = Node("aten::copy_", "", [x, result, False],
                              [Value(Kind.RESULT, x.shape, x.dtype)], node.path, copy)
                self._check(copied)
                self.result.nodes.append(copied)
            return x
        return handle

    def _attention(self, node: Node) -> Value | None:
        query, key, value, mask, p, is_causal, scale, enable_gqa = node.args
        # PyTorch chooses the kernel by whether the mask needs a gradient; a forward without graphs
        # would have other bits.
        if p == 0 and not (isinstance(mask, Value) and mask in self._learned):
            return None
        module = Attention(cast(float, p), bool(is_causal), cast("float | None", scale),
                           bool(enable_gqa))
        return self._inline(node, module, [query, key, value, mask])

    def _batch_norm(self, node: Node) -> Value | None:
        x, weight, bias, mean, variance, train, _, eps, _ = node.args
        if _observes(node):
            self.result.nodes.append(Node("spillway::batch_norm", "",
                                          [x, weight, bias, mean, variance, eps],
                                          node.outputs, node.path))
            return node.outputs[0]
        if not train and cast(Value, x).dtype != torch.float32:
            return self._inline(node, NormByStatistics(cast(float, eps)),
                                [x, mean, variance, weight, bias])
        return None

    def _detach(self, node: Node) -> Value:
        x = cast(Value, node.args[0])
        detach = torch.ops.aten.detach.default
        result = Value(Kind.RESULT, x.shape, x.dtype)
        self.result.nodes.append(Node("aten::detach", "", [x], [result], node.path, detach))
        self._instead[x] = result
        return result

    def _count(self, node: Node) -> Value | None:
        """Spillway counts steps itself."""
        x = cast(Value, node.args[0])
        statistic = self._statistics.get(x.name) if x.kind == Kind.STATE else None
        return x if statistic is not None and statistic.kind == "count" else None

    def _inline(self, node: Node, module: nn.Module, args: list[Argument]) -> Value:
        """The nodes of `module`, called with `args`, in place of a node."""
        graph = _traced(module, args)
        given = list(values_in(args))
        inside = dict(zip(graph.inputs, given))
        assert not graph.constants
        for each in graph.nodes:
            each.args = [substituted(argument, lambda value: inside.get(value, value))
                         for argument in each.args]
            each.path = node.path
        self._add_all(graph.nodes)
        return self._now(graph.outputs[0])


def _is_weight(value: Value) -> bool:
    return value.kind == Kind.STATE and value.dtype.is_floating_point


# Attention here has no dropout any more.
_SOMETIMES_RANDOM = ("aten::scaled_dot_product_attention",)


def _drops(node: Node) -> bool:
    """Whether a recurrent node has dropout inside."""
    names = [argument.name for argument in cast(Any, node.target)._schema.arguments]
    return bool(node.args[names.index("train")]) and node.args[names.index("dropout")] != 0


def _traced(module: nn.Module, args: list[Argument]) -> Graph:
    """Exports a replacement, which has no state, for values like those in `args`."""
    like = [torch.empty(value.shape, dtype=value.dtype, device="meta")
            if isinstance(value, Value) else value for value in args]
    program = torch.export.export(module.train(), tuple(like))
    return read_program(program, lambda name: name, "")
