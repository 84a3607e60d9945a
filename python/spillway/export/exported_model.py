"""A model in a `.spw` file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from .. import _core
from .rows import Part, Row
from .spw import read_header, read_safetensors


@dataclass(frozen=True)
class ExportedModel:
    """A model that `from_torch` wrote into a file, to train in a session or by configuration."""

    path: Path
    batch_size: int  # samples of a virtual node: train.batch_size must be a multiple of it
    dtype: str  # "float32" or "bfloat16"
    row: Row  # what a sample consists of
    layers: tuple[str, ...]  # names, in the order of execution, without pieces
    state: Mapping[str, str]  # for each key of the module's state_dict, its tensor in the file
    pieces: Mapping[str, int] = field(default_factory=dict)  # as `divided` takes them

    def rows(self, **tensors: torch.Tensor) -> torch.Tensor:
        """Samples [N, elements] of tensors [N, ...], one for each part of a row.

        Raises ExportError for other names or shapes.
        """
        return self.row.pack(tensors)

    @cached_property
    def model(self) -> _core.Model:
        """What a session trains. Raises CorruptData, NewerFormat, IoError and Error."""
        return _core.exported_model(os.fspath(self.path), **self.pieces)

    def divided(self, *, attention: int = 1, mlp: int = 1, vocabulary: int = 1,
                linear: int = 1) -> ExportedModel:
        """The model with its layers in so many pieces, as `model.pieces` of a configuration.

        A piece is a layer, so a layer that is larger than a device trains in pieces. Their number
        changes the order of additions. Replaces pieces chosen before. Raises ConfigError if no
        layer can be divided.
        """
        pieces = {"attention": attention, "mlp": mlp, "vocabulary": vocabulary, "linear": linear}
        model = replace(self, pieces={kind: number for kind, number in pieces.items() if number != 1})
        model.model  # checks them
        return model

    def state_dict(self, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What the module's `load_state_dict` takes, of a trial's weights by name.

        Tied parameters stand under each of their names. What is not trained is as in the file.
        """
        others = {name for name in self.state.values() if name not in weights}
        held = {**read_safetensors(self.path, others), **weights}
        return {key: held[name] for key, name in self.state.items()}

    def train_values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The keys of `train`, with those that follow from the file: its dtype."""
        return {"dtype": "bf16" if self.dtype == "bfloat16" else "fp32", **given}


def load(path: str | os.PathLike[str]) -> ExportedModel:
    """The model in a file that `from_torch` wrote.

    Raises CorruptData if it is another file, NewerFormat, IoError, and Error if there is none.
    """
    file = Path(path)
    model = _core.exported_model(os.fspath(file))  # checks all of it
    metadata = read_header(file)[0]["__metadata__"]
    loaded = described(file, json.loads(metadata["spillway"]),
                       json.loads(metadata.get("state_dict", "{}")))
    loaded.__dict__["model"] = model
    return loaded


def described(path: Path, document: Mapping[str, Any], state: Mapping[str, str]) -> ExportedModel:
    """The model in a file that has this document."""
    parts = tuple(Part(part["name"], part["begin"], tuple(part["shape"]),
                       getattr(torch, part["dtype"]), part.get("limit"))
                  for part in document["inputs"])
    return ExportedModel(path, document["batch_size"], document["dtype"], Row(parts),
                         tuple(layer["name"] for layer in document["layers"]), state)
