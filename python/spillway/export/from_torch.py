"""Any torch.nn.Module as a `.spw` file, which Spillway trains without Python."""

from __future__ import annotations

import json
import os
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .calls import Arguments, Call, Example, in_dtype, in_mode
from .cuts import candidates, common_cuts, cuts_at
from .errors import ExportError, first_line, place_of, told_once
from .exported_model import ExportedModel, described
from .flow import Flow
from .graphs import Graph, Kind, Value, read_program, values_in
from .layers import Constants, Layer, LayerBuilder, Side, document_layers, word
from .losses import Loss, loss_of, with_classes_last
from .rewrite import Statistic, rewritten, statistics_of
from .rows import Part, Row, index_limits
from .spw import TYPE_NAMES, write_safetensors

VERSION = 1
_TORCH = "2.11."
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_METRICS = ("accuracy", "perplexity")


def from_torch(
    module: nn.Module,
    example: Example,
    *,
    path: str | os.PathLike[str],
    batch_size: int | None = None,
    loss: str | nn.Module = "cross_entropy",
    targets: torch.Tensor | str | None = None,
    output: str | int | None = None,
    cut_at: Sequence[str] | None = None,
    dtype: str = "float32",
    metrics: Sequence[str] | None = None,
    weights: Callable[[str], torch.Tensor | None] | None = None,
) -> ExportedModel:
    """Writes a module, with its present weights, as a model in layers. The module stays as it is.

    `example`: a tensor, a tuple, or a dict of tensors by names of arguments. Their first dimension
    is the batch. Only types and shapes matter. Where two arguments are one and the same tensor,
    they are one part of a sample.
    `batch_size`: samples of a virtual node, for which the shapes are fixed; as in the example.
    `loss`: "cross_entropy" (classes in the last dimension of the output), "mse", "bce" (of logits),
    a module that takes output and targets and gives their mean, or "model": the loss that the
    module itself gives, as those of Hugging Face do for `labels`.
    `targets`: an example of them, or "next_token" for a language model, whose samples are the
    tokens of the input and one more. By default they have the shape that the loss expects.
    `output`: key or position of the tensor to compare with targets; by default `logits`.
    `cut_at`: names of modules behind which layers end; by default wherever one tensor is alive.
    `metrics`: of evaluations: "accuracy", "perplexity"; by default those that fit the loss.
    `weights`: gives the values of a parameter by its name, or None for those in the module. It is
    asked while the file is written, so that not all of them need to be in memory at once.
    Raises ExportError, which says what cannot be exported and what to do.
    """
    if not torch.__version__.startswith(_TORCH):
        raise ExportError(f"torch is {torch.__version__}; graphs are made for torch {_TORCH}x. "
                          "Run: python -m pip install 'torch==2.11.*'")
    if not isinstance(module, nn.Module):
        raise ExportError(f"module is a {type(module).__name__}; give a torch.nn.Module")
    if dtype not in _DTYPES:
        raise ExportError(f"dtype is {dtype!r}, must be float32 or bfloat16")
    if not any(each.requires_grad for each in module.parameters()):
        raise ExportError(f"{type(module).__name__} has no parameter to train; set requires_grad "
                          "of some")
    for each in metrics or ():
        if each not in _METRICS:
            raise ExportError(f"metrics has {each!r}, must be among {', '.join(_METRICS)}")
    export = _Export(module, example, batch_size, loss_of(loss), output, _DTYPES[dtype])
    export.trace(targets)
    export.cut(cut_at)
    row = export.row(targets)
    chosen = export.fitting_metrics(targets) if metrics is None else list(metrics)
    document = export.document(row, chosen)
    state, untrained = export.state()
    write_safetensors(Path(path), {**export.tensors(), **untrained},
                      {"format": "pt", "spillway": json.dumps(document),
                       "state_dict": json.dumps(state)},
                      weights and (lambda name: weights(name.removeprefix("state_dict."))),
                      aligned=export.in_order_of_homes())
    return described(Path(path), document, state)


class _Export:
    """A module on its way to a file."""

    def __init__(self, module: nn.Module, example: Example, batch_size: int | None, loss: Loss,
                 output: str | int | None, dtype: torch.dtype) -> None:
        self._module, self._own = module, in_dtype(module, dtype)
        self._arguments = Arguments(module, example)
        self._loss, self._output, self._dtype = loss, output, dtype
        self.batch_size = self._arguments.samples if batch_size is None else batch_size
        if self.batch_size < 1:
            raise ExportError(f"batch_size is {batch_size}, must be above 0")
        self._tensors = self._arguments.resized(self.batch_size)
        self._names: dict[str, str] = {}  # of parameters and buffers: the first of the equal ones
        first: dict[int, str] = {}
        for name, tensor in _state(module).items():
            self._names[name] = first.setdefault(id(tensor), name)
        self._constants = Constants()
        self.layers: list[Layer] = []
        self._loss_layer: Layer | None = None

    def trace(self, targets: torch.Tensor | str | None) -> None:
        """Exports the module in both modes, with the loss if that is a graph."""
        example = targets if isinstance(targets, torch.Tensor) else None
        if self._loss.is_graph and self._loss.graph != "model" and example is None:
            raise ExportError("the loss is a module, so targets must be an example of what it "
                              "compares with: a tensor whose first dimension is the batch")
        train = self._traced(True, example)
        if example is not None and not self._loss.is_graph:
            shape = torch.Size([self.batch_size, *example.shape[1:]])
            self._loss = with_classes_last(self._loss, torch.Size(train.outputs[0].shape), shape)
            if self._loss.is_graph:
                train = self._traced(True, example)
        evaluation = self._traced(False, example)
        norms = {name for name, each in self._module.named_modules()
                 if getattr(each, "momentum", 0.0) is None}
        self._statistics: dict[str, Statistic] = statistics_of(train, norms)
        self._graphs = [rewritten(graph, self._statistics) for graph in (train, evaluation)]
        read = [set(values_in([*(node.args for node in graph.nodes), graph.outputs]))
                for graph in self._graphs]
        for name, *values in zip(self._tensors, *(graph.inputs for graph in self._graphs)):
            if not any(value in each for value, each in zip(values, read)):
                raise ExportError(f"{type(self._module).__name__} does not use '{name}' of the "
                                  "example, so it would have no effect; leave it out")

    def _traced(self, training: bool, targets: torch.Tensor | None) -> Graph:
        # Not above: it takes a second.
        from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

        graph_loss = self._loss.graph
        call = Call(self._own, self._arguments, self._output, graph_loss, self._dtype)
        inputs: dict[str, Any] = {"tensors": self._tensors}
        if isinstance(graph_loss, nn.Module):
            assert targets is not None
            inputs["targets"] = targets[torch.arange(self.batch_size) % len(targets)]
        self._call = call
        modes = "train" if training else "eval"
        try:
            with in_mode(call, training), warnings.catch_warnings(), told_once():
                warnings.simplefilter("ignore")
                program = torch.export.export(call, (), inputs)
        except ExportError:
            raise
        except GuardOnDataDependentSymNode as error:
            raise ExportError(
                f"{type(self._module).__name__} branches on values of tensors or makes a size of "
                f"them ({place_of(error)}), but its graph must be the same for all values. Choose "
                "by values with torch.where or a mask") from None
        except Exception as error:
            raise ExportError(
                f"torch.export cannot trace {type(self._module).__name__} in {modes} mode "
                f"({place_of(error)}): {first_line(error).rstrip('.')}. The forward must be made "
                "of tensor operations with fixed shapes and without branches on values") from error
        return read_program(program, self._name_of_state, "module")

    def _name_of_state(self, name: str) -> str:
        own = name.removeprefix("module.")
        return self._names[own] if name.startswith("module.") else name

    def _is_parameter(self, value: Value) -> bool:
        return value.kind == Kind.STATE and value.name in self._state_of_model

    def cut(self, cut_at: Sequence[str] | None) -> None:
        """Makes the layers."""
        state = _state(self._module)
        own_parameters = {id(each) for each in self._module.parameters()}
        self._state_of_model = {name: tensor for name, tensor in state.items()
                                if self._names[name] == name
                                and (id(tensor) in own_parameters or name in self._statistics)}
        outputs = [graph.outputs[0] for graph in self._graphs]
        flows = [Flow(graph, [output], self._is_parameter)
                 for graph, output in zip(self._graphs, outputs)]
        if not any(flow.crosses(output) for flow, output in zip(flows, outputs)):
            raise ExportError("the output depends on no parameter; choose another with output=")
        if cut_at is None:
            cuts = common_cuts(flows, outputs)
        else:
            cuts = [cuts_at(flow, output, cut_at) for flow, output in zip(flows, outputs)]
        train, evaluation = (Side(graph, flow, cut)
                             for graph, flow, cut in zip(self._graphs, flows, cuts))
        builder = LayerBuilder(train, evaluation, self._input_names(), self._constant,
                               self._statistics, self._constants)
        self.layers = builder.layers(self._is_trainable)
        if len(self.layers) == 1 and cut_at is None and len(self._read(self.layers)) > 8:
            _warn_about_one_layer(flows[0], outputs[0])
        if self._loss.is_graph:
            self._loss_layer = builder.loss([graph.outputs[1] for graph in self._graphs])

    def _input_names(self) -> list[str]:
        names = list(self._tensors)
        return [*names, _targets_name(names)]

    def _constant(self, name: str) -> torch.Tensor:
        """The value of a buffer, or of one of the loss."""
        if name in self._names:
            return _state(self._own)[name]
        return dict(self._call.named_buffers())[name]

    def _is_trainable(self, name: str) -> bool:
        return name not in self._statistics and self._state_of_model[name].requires_grad

    def _read(self, layers: Sequence[Layer]) -> list[str]:
        """The parameters that layers name, in the order of the module."""
        read = {name for layer in layers for name in layer.parameters}
        return [name for name in self._state_of_model if name in read]

    def row(self, targets: torch.Tensor | str | None) -> Row:
        """The parts of a sample: inputs, then targets."""
        limits = index_limits(self._graphs[0])
        parts: list[Part] = []
        places: dict[int, int] = {}  # of tensors that are several arguments
        end = 0
        for value, (name, tensor) in zip(self._graphs[0].inputs, self._arguments.tensors.items()):
            limit = limits.get(value) if tensor.dtype == torch.int64 else None
            begin = places.setdefault(id(tensor), end)
            parts.append(Part(name, begin, tuple(tensor.shape[1:]), tensor.dtype, limit))
            end = max(end, parts[-1].end)
        if self._loss.graph != "model":
            parts.append(self._targets_part(targets, parts, end))
        row = Row(tuple(parts))
        row.check()
        return row

    def _targets_part(self, targets: torch.Tensor | str | None, inputs: Sequence[Part],
                      end: int) -> Part:
        name = _targets_name([part.name for part in inputs])
        output = self.layers[-1].output.shape
        is_classes = self._loss.type == "cross_entropy"
        classes = output[-1] if is_classes else None
        if isinstance(targets, str):
            if targets != "next_token":
                raise ExportError(f"targets is {targets!r}; give a tensor or \"next_token\"")
            tokens = inputs[0]
            if len(inputs) > 1 or not is_classes or tokens.dtype != torch.int64 or len(
                    tokens.shape) != 1 or output[:-1] != (self.batch_size, *tokens.shape):
                raise ExportError(
                    "targets=\"next_token\" needs one input, int64 [batch, tokens], an output "
                    "[batch, tokens, classes] and loss=\"cross_entropy\"; otherwise give an "
                    "example of targets")
            return Part(name, tokens.begin + 1, tokens.shape, torch.int64, classes)
        if targets is None:
            if not output or output[0] != self.batch_size:
                raise ExportError(f"the output has the shape {list(output)}, whose first dimension "
                                  f"is not the batch ({self.batch_size}); give an example of "
                                  "targets")
            shape = output[1:-1] if is_classes else output[1:]
            return Part(name, end, shape, torch.int64 if is_classes else torch.float32, classes)
        dtype = torch.float32 if targets.is_floating_point() else torch.int64
        return Part(name, end, tuple(targets.shape[1:]), dtype, self._limit(targets, classes))

    def _limit(self, targets: torch.Tensor, classes: int | None) -> int | None:
        """Classes are checked, unless some of the example are ignored."""
        if classes is None or targets.is_meta:
            return classes
        if targets.is_floating_point():
            raise ExportError(f"targets are {targets.dtype}, but cross_entropy takes classes. Give "
                              "them as int64")
        ignored = targets == self._loss.ignore_index
        wrong = targets[~ignored & ((targets < 0) | (targets >= classes))]
        if wrong.numel() > 0:
            raise ExportError(f"targets have the class {int(wrong[0])}, but the output has "
                              f"{classes} classes")
        return None if bool(ignored.any()) else classes

    def fitting_metrics(self, targets: torch.Tensor | str | None) -> list[str]:
        """The metrics of an evaluation with this loss."""
        if self._loss.type != "cross_entropy":
            return []
        return ["perplexity"] if targets == "next_token" else ["accuracy"]

    def tensors(self) -> dict[str, torch.Tensor]:
        """What the file holds: parameters in float32, counts, constants."""
        held = {name: _stored(name, self._state_of_model[name]) for name in
                self._read(self.layers)}
        return {**held, **self._constants.tensors}

    def in_order_of_homes(self) -> list[str]:
        """Parameters in the order in which homes hold them, so that frozen ones can be mapped.

        Tied ones first, then layer by layer; frozen ones before all others.
        """
        uses = Counter(name for layer in self.layers for name in layer.parameters)
        by_layer = [name for layer in self.layers for name in layer.parameters]
        tied = [name for name in uses if uses[name] > 1]
        order = dict.fromkeys([*tied, *by_layer])
        return sorted(order, key=lambda name: name in self._statistics or self._is_trainable(name))

    def state(self) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
        """For each key of the module's state_dict its tensor in the file, and those to add."""
        parameters = self._read(self.layers)
        names: dict[str, str] = {}
        added: dict[str, torch.Tensor] = {}
        for key, tensor in self._module.state_dict().items():
            name = self._names.get(key)
            if name is None or tensor.dtype not in TYPE_NAMES:
                continue  # no tensor of PyTorch's modules
            names[key] = name
            if name not in parameters:
                names[key] = f"state_dict.{name}"
                added[names[key]] = tensor.detach()
        return names, added

    def document(self, row: Row, metrics: list[str]) -> dict[str, Any]:
        """The description of the model."""
        parameters, constants = self._read(self.layers), list(self._constants.tensors)
        everything = [*self.layers, *([self._loss_layer] if self._loss_layer else [])]
        graphs, layers = document_layers(everything, parameters, constants)
        loss = self._loss.document()
        if self._loss_layer is None:
            loss["inputs"] = [self.layers[-1].name, row.parts[-1].name]
        else:
            described = layers.pop()
            loss |= {key: described[key] for key in ("inputs", "constants", "train", "eval")}
        return {
            "version": VERSION, "name": type(self._module).__name__,
            "batch_size": self.batch_size, "dtype": word(self._dtype),
            "row": {"dtype": word(row.dtype), "elements": row.elements},
            "inputs": [_described_part(part) for part in row.parts],
            "parameters": [self._described_parameter(name) for name in parameters],
            "constants": constants, "graphs": graphs, "layers": layers, "loss": loss,
            "metrics": metrics}

    def _described_parameter(self, name: str) -> dict[str, Any]:
        tensor, statistic = self._state_of_model[name], self._statistics.get(name)
        described: dict[str, Any] = {"name": name, "trainable": self._is_trainable(name),
                                     "decay": tensor.dim() >= 2}
        if statistic is not None:
            described["statistic"] = {"kind": statistic.kind}
            if statistic.kind == "average":
                described["statistic"]["momentum"] = statistic.momentum
        return described


def _state(module: nn.Module) -> dict[str, torch.Tensor]:
    """All parameters and buffers; shared ones under each of their names."""
    return {**dict(module.named_parameters(remove_duplicate=False)),
            **dict(module.named_buffers(remove_duplicate=False))}


def _targets_name(inputs: Sequence[str]) -> str:
    name = "targets"
    while name in inputs:
        name += "_"
    return name


def _stored(name: str, tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_floating_point():
        return tensor.detach().float()
    if tensor.dtype != torch.int64:
        raise ExportError(f"the parameter {name} is of type {tensor.dtype}; it must be floating "
                          "point. Convert the weights, for example with module.float()")
    return tensor.detach()


def _described_part(part: Part) -> dict[str, Any]:
    described = {"name": part.name, "begin": part.begin, "shape": list(part.shape),
                 "dtype": word(part.dtype)}
    return described if part.limit is None else {**described, "limit": part.limit}


def _warn_about_one_layer(flow: Flow, output: Value) -> None:
    if len(candidates(flow, output)) > 1:
        return
    middle = flow.work[len(flow.work) // 2]
    warnings.warn(f"the whole model is one layer, because several tensors are alive everywhere, "
                  f"also in {middle.path or 'the middle'}; a device must hold all of its weights "
                  "at a time", stacklevel=4)
