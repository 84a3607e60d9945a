"""Weights in a folder of Hugging Face, read one at a time."""

from __future__ import annotations

import copy
import json
import pathlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import nn

from .export import ExportError

WEIGHTS = "model.safetensors"
INDEX = WEIGHTS + ".index.json"


def require_model(folder: pathlib.Path) -> None:
    """Raises ExportError unless the folder has the files of a model."""
    if not (folder / "config.json").is_file():
        raise ExportError(f"'{folder}' is not a model of Hugging Face: it has no config.json")
    if not (folder / WEIGHTS).is_file() and not (folder / INDEX).is_file():
        raise ExportError(f"'{folder}' has neither {WEIGHTS} nor {INDEX}. Load the model with "
                          "transformers and save it with save_pretrained")


class StoredWeights:
    """The weights of a model of transformers in the files of a folder, by its names of them."""

    def __init__(self, folder: pathlib.Path, model: nn.Module) -> None:
        self._folder = folder
        self._files: dict[str, Any] = {}
        if (folder / INDEX).is_file():
            text = (folder / INDEX).read_text(encoding="utf-8")
            self._file_of: dict[str, str] = json.loads(text)["weight_map"]
        else:
            self._file_of = dict.fromkeys(self._opened(WEIGHTS).keys(), WEIGHTS)
        self._made = _conversions(model, self._file_of, self._tensor)

    def __contains__(self, name: str) -> bool:
        return _plain(name) in self._made

    def read(self, name: str) -> torch.Tensor | None:
        """The values of a parameter or buffer, if the files have it."""
        make = self._made.get(_plain(name))
        return None if make is None else make()

    def _opened(self, file: str) -> Any:
        from safetensors import safe_open

        if file not in self._files:
            self._files[file] = safe_open(self._folder / file, framework="pt")
        return self._files[file]

    def _tensor(self, stored: str) -> torch.Tensor:
        tensor: torch.Tensor = self._opened(self._file_of[stored]).get_tensor(stored)
        return tensor


def _plain(name: str) -> str:
    """A name without what PEFT adds, which wraps the layers of a model in its own."""
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".")


def _conversions(model: Any, stored: Iterable[str], read: Callable[[str], torch.Tensor]
                 ) -> dict[str, Callable[[], torch.Tensor]]:
    """What makes each weight of a model, by the tables with which transformers loads its files."""
    from transformers import conversion_mapping, core_model_loading as loading

    transforms = conversion_mapping.get_model_conversion_mapping(model)
    renamings = [each for each in transforms if isinstance(each, loading.WeightRenaming)]
    converters = [each for each in transforms if isinstance(each, loading.WeightConverter)]
    of_pattern = {pattern: each for each in converters for pattern in each.source_patterns}
    known, prefix = model.state_dict(), model.base_model_prefix
    made: dict[str, Callable[[], torch.Tensor]] = {}
    parts: dict[str, list[tuple[str, str]]] = {}  # stored names, and why they belong there

    def converted(first: str, name: str) -> torch.Tensor:
        converter: Any = copy.deepcopy(of_pattern[parts[first][0][1]])
        for source, pattern in parts[first]:
            converter.add_tensor(first, source, pattern, partial(read, source))
        result = converter.convert(first, model=model, config=model.config)[name]
        tensor: torch.Tensor = result[0] if isinstance(result, list) else result
        return tensor

    for source in sorted(stored, key=loading.dot_natural_key):
        name, pattern = loading.rename_source_key(source, renamings, converters, prefix, known)
        if name not in known and source in known:
            name, pattern = source, None
        if pattern is None:
            made[name] = partial(read, source)
            continue
        parts.setdefault(name, []).append((source, pattern))
        targets = of_pattern[pattern].target_patterns
        for target in targets:
            each = name.replace(targets[0], target)
            made[each] = partial(converted, name, each)
    return made
