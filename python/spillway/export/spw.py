"""Reads and writes safetensors files, tensor by tensor."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch

from .errors import ExportError

TYPE_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int64: "I64", torch.int32: "I32",
              torch.bool: "BOOL"}


def write_safetensors(path: Path, tensors: Mapping[str, torch.Tensor],
                      metadata: Mapping[str, str]) -> None:
    """Replaces `path` at once by a file with these tensors, the ones with larger elements first."""
    names = sorted(tensors, key=lambda name: -tensors[name].element_size())
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    end = 0
    for name in names:
        tensor = tensors[name]
        if tensor.is_meta:
            raise ExportError(f"'{name}' has no values: it is on the meta device. Load the "
                              "weights before the export")
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": TYPE_NAMES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name in names:
                file.write(_bytes_of(tensors[name]))
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def read_header(path: Path) -> tuple[dict[str, Any], int]:
    """The header of a valid file, and where its data begin."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(size)), 8 + size


def read_safetensors(path: Path, names: Collection[str]) -> dict[str, torch.Tensor]:
    """The tensors of these names."""
    if not names:
        return {}
    header, data = read_header(path)
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


def _bytes_of(tensor: torch.Tensor) -> bytes:
    """Without NumPy, which may be absent and knows no bfloat16."""
    plain = tensor.detach().cpu().contiguous()
    return ctypes.string_at(plain.data_ptr(), plain.numel() * plain.element_size())
