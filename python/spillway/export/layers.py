"""Layers of a model as the document of a `.spw` file describes them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .cuts import Cut, common_path, work_of
from .errors import ExportError
from .flow import Flow
from .graphs import Argument, Graph, Kind, Node, Value
from .rewrite import Statistic
from .spw import TYPE_NAMES

_MOST_DROPOUTS = 16  # the random numbers of a layer have as many streams


@dataclass
class Layer:
    """A layer, whose inputs are names; the parameters and constants are, too."""

    name: str
    inputs: list[str]
    parameters: list[str]
    constants: list[str]
    train: dict[str, Any]  # a graph
    eval: dict[str, Any]
    output: Value
    differentiable: bool = True


@dataclass
class Constants:
    """Tensors that graphs read and nothing changes, each once."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)

    def add(self, name: str, tensor: torch.Tensor) -> str:
        """The name of this tensor in the file, which is another one if `name` is taken."""
        if tensor.dtype not in TYPE_NAMES:
            raise ExportError(f"the module reads '{name}' of type {tensor.dtype}; the file can "
                              f"hold {', '.join(TYPE_NAMES.values())}. Convert the buffer")
        for known, other in self.tensors.items():
            if _is_same(tensor, other):
                return known
        while name in self.tensors:
            name += "_"
        self.tensors[name] = tensor
        return name


def _is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape or a.is_meta != b.is_meta:
        return False
    return a is b or a.is_meta or torch.equal(a.cpu(), b.cpu())


@dataclass(frozen=True)
class Side:
    """A module in one mode: its graph, cut."""

    graph: Graph
    flow: Flow
    cuts: list[Cut]


class LayerBuilder:
    """Makes layers of the graphs of the two modes."""

    def __init__(self, train: Side, evaluation: Side, input_names: Sequence[str],
                 state: Callable[[str], torch.Tensor], statistics: dict[str, Statistic],
                 constants: Constants) -> None:
        self._sides = [train, evaluation]
        self._state, self._statistics, self._constants = state, statistics, constants
        self._input_names = {value: name for side in self._sides
                             for value, name in zip(side.graph.inputs, input_names)}
        self._layer_of: dict[Value, str] = {}  # by what a layer gives
        self._first_input = input_names[0]

    def layers(self, trainable: Callable[[str], bool]) -> list[Layer]:
        """All layers, in the order of execution."""
        pieces = [work_of(side.flow, side.cuts) for side in self._sides]
        taken = {"loss", "rows", *self._input_names.values()}
        names = _layer_names(self._sides[0].flow, pieces[0], taken)
        made = []
        is_differentiable = False
        for i, name in enumerate(names):
            results = [side.cuts[i].value for side in self._sides]
            layer = self.layer(name, [pieces[0][i], pieces[1][i]], results)
            is_differentiable |= any(map(trainable, layer.parameters))
            layer.differentiable = is_differentiable and results[0].dtype.is_floating_point
            self._layer_of.update({result: name for result in results})
            made.append(layer)
        return made

    def layer(self, name: str, work: Sequence[list[Node]], results: Sequence[Value]) -> Layer:
        """One layer: what it computes in train and eval mode, and what that gives."""
        nodes = [side.flow.with_pure(piece, result)
                 for side, piece, result in zip(self._sides, work, results)]
        lists: dict[str, list[str]] = {"inputs": [], "parameters": [], "constants": []}
        names: dict[Value, tuple[str, str]] = {}
        for side, each, result in zip(self._sides, nodes, results):
            for value in _given(each, result):
                names[value] = self._named(side.graph, value)
                group, key = names[value]
                if key not in lists[group]:
                    lists[group].append(key)
        lists["parameters"] += [count for count, statistic in self._statistics.items()
                                if statistic.kind == "count"
                                and statistic.mean in lists["parameters"]]
        if not lists["inputs"]:  # a layer has at least one
            lists["inputs"].append(self._first_input)
        order = [(group, key) for group, keys in lists.items() for key in keys]
        number = {each: i for i, each in enumerate(order)}
        graphs = [_encoded_graph(each, {value: number[key] for value, key in names.items()},
                                 len(order), result, name)
                  for each, result in zip(nodes, results)]
        return Layer(name, lists["inputs"], lists["parameters"], lists["constants"], graphs[0],
                     graphs[1], results[0])

    def loss(self, results: Sequence[Value]) -> Layer:
        """What remains to be computed behind the last layer."""
        wholes = [Flow(side.graph, [side.cuts[-1].value, result], side.flow.is_parameter)
                  for side, result in zip(self._sides, results)]
        done = [{*side.flow.work} for side in self._sides]
        work = [[node for node in flow.work if node not in before]
                for flow, before in zip(wholes, done)]
        for piece in work:
            for node in piece:
                if any(map(wholes[0].is_parameter, node.reads())):
                    raise ExportError(f"the loss uses parameters, in {node.path or node.op}; "
                                      "compare the output with targets only")
        self._sides = [Side(side.graph, flow, side.cuts)
                       for side, flow in zip(self._sides, wholes)]
        return self.layer("loss", work, results)

    def _named(self, graph: Graph, value: Value) -> tuple[str, str]:
        """The list in which a value from outside of the layer stands, and its name there."""
        if value.kind == Kind.INPUT:
            return "inputs", self._input_names[value]
        if value.kind == Kind.CONSTANT:
            return "constants", self._constants.add(value.name, graph.constants[value.name])
        if value.kind == Kind.RESULT:
            if value not in self._layer_of:
                raise ExportError("the loss reads a tensor inside of the module besides its "
                                  "output; choose another loss, or another output=")
            return "inputs", self._layer_of[value]
        if self._sides[0].flow.is_parameter(value):
            return "parameters", value.name
        return "constants", self._constants.add(value.name, self._state(value.name))


def document_layers(layers: Sequence[Layer], parameters: Sequence[str], constants: Sequence[str]
                    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The graphs, each once, and the layers of the document."""
    numbers: dict[str, int] = {}
    graphs: list[dict[str, Any]] = []

    def graph_number(graph: dict[str, Any]) -> int:
        text = json.dumps(graph)
        if text not in numbers:
            numbers[text] = len(graphs)
            graphs.append(graph)
        return numbers[text]

    described = [{
        "name": layer.name, "inputs": layer.inputs,
        "parameters": [parameters.index(name) for name in layer.parameters],
        "constants": [constants.index(name) for name in layer.constants],
        "train": graph_number(layer.train), "eval": graph_number(layer.eval),
        "output": {"shape": list(layer.output.shape), "dtype": word(layer.output.dtype),
                   "differentiable": layer.differentiable},
    } for layer in layers]
    return graphs, described


def word(value: object) -> str:
    """`torch.float32` as "float32"."""
    return str(value).removeprefix("torch.")


def _given(nodes: Iterable[Node], result: Value) -> list[Value]:
    """The values that come from outside, in the order of their first use: edges first."""
    made: set[Value] = set()
    given: dict[Value, None] = {}
    for node in nodes:
        given.update({value: None for value in node.reads() if value not in made})
        made.update(node.outputs)
    if result not in made:
        given[result] = None
    return sorted(given, key=lambda value: value.kind != Kind.RESULT)


def _encoded_graph(nodes: Sequence[Node], given: dict[Value, int], num_given: int, result: Value,
                   name: str) -> dict[str, Any]:
    numbers, encoded, next_number = dict(given), [], num_given
    num_dropouts = sum(node.op == "spillway::dropout" for node in nodes)
    if num_dropouts > _MOST_DROPOUTS:
        raise ExportError(f"the layer '{name}' would have {num_dropouts} dropouts, but a layer can "
                          f"have {_MOST_DROPOUTS}. Name modules in cut_at behind which one tensor "
                          "is alive")
    for node in nodes:
        described: dict[str, Any] = {"op": node.op, "overload": node.overload,
                                     "args": [_encoded(each, numbers) for each in node.args]}
        if len(node.outputs) != 1:
            described["outputs"] = len(node.outputs)
        for value in node.outputs:
            numbers[value] = next_number
            next_number += 1
        encoded.append(described)
    return {"nodes": encoded, "result": numbers[result]}


def _encoded(argument: Argument, numbers: dict[Value, int]) -> Any:
    if isinstance(argument, Value):
        return {"value": numbers[argument]}
    if isinstance(argument, (list, tuple)):
        return [_encoded(each, numbers) for each in argument]
    if isinstance(argument, float) and not math.isfinite(argument):
        return {"float": str(argument)}
    for kind, key in ((torch.dtype, "dtype"), (torch.layout, "layout"),
                      (torch.memory_format, "memory_format")):
        if isinstance(argument, kind):
            return {key: word(argument)}
    return {"device": True} if isinstance(argument, torch.device) else argument


def _layer_names(flow: Flow, pieces: Sequence[list[Node]], taken: set[str]) -> list[str]:
    """Names of the modules that layers are, each once."""
    paths = [common_path([node.path for node in piece if _matrices(flow, node) is not None])
             for piece in pieces]
    names: list[str] = []
    for path, piece in zip(paths, pieces):
        name = path
        if not path or paths.count(path) > 1:  # the part with the last matrix
            owner = [node.path for node in piece if _matrices(flow, node)][-1:]
            inner = common_path(owner)[len(path):].lstrip(".").split(".")[0]
            name = ".".join(filter(None, (path, inner))) or "module"
        unique, number = name, 2
        while unique in names or unique in taken:
            unique, number = f"{name}_{number}", number + 1
        names.append(unique)
    return names


def _matrices(flow: Flow, node: Node) -> int | None:
    """How many of the parameters that a node reads are matrices; None: it reads none."""
    shapes = [value.shape for value in node.reads() if flow.is_parameter(value)]
    return sum(len(shape) >= 2 for shape in shapes) if shapes else None
