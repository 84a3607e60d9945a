"""An exported program as a plain graph: nodes that read values and give values."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

import torch
from torch.utils import _pytree as pytree

from .errors import ExportError


class Kind(enum.Enum):
    """Where a value comes from."""

    INPUT = enum.auto()  # an argument of the module
    STATE = enum.auto()  # a parameter or buffer of the module
    CONSTANT = enum.auto()  # a tensor that the module's code makes from numbers
    RESULT = enum.auto()  # a node


@dataclass(eq=False)
class Value:
    """A tensor of a graph."""

    kind: Kind
    shape: tuple[int, ...]
    dtype: torch.dtype
    name: str = ""  # of an input, state or constant

    @property
    def numel(self) -> int:
        """Number of elements."""
        return torch.Size(self.shape).numel()

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{self.name or 'a tensor'} {list(self.shape)} of {dtype}"


# A list has arguments as elements.
Argument = Union[None, bool, int, float, str, torch.dtype, torch.layout, torch.memory_format,
                 torch.device, Value, "list[Any]"]

# Operators whose schema does not say that the result may be the input.
_HIDDEN_VIEWS = {"aten::type_as", "aten::meshgrid", "aten::broadcast_tensors"}


@dataclass(eq=False)
class Node:
    """A call of an operator."""

    op: str  # "aten::linear"
    overload: str  # "" or, for example, "Tensor"
    args: list[Argument]  # all of the schema, in its order
    outputs: list[Value]
    path: str = ""  # name of the module that makes the call
    target: torch._ops.OpOverload | None = None  # None: an operator of Spillway's own

    def reads(self) -> Iterator[Value]:
        """Values among the arguments."""
        return values_in(self.args)

    def writes(self) -> list[Value]:
        """Values that the call changes in place."""
        return [value for argument, value in self._aliased() if argument.is_write]

    def viewed(self) -> list[Value]:
        """Values whose memory the outputs may share."""
        if self.op in _HIDDEN_VIEWS:
            return list(values_in(self.args[0]))
        if self.op == "aten::einsum" and len(operands := list(self.reads())) == 1:
            return operands
        return [value for _, value in self._aliased()]

    @property
    def is_random(self) -> bool:
        """Whether the operator may draw random numbers."""
        if self.target is None:
            return self.op == "spillway::dropout"
        return torch.Tag.nondeterministic_seeded in self.target.tags

    def _aliased(self) -> Iterator[tuple[Any, Value]]:
        if self.target is None:
            return
        for argument, value in zip(self.target._schema.arguments, self.args):
            if argument.alias_info is not None:
                for each in values_in(value):
                    yield argument.alias_info, each


@dataclass
class Graph:
    """Nodes in the order of execution."""

    inputs: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    constants: dict[str, torch.Tensor] = field(default_factory=dict)


def values_in(argument: Argument | Sequence[Argument]) -> Iterator[Value]:
    """The values in an argument, which may be a list."""
    if isinstance(argument, Value):
        yield argument
    elif isinstance(argument, (list, tuple)):
        for each in argument:
            yield from values_in(each)


def substituted(argument: Argument, of: Callable[[Value], Argument]) -> Argument:
    """The argument with other values."""
    if isinstance(argument, Value):
        return of(argument)
    if isinstance(argument, (list, tuple)):
        return [substituted(each, of) for each in argument]
    return argument


# Checks of shapes and types, which are static here.
_CHECKS = {"aten::_assert_tensor_metadata", "aten::_assert_scalar", "aten::_assert_async",
           "aten::sym_constrain_range", "aten::sym_constrain_range_for_size"}


def read_program(program: torch.export.ExportedProgram, name_of_state: Callable[[str], str],
                 prefix: str) -> Graph:
    """The graph of a program; submodules of regions without gradients become part of it.

    `name_of_state` gives the name of a parameter or buffer of the program. Paths of modules lose
    `prefix`.
    """
    return _Reader(program, name_of_state, prefix).graph


class _Reader:
    def __init__(self, program: torch.export.ExportedProgram,
                 name_of_state: Callable[[str], str], prefix: str) -> None:
        self.graph = Graph()
        self._prefix = prefix
        self._states: dict[str, Value] = {}
        self._name_of_state = name_of_state
        self._program = program
        module = program.graph_module
        holders = [node for node in module.graph.nodes if node.op == "placeholder"]
        specs = program.graph_signature.input_specs
        values = [self._placeholder(node, spec) for node, spec in zip(holders, specs)]
        outputs = self._inline(module, values)
        self.graph.outputs = list(values_in(pytree.tree_leaves(outputs)))

    def _placeholder(self, node: torch.fx.Node, spec: torch.export.graph_signature.InputSpec
                     ) -> Argument:
        kinds = torch.export.graph_signature.InputKind
        if spec.kind == kinds.USER_INPUT:
            if not isinstance(node.meta.get("val"), torch.Tensor):
                return getattr(spec.arg, "value", None)  # a constant of the call
            self.graph.inputs.append(_value(node.meta["val"], Kind.INPUT, node.name))
            return self.graph.inputs[-1]
        if spec.kind in (kinds.PARAMETER, kinds.BUFFER):
            name = self._name_of_state(str(spec.target))
            if name not in self._states:
                self._states[name] = _value(node.meta["val"], Kind.STATE, name)
            return self._states[name]
        if spec.kind == kinds.CONSTANT_TENSOR:
            return self._constant(self._program.constants[str(spec.target)])
        raise ExportError(f"the module holds {spec.target}, a {spec.kind.name.lower()}; only "
                          "tensors can be exported. Compute it outside of the module")

    def _constant(self, tensor: torch.Tensor) -> Value:
        name = f"constant.{len(self.graph.constants)}"
        self.graph.constants[name] = tensor.detach()
        return _value(tensor, Kind.CONSTANT, name)

    def _inline(self, module: torch.fx.GraphModule, values: Sequence[Argument]) -> Any:
        env: dict[torch.fx.Node, Any] = {}
        given = iter(values)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(given)
            elif node.op == "get_attr":
                held = operator.attrgetter(node.target)(module)
                env[node] = self._constant(held) if isinstance(held, torch.Tensor) else held
            elif node.op == "output":
                return _resolved(node.args[0], env)
            else:
                args, kwargs = _resolved((node.args, node.kwargs), env)
                env[node] = self._call(node, args, kwargs)
        raise AssertionError("a graph has an output")

    def _call(self, node: torch.fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            name: str = node.target.name()  # type: ignore[no-untyped-call]
            return self._region(name, args)
        if node.target is operator.getitem:
            return args[0][args[1]]
        result = node.meta.get("val")
        if isinstance(result, (bool, int, float)) and not isinstance(node.target,
                                                                     torch._ops.OpOverload):
            return result  # arithmetic of static shapes
        if not isinstance(node.target, torch._ops.OpOverload):
            raise ExportError(f"{self._caller(node)} calls {node.target}, which is no operator of "
                              "PyTorch on tensors. Compute with tensors of fixed shapes")
        return self._operator(node, node.target, args, kwargs)

    def _region(self, name: str, args: Sequence[Any]) -> Any:
        if name == "wrap_with_set_grad_enabled":
            begin = len(self.graph.nodes)
            outputs = self._inline(args[1], args[2:])
            return outputs if args[0] else self._detached(outputs, begin)
        if name == "wrap_with_autocast" and not args[2]:
            return self._inline(args[4], args[5:])
        if name == "tag_activation_checkpoint":
            return self._inline(args[0], args[1:])
        if name == "wrap_with_autocast":
            raise ExportError("the module enters torch.autocast; remove that and choose the type "
                              "with dtype=\"bfloat16\"")
        raise ExportError(f"the module has a region {name} (control flow or a kernel of its own), "
                          "which cannot be exported. Write it with plain operators")

    def _detached(self, outputs: Any, begin: int) -> Any:
        """What a region without gradients gives, beginning with node number `begin`."""
        made = {value for node in self.graph.nodes[begin:] for value in node.outputs}
        detach = torch.ops.aten.detach.default

        def detached(value: Any) -> Any:
            if value not in made or not value.dtype.is_floating_point:
                return value
            result = Value(Kind.RESULT, value.shape, value.dtype)
            self.graph.nodes.append(Node("aten::detach", "", [value], [result], target=detach))
            return result

        return [detached(each) if isinstance(each, Value) else each
                for each in pytree.tree_leaves(outputs)]

    def _operator(self, node: torch.fx.Node, target: torch._ops.OpOverload,
                  args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        schema = target._schema
        result = node.meta.get("val")
        if schema.name in _CHECKS:
            return None
        if isinstance(result, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float)):
            raise ExportError(f"{self._caller(node)} reads a number from a tensor ({schema.name}); "
                              "shapes and numbers must not depend on data. Keep it a tensor")
        call = Node(schema.name, schema.overload_name,
                    [_plain(_argument(schema, i, args, kwargs)) for i in
                     range(len(schema.arguments))],
                    [], self._path(node), target)
        is_list = isinstance(result, (list, tuple))
        for each in pytree.tree_leaves(result):
            call.outputs.append(_value(each, Kind.RESULT, maker=self._caller(node)))
        self.graph.nodes.append(call)
        return call.outputs if is_list else call.outputs[0]

    def _caller(self, node: torch.fx.Node) -> str:
        return self._path(node) or "the module"

    def _path(self, node: torch.fx.Node) -> str:
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        path = str(stack[-1][0]) if stack else ""
        return path.removeprefix(self._prefix).lstrip(".")


def _value(tensor: Any, kind: Kind, name: str = "", maker: str = "the module") -> Value:
    if not isinstance(tensor, torch.Tensor):
        raise ExportError(f"{maker} calls an operator that gives {type(tensor).__name__} instead "
                          "of a tensor, which cannot be exported")
    if any(not isinstance(size, int) for size in tensor.shape):
        raise ExportError(f"{maker} makes a tensor of shape {list(tensor.shape)}, whose sizes "
                          "depend on values; all shapes must be static. Pad or mask instead of "
                          "selecting by values")
    return Value(kind, tuple(tensor.shape), tensor.dtype, name)


def _resolved(tree: Any, env: dict[torch.fx.Node, Any]) -> Any:
    return torch.fx.node.map_arg(tree, lambda node: env[node])


# Schemas give the defaults of these types as numbers: 0 and 4. There are no others.
_DEFAULTS = {"MemoryFormat": torch.contiguous_format, "ScalarType": torch.int64}


def _argument(schema: torch.FunctionSchema, i: int, args: Sequence[Any],
              kwargs: dict[str, Any]) -> Any:
    argument = schema.arguments[i]
    if argument.name.startswith("cudnn_enable"):
        return False  # a flag of the process, on which no bit may depend
    if i < len(args):
        return args[i]
    if argument.name in kwargs:
        return kwargs[argument.name]
    if not argument.has_default_value() or argument.default_value is None:
        return None
    kind = str(argument.real_type).removeprefix("Optional[").removesuffix("]")
    return _DEFAULTS[kind] if kind in _DEFAULTS else argument.default_value


def _plain(argument: Any) -> Argument:
    """An argument with lists instead of tuples and sizes."""
    if isinstance(argument, (list, tuple)):
        return [_plain(each) for each in argument]
    if argument is None or isinstance(argument, (bool, int, float, str, Value, torch.dtype,
                                                 torch.layout, torch.memory_format, torch.device)):
        return argument
    raise ExportError(f"an operator has the argument {argument!r} ({type(argument).__name__}), "
                      "which cannot be exported. Use real numbers and tensors")
