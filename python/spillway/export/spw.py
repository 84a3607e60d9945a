"""Reads and writes safetensors files, tensor by tensor."""

from __future__ import annotations

import ctypes
import json
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import torch

from .errors import ExportError

TYPE_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int64: "I64", torch.int32: "I32",
              torch.bool: "BOOL"}

# Of parameters in memory, in bytes: kAlignment of include/spillway/units.h.
ALIGNMENT = 256


def write_safetensors(path: Path, tensors: Mapping[str, torch.Tensor],
                      metadata: Mapping[str, str],
                      values: Callable[[str], torch.Tensor | None] | None = None,
                      aligned: Sequence[str] = ()) -> None:
    """Replaces `path` at once by a file with these tensors, in the order of `header_of`.

    `values` may give others for a name, of the same shape.
    """
    for name, tensor in tensors.items():
        if tensor.is_meta:
            raise ExportError(f"'{name}' has no values: it is on the meta device. Load the "
                              "weights before the export")
    described = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
    text, begins = header_of(described, metadata, aligned)
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "wb") as file:
            file.write(text)
            for name, begin in begins.items():
                file.write(bytes(len(text) + begin - file.tell()))  # what lies between tensors
                write_tensor(file, tensors[name], None if values is None else values(name))
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def header_of(tensors: Mapping[str, tuple[torch.dtype, Sequence[int]]],
              metadata: Mapping[str, str], aligned: Sequence[str] = ()
              ) -> tuple[bytes, dict[str, int]]:
    """What stands before the tensors, and where behind it each begins, in this order.

    First those that `aligned` names, each at a multiple of ALIGNMENT in the file, then the others,
    the ones with larger elements first. A safetensors file has no gaps, so tensors named `padding.`
    and a number fill them.
    """
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    begins: dict[str, int] = {}
    end = 0

    def add(name: str, word: str, shape: Sequence[int], size: int) -> None:
        nonlocal end
        header[name] = {"dtype": word, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size

    first = dict.fromkeys(aligned)
    others = sorted((name for name in tensors if name not in first),
                    key=lambda name: -tensors[name][0].itemsize)
    for name in (*first, *others):
        gap = -end % ALIGNMENT if name in first or (first and name == others[0]) else 0
        if gap:
            add(f"padding.{len(header)}", "BOOL", [gap], gap)
        dtype, shape = tensors[name]
        begins[name] = end
        add(name, TYPE_NAMES[dtype], shape, math.prod(shape) * dtype.itemsize)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % (ALIGNMENT if first else 8))
    return len(text).to_bytes(8, "little") + text, begins


def read_header(path: Path) -> tuple[dict[str, Any], int]:
    """The header of a valid file, and where its data begin."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(size)), 8 + size


def read_safetensors(path: Path, names: Collection[str] | None = None) -> dict[str, torch.Tensor]:
    """The tensors of these names, or all of a valid file."""
    header, data = read_header(path)
    if names is None:
        names = [name for name in header if name != "__metadata__"]
    types = {word: dtype for dtype, word in TYPE_NAMES.items()}
    tensors = {}
    with path.open("rb") as file:
        for name in names:
            begin, end = header[name]["data_offsets"]
            file.seek(data + begin)
            content = bytearray(file.read(end - begin))
            dtype, shape = types[header[name]["dtype"]], header[name]["shape"]
            tensors[name] = (torch.frombuffer(content, dtype=dtype) if content else
                             torch.empty(0, dtype=dtype)).reshape(shape)
    return tensors


def map_safetensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a valid file, whose values are read as they are needed."""
    header, data = read_header(path)
    types = {word: dtype for dtype, word in TYPE_NAMES.items()}
    content = torch.from_file(str(path), shared=False, size=path.stat().st_size, dtype=torch.uint8)
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = content[data + begin:data + end].view(types[entry["dtype"]]).reshape(
                entry["shape"])
    return tensors


def write_tensor(file: BinaryIO, tensor: torch.Tensor, value: torch.Tensor | None = None) -> None:
    """Writes a tensor's bytes, or those of another of its shape.

    Without NumPy, which may be absent and knows no bfloat16.
    """
    if value is None:
        value = tensor
    elif value.shape != tensor.shape:
        raise ExportError(f"a tensor of shape {list(value.shape)} was given for a parameter of "
                          f"shape {list(tensor.shape)}")
    plain = value.detach().to("cpu", tensor.dtype).contiguous()
    size = plain.numel() * plain.element_size()
    file.write((ctypes.c_char * size).from_address(plain.data_ptr()))
