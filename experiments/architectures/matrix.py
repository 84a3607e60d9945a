"""What holds for an architecture: equal bits, PyTorch's losses, the way back to transformers."""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from torch import nn

import spillway as sp

from models import Architecture, samples

SAMPLES = 8  # all of them are one batch, so their order is no matter
STEPS = 6
TRAIN = {"batch_size": SAMPLES, "max_steps": STEPS, "learning_rate": 1e-3, "weight_decay": 0.0,
         "max_grad_norm": 0.0, "lr_scheduler_type": "constant"}
AMPLE = "256MiB"
PIECES = ("attention", "mlp", "vocabulary", "linear")
on_gpu = False  # True: all devices are parts of the first GPU


@dataclass
class Row:
    """A row of the table."""

    name: str
    layers: int = 0
    shards: int = 0
    equal_bits: bool = False  # all in one piece twice, in shards, and over two devices
    control_differs: bool = False  # other virtual nodes
    largest_difference: float = float("nan")  # of a loss from PyTorch's
    control_difference: float = float("nan")  # with a learning rate that is 1 % larger
    equal_logits: bool = False  # of transformers, with the trained weights
    pieces: tuple[str, ...] = ()  # which kinds of its layers can be divided in two
    equal_pieces: bool = True  # their bits at the smallest budget and over two devices
    pieces_difference: float = 0.0  # largest of a loss from the undivided model's

    @property
    def holds(self) -> bool:
        """Whether the architecture does what it should."""
        return (self.equal_bits and self.control_differs and self.equal_logits
                and self.equal_pieces and self.pieces_difference < self.control_difference
                and self.largest_difference < min(1e-4, self.control_difference))


def measure(architecture: Architecture) -> Row:
    """Trains an architecture in all ways."""
    _be_quiet()
    row = Row(architecture.name)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _compare_bits(architecture, folder, row)
        _compare_with_pytorch(architecture, folder, row)
        _compare_pieces(architecture, folder, row)
    return row


def _device(memory: str | int) -> dict[str, str | int]:
    return {"kind": "cuda" if on_gpu else "cpu", "memory": memory}


def export(architecture: Architecture, module: nn.Module, folder: Path, nodes: int
           ) -> sp.ExportedModel:
    """For virtual nodes of SAMPLES / nodes."""
    example = {name: value[:SAMPLES // nodes] for name, value in _inputs(architecture).items()}
    loss = ({"targets": "next_token"} if architecture.task == "next_token" else {"loss": "model"})
    return sp.from_torch(module, example, path=folder / f"{nodes}.spw", **loss)


def _inputs(architecture: Architecture) -> dict[str, torch.Tensor]:
    values = samples(architecture, SAMPLES)
    if architecture.task == "next_token":
        return {"input_ids": values["input_ids"][:, :-1]}
    return values


def _data(architecture: Architecture, model: sp.ExportedModel) -> sp.Data:
    values = samples(architecture, SAMPLES)
    if architecture.task == "next_token":
        return sp.data(values["input_ids"])
    return sp.data(model.rows(**values))


def _compare_bits(architecture: Architecture, folder: Path, row: Row) -> None:
    """With dropout, where the architecture has it."""
    module = architecture.make()
    model = export(architecture, module, folder, nodes=4)
    data = _data(architecture, model)
    with sp.Session(_device(AMPLE)) as session:
        trials = [session.submit(model, data, **TRAIN) for _ in range(2)]
        smallest = session.plan(trials[0]).smallest_budget_bytes
    alone = session.result(trials[0])
    with sp.Session(_device(smallest)) as small:
        small.submit(model, data, **TRAIN)
    with sp.Session([_device(AMPLE)] * 2) as two:
        two.submit(model, data, data_parallel=2, **TRAIN)
    spilled = small.result(0)
    row.layers, row.shards = len(model.layers), spilled.num_shards
    bits = [each.weights_xxh3 for each in (session.result(trials[1]), spilled, two.result(0))]
    row.equal_bits = alone.state == "done" and bits == [alone.weights_xxh3] * 3
    with sp.Session(_device(AMPLE)) as control:
        other = export(architecture, module, folder, nodes=2)
        control.submit(other, data, **TRAIN)
    row.control_differs = control.result(0).weights_xxh3 not in (alone.weights_xxh3, "")


def _compare_with_pytorch(architecture: Architecture, folder: Path, row: Row) -> None:
    """Without dropout, all samples in one virtual node."""
    module = without_dropout(architecture.make())
    module.save_pretrained(folder / "source")  # type: ignore[operator]
    model = export(architecture, module, folder, nodes=1)
    with sp.Session(_device(AMPLE)) as session:
        trial = session.submit(model, _data(architecture, model), **TRAIN)
        session.wait()
        weights = session.state_dict(trial)
    losses = session.result(trial).losses
    row.largest_difference = _largest(losses, _plain_losses(architecture, 1))
    row.control_difference = _largest(losses, _plain_losses(architecture, 1.01))
    sp.save_pretrained(weights, folder / "trained", like=folder / "source")
    loaded = type(module).from_pretrained(folder / "trained").eval()  # type: ignore[attr-defined]
    expected = without_dropout(architecture.make()).eval()
    state = expected.state_dict()
    for name, value in weights.items():
        state[name].copy_(value)
    with torch.no_grad():
        inputs = _inputs(architecture)
        row.equal_logits = torch.equal(loaded(**inputs).logits, expected(**inputs).logits)


def _compare_pieces(architecture: Architecture, folder: Path, row: Row) -> None:
    """Without dropout: inside of pieces it drops other elements."""
    model = export(architecture, without_dropout(architecture.make()), folder, nodes=2)
    data = _data(architecture, model)
    whole = _trained(model, data, AMPLE)[0]
    for kind in PIECES:
        try:
            divided = model.divided(**{kind: 2})
        except sp.ConfigError:  # it has no such layers, or they are not recognised
            continue
        alone, smallest = _trained(divided, data, AMPLE)
        tight, _ = _trained(divided, data, smallest, devices=2)
        row.pieces += (kind,)
        row.equal_pieces &= alone.state == "done" and tight.weights_xxh3 == alone.weights_xxh3
        row.pieces_difference = max(row.pieces_difference, _largest(alone.losses, whole.losses))


def _trained(model: sp.ExportedModel, data: sp.Data, memory: str | int, devices: int = 1
             ) -> tuple[sp.TrialResult, int]:
    """The result, and the smallest budget."""
    with sp.Session([_device(memory)] * devices) as session:
        trial = session.submit(model, data, data_parallel=devices, **TRAIN)
        smallest = session.plan(trial).smallest_budget_bytes
    return session.result(trial), smallest


def without_dropout(module: nn.Module) -> nn.Module:
    """All probabilities of dropout of a model become 0."""
    for each in module.modules():
        if isinstance(each, nn.Dropout):
            each.p = 0.0
        for name, value in vars(each).items():
            if "drop" in name and isinstance(value, float):
                setattr(each, name, 0.0)
    return module


def _plain_losses(architecture: Architecture, factor: float) -> list[float]:
    """A loop in eager PyTorch."""
    module = without_dropout(architecture.make())
    optimizer = torch.optim.AdamW(module.parameters(), lr=factor * TRAIN["learning_rate"],
                                  weight_decay=0.0)
    values, losses = samples(architecture, SAMPLES), []
    for _ in range(STEPS):
        if architecture.task == "next_token":
            tokens = values["input_ids"]
            logits = module(input_ids=tokens[:, :-1]).logits
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        else:
            loss = module(**values).loss
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


def _largest(a: list[float], b: list[float]) -> float:
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


def _be_quiet() -> None:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
