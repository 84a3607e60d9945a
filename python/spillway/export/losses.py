"""Which loss a model is trained with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .errors import ExportError

_NAMES = ("cross_entropy", "mse", "bce", "model")


@dataclass(frozen=True)
class Loss:
    """A loss that Spillway has, or a graph."""

    type: str  # "cross_entropy", "mse", "bce" or "graph"
    graph: nn.Module | str | None = None  # what computes it, or "model"
    ignore_index: int = -100
    label_smoothing: float = 0.0

    @property
    def is_graph(self) -> bool:
        """Whether the module or another one computes it."""
        return self.type == "graph"

    def document(self) -> dict[str, Any]:
        """Its own keys in the file."""
        if self.type != "cross_entropy":
            return {"type": self.type}
        return {"type": self.type, "ignore_index": self.ignore_index,
                "label_smoothing": self.label_smoothing}


def loss_of(loss: str | nn.Module) -> Loss:
    """The loss that a name or a module stands for."""
    if isinstance(loss, nn.Module):
        return _of_module(loss)
    if loss not in _NAMES:
        raise ExportError(f"loss is {loss!r}, must be a module or one of {', '.join(_NAMES)}")
    return Loss("graph", graph="model") if loss == "model" else Loss(loss)


def with_classes_last(loss: Loss, output: torch.Size, targets: torch.Size) -> Loss:
    """For classes in dimension 1, as PyTorch has them for images, the module of the loss."""
    if loss.type != "cross_entropy" or targets == output[:-1]:
        return loss
    if targets == output[:1] + output[2:]:
        return Loss("graph", graph=nn.CrossEntropyLoss(ignore_index=loss.ignore_index,
                                                       label_smoothing=loss.label_smoothing))
    raise ExportError(f"targets have the shape {list(targets)}, but the output has {list(output)}; "
                      f"for cross_entropy they must be {list(output[:-1])}")


def _of_module(loss: nn.Module) -> Loss:
    if any(parameter.requires_grad for parameter in loss.parameters()):
        raise ExportError(f"the loss {type(loss).__name__} has parameters to train; make it a part "
                          "of the module")
    is_mean = getattr(loss, "reduction", "mean") == "mean"
    if not is_mean:
        raise ExportError(f"the loss has reduction={loss.reduction!r}; it must be 'mean'")
    if type(loss) is nn.MSELoss:
        return Loss("mse")
    if type(loss) is nn.BCEWithLogitsLoss and loss.weight is None and loss.pos_weight is None:
        return Loss("bce")
    if type(loss) is nn.CrossEntropyLoss and loss.weight is None:
        return Loss("cross_entropy", ignore_index=loss.ignore_index,
                    label_smoothing=loss.label_smoothing)
    return Loss("graph", graph=loss)
