"""Training in one line."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .data import data
from .errors import ConfigError
from .export import from_torch
from .results import Results
from .session import Device, Session

if TYPE_CHECKING:
    from .data import Array

# Arguments of from_torch; all others are keys of `train`.
_OF_EXPORT = ("loss", "output", "cut_at", "metrics")
_NODES = 8  # virtual nodes that a batch has at most


def fit(
    module: nn.Module,
    x: Array | Sequence[Array],
    y: Array | None = None,
    *,
    devices: Device | Sequence[Device],
    batch_size: int,
    eval_fraction: float = 0.0,
    dtype: str = "float32",
    seed: int = 0,
    progress: bool = False,
    **values: Any,
) -> Results:
    """Trains a module on samples `x` [N, ...] with targets `y` [N, ...]; it stays as it is.

    `x` may be a sequence, an array for each argument of the module. Without `y` a sample is
    tokens [N, T + 1], of which each is to be predicted from those before.
    `devices`: as of Session. `values`: loss, output, cut_at and metrics of `from_torch`, and the
    keys of `train` in docs/configuration.md. A list, such as learning_rate=[1e-3, 3e-3], is a
    sweep: a trial for each combination. The result has them in this order, with the weights in
    `weights`. Raises ExportError, ConfigError and DoesNotFit.
    """
    options = {key: values.pop(key) for key in _OF_EXPORT if key in values}
    if batch_size < 1:
        raise ConfigError(f"batch_size: is {batch_size}, must be at least 1", "batch_size")
    several = {key: value for key, value in values.items() if isinstance(value, list)}
    size = batch_size // max(n for n in range(1, _NODES + 1) if batch_size % n == 0)
    samples = tuple(map(torch.as_tensor, x)) if isinstance(x, (tuple, list)) else (
        torch.as_tensor(x),)
    inputs, targets = samples, torch.as_tensor(y) if y is not None else None
    if targets is None:
        inputs = tuple(each[:, :-1] for each in samples)
    with tempfile.TemporaryDirectory() as folder:
        model = from_torch(module, tuple(each[:size] for each in inputs),
                           path=Path(folder) / "net.spw", batch_size=size, dtype=dtype,
                           targets="next_token" if targets is None else targets[:size], **options)
        rows = data(*samples, *(() if targets is None else (targets,)),
                    eval_fraction=eval_fraction)
        with Session(devices) as session:
            for chosen in itertools.product(*several.values()):
                of_trial = dict(zip(several, chosen))
                name = ", ".join(f"{key}={value}" for key, value in of_trial.items())
                session.submit(model, rows, name=name or "trial", seed=seed,
                               batch_size=batch_size, **{**values, **of_trial})
            session.wait(progress=progress)
            results = session.results()
            results.weights = [session.state_dict(i) if result.state == "done" else {}
                               for i, result in enumerate(results)]
    return results
