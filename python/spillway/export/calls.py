"""How a module is called: its arguments, its output, its own or another loss."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Union

import torch
from torch import nn

from .errors import ExportError

Example = Union[torch.Tensor, Sequence[Any], Mapping[str, Any]]


class Arguments:
    """The tensors of an example by name, and arguments that are no tensors."""

    def __init__(self, module: nn.Module, example: Example) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.fixed: dict[str, Any] = {}
        self._positional: list[str] = []
        for name, value in self._named(module, example).items():
            if isinstance(value, torch.Tensor):
                self.tensors[name] = _in_row_type(name, value)
            elif value is None or isinstance(value, (bool, int, float, str)):
                self.fixed[name] = value
            else:
                raise ExportError(f"example has '{name}' of type {type(value).__name__}; give "
                                  "tensors, whose first dimension is the batch, or plain values")
        if not self.tensors:
            raise ExportError("example has no tensor; give one, a tuple or a dict of them")
        self.samples = self._count()

    def resized(self, samples: int) -> dict[str, torch.Tensor]:
        """The tensors with so many samples, which are repeated or left out."""
        chosen = torch.arange(samples) % self.samples
        return {name: tensor[chosen.to(tensor.device)] for name, tensor in self.tensors.items()}

    def call(self, module: nn.Module, tensors: Mapping[str, torch.Tensor]) -> Any:
        """The module's result for these tensors."""
        named = {**tensors, **self.fixed}
        args = [named.pop(name) for name in self._positional]
        return module(*args, **named)

    def _named(self, module: nn.Module, example: Example) -> dict[str, Any]:
        if isinstance(example, Mapping):
            return dict(example)
        args = [example] if isinstance(example, torch.Tensor) else example
        if not isinstance(args, Sequence) or isinstance(args, str):
            raise ExportError(f"example is a {type(example).__name__}; give a tensor, a tuple or a "
                              "dict of tensors by the names of the module's arguments")
        names = list(inspect.signature(module.forward).parameters.values())
        kinds = inspect.Parameter
        if all(each.kind != kinds.VAR_POSITIONAL for each in names) and len(args) > len(names):
            raise ExportError(f"example has {len(args)} tensors, but the module takes {len(names)}")
        self._positional = [
            names[i].name if i < len(names) and names[i].kind == kinds.POSITIONAL_OR_KEYWORD
            else f"input{i}" for i in range(len(args))]
        return dict(zip(self._positional, args))

    def _count(self) -> int:
        sizes = {name: tensor.size(0) if tensor.dim() else 0
                 for name, tensor in self.tensors.items()}
        if len(set(sizes.values())) != 1 or 0 in sizes.values():
            raise ExportError(f"example has tensors with first dimensions {sizes}; the first "
                              "dimension is the batch, so they must be equal and above 0. Make "
                              "what is no part of a sample a buffer of the module")
        return next(iter(sizes.values()))


class Call(nn.Module):
    """A module with everything that surrounds it: tensors in, its output and maybe a loss out."""

    def __init__(self, module: nn.Module, arguments: Arguments, output: str | int | None,
                 loss: nn.Module | str | None, dtype: torch.dtype) -> None:
        super().__init__()
        self.module = module
        self.loss = loss if isinstance(loss, nn.Module) else None
        self.has_own_loss = loss == "model"
        self.arguments, self.output, self.dtype = arguments, output, dtype

    def forward(self, tensors: dict[str, torch.Tensor], targets: torch.Tensor | None = None
                ) -> tuple[torch.Tensor, ...]:
        """The output, and the loss if there is one."""
        own = {name: self._own(tensor) for name, tensor in tensors.items()}
        result = self.arguments.call(self.module, own)
        output = chosen(result, self.output)
        if self.has_own_loss:
            return output, _own_loss(result)
        if self.loss is not None:
            return output, self.loss(output.float() if self._converts else output, targets)
        return (output,)

    @property
    def _converts(self) -> bool:
        return self.dtype != torch.float32

    def _own(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.dtype) if self._converts and tensor.is_floating_point() else tensor


def chosen(result: Any, output: str | int | None) -> torch.Tensor:
    """The tensor among a module's results that `output` names."""
    if output is None and isinstance(result, (tuple, list)) and len(result) == 1:
        output = 0
    if output is None and not isinstance(result, torch.Tensor) and _has(result, "logits"):
        output = "logits"
    value = result
    if isinstance(output, str):
        value = result[output] if isinstance(result, Mapping) and output in result else getattr(
            result, output, None)
    elif output is not None:
        if not isinstance(result, (tuple, list)) or not -len(result) <= output < len(result):
            raise ExportError(f"output is {output}, but the module gives {_described(result)}")
        value = result[output]
    if not isinstance(value, torch.Tensor):
        raise ExportError(f"the module gives {_described(result)}, of which output={output!r} is "
                          "no tensor. Name the tensor to compare with targets by output=, a key or "
                          "a position")
    return value


def in_dtype(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The module if its parameters have this type, otherwise a copy that has, without values.

    Running statistics and buffers that are not saved keep their types.
    """
    if all(not tensor.is_floating_point() or tensor.dtype == dtype
           for tensor in module.parameters()):
        return module
    memo: dict[int, Any] = {}
    for parameter in module.parameters():
        kind = dtype if parameter.is_floating_point() else parameter.dtype
        memo[id(parameter)] = nn.Parameter(torch.empty_like(parameter, dtype=kind),
                                           requires_grad=parameter.requires_grad)
    made = copy.deepcopy(module, memo)
    for each in made.modules():
        for name, buffer in each._buffers.items():
            if (buffer is not None and buffer.is_floating_point()
                    and name not in each._non_persistent_buffers_set
                    and not name.startswith("running_")):
                each._buffers[name] = buffer.to(dtype)
    return made


@contextlib.contextmanager
def in_mode(module: nn.Module, training: bool) -> Iterator[None]:
    """Within, the module is in this mode and batch norms have a momentum that can be traced.

    Afterwards everything is as before, also the state of random numbers. torch.export keeps the
    flags that choose kernels, by which trials of the process may be training. It would turn off
    oneDNN, so that no operator is decomposed for it, but the graphs here are not decomposed.
    """
    from torch.export import _trace  # not above: it takes two seconds

    modes = [(each, each.training) for each in module.modules()]
    norms = [each for each in module.modules()
             if isinstance(each, nn.modules.batchnorm._NormBase) and each.momentum is None]
    fast_path = torch.backends.mha.get_fastpath_enabled()
    changes_flags = _trace._ignore_backend_decomps
    try:
        _trace._ignore_backend_decomps = contextlib.nullcontext  # type: ignore[assignment]
        module.train(training)
        for norm in norms:
            norm.momentum = 0.0
        torch.backends.mha.set_fastpath_enabled(False)
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())), torch.enable_grad():
            yield
    finally:
        _trace._ignore_backend_decomps = changes_flags
        torch.backends.mha.set_fastpath_enabled(fast_path)
        for each, mode in modes:
            each.training = mode
        for norm in norms:
            norm.momentum = None


def _in_row_type(name: str, tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        raise ExportError(f"example has '{name}' of type {tensor.dtype}; give real numbers, such "
                          "as torch.view_as_real()")
    if tensor.is_floating_point():
        return tensor.detach().float()
    return tensor if tensor.dtype == torch.bool else tensor.long()


def _own_loss(result: Any) -> torch.Tensor:
    loss = getattr(result, "loss", None)
    if not isinstance(loss, torch.Tensor):
        raise ExportError(f"loss is \"model\", but the module gives {_described(result)} without a "
                          "loss. Give labels in the example")
    return loss


def _has(result: Any, name: str) -> bool:
    return name in result if isinstance(result, Mapping) else hasattr(result, name)


def _described(result: Any) -> str:
    if isinstance(result, torch.Tensor):
        return "a tensor"
    if isinstance(result, Mapping):
        return f"{type(result).__name__} with {', '.join(map(str, result))}"
    if isinstance(result, (tuple, list)):
        return f"a {type(result).__name__} of {len(result)}"
    return f"a {type(result).__name__}"
