"""Models to train."""

from __future__ import annotations

import json
from typing import Any

from . import _core
from ._core import Model

__all__ = ["Model", "cnn", "gpt", "mlp", "resnet", "rnn"]


def _built_in(family: str, fields: dict[str, Any]) -> Model:
    return _core.model(json.dumps({"family": family, **fields}))


def gpt(**fields: Any) -> Model:
    """A GPT-2, with the fields of `model` in docs/configuration.md, such as `hidden_size`.

    A sample is `max_position_embeddings` + 1 tokens: the inputs, and from the second on the
    targets.
    """
    return _built_in("gpt", fields)


def mlp(**fields: Any) -> Model:
    """A multilayer perceptron that classifies: a sample is the inputs and the class."""
    return _built_in("mlp", fields)


def resnet(**fields: Any) -> Model:
    """A residual network that classifies pictures: a sample is the pixels and the class."""
    return _built_in("resnet", fields)


def cnn(**fields: Any) -> Model:
    """A convolutional network that classifies pictures, such as `cnn(preset="alexnet")` or
    `cnn(layers=[{"type": "conv", ...}, ...])`: a sample is the pixels and the class.
    """
    return _built_in("cnn", fields)


def rnn(**fields: Any) -> Model:
    """A recurrent network of LSTMs over tokens, such as `rnn(preset="rnnlm", hidden_size=256)`.

    A sample is `max_position_embeddings` + 1 tokens, as of a `gpt`. A classifier
    (`preset="rnntc"`) takes the last one, modulo `num_classes`, as the class.
    """
    return _built_in("rnn", fields)
