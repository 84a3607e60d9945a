"""Trials that train while the program goes on."""

from __future__ import annotations

import atexit
import dataclasses
import json
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import torch

from . import _core
from .data import Data
from .errors import Error
from .export import ExportedModel
from .models import Model
from .progress import Progress
from .results import Evaluation, Results, TrialPlan, TrialResult

#: Seconds between two looks at signals.
_SLICE_S = 0.1

Device = str | int | Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happened in a session; docs/formats.md lists what each kind has."""

    sequence: int
    kind: str
    time_s: float
    trial: int | None = None
    device: int | None = None
    step: int = 0
    loss: float = float("nan")
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    state: str = ""
    reason: str = ""
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)

    @staticmethod
    def _of(values: dict[str, Any]) -> Event:
        known = {field.name for field in dataclasses.fields(Event)}
        named = {key: value for key, value in values.items() if key in known and value is not None}
        return Event(kind=values["event"], values=values, **named)


def _device(device: Device) -> Mapping[str, Any]:
    return device if isinstance(device, Mapping) else {"memory": device}


def _document(**sections: Any) -> str:
    """The keys of a configuration that the caller has given."""
    given = {
        key: {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value
        for key, value in sections.items()
        if value is not None
    }
    return json.dumps({key: value for key, value in given.items() if value != {}})


class Session:
    """Trials on shared devices, each trained as soon as it is submitted.

    No bit of a trial depends on when others are submitted or end, nor on the devices. A `with`
    block waits for all trials at its end; if it ends with an exception, the trials are stopped.
    """

    def __init__(
        self,
        devices: Device | Sequence[Device],
        *,
        links: Sequence[Mapping[str, Any]] | None = None,
        numerics: str | None = None,
        host_memory: str | int | None = None,
        activation_share: float | None = None,
        offload_path: str | os.PathLike[str] | None = None,
        policy: str | None = None,
        sharing: str | None = None,
        double_buffer: bool | None = None,
        metric: Mapping[str, str] | None = None,
        early_terminate: Mapping[str, Any] | None = None,
        hosts: Mapping[str, Any] | None = None,
    ) -> None:
        """A session with these devices, each of so many bytes: "2GiB", or {"kind": "cuda", ...}.

        The keyword arguments are the keys of docs/configuration.md with the same names. Raises
        ConfigError.
        """
        several = [devices] if isinstance(devices, (str, int, Mapping)) else devices
        self._session = _core.Session(
            _document(
                devices=[_device(device) for device in several],
                links=None if links is None else [dict(link) for link in links],
                numerics=numerics,
                host_memory=host_memory,
                activation_share=activation_share,
                offload_path=None if offload_path is None else os.fspath(offload_path),
                scheduling={"policy": policy, "sharing": sharing, "double_buffer": double_buffer},
                sweep={"metric": metric, "early_terminate": early_terminate},
                hosts=None if hosts is None else dict(hosts),
            )
        )
        self._process = os.getpid()
        self._trials: dict[int, tuple[str, dict[str, Any]]] = {}
        self._exported: dict[int, ExportedModel | None] = {}
        _open_sessions.add(self)

    def submit(
        self,
        model: Model | ExportedModel,
        data: Data,
        *,
        name: str = "",
        trial_id: str = "",
        until: int = 0,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        checkpoint: Mapping[str, Any] | None = None,
        weights_file: str | os.PathLike[str] | None = None,
        seed: int | None = None,
        order: str | None = None,
        **train: Any,
    ) -> int:
        """Plans a trial and begins to train it; returns its number.

        `train`: the keys of the section `train` of docs/configuration.md, such as `learning_rate`.
        At step `until` the trial waits for `extend`, with the schedule and bits of one that never
        waits. With `checkpoint_dir` it is saved there, every ten minutes unless `checkpoint` says
        otherwise, and continues from what is there. Without `weights_file` its final weights stay
        in memory. A `trial_id` that the session knows gives the number of that trial. Raises
        ConfigError, and DoesNotFit with the smallest budget that would fit.
        """
        trial = self._add(
            model, data, train, seed, name, trial_id, until, os.fspath(checkpoint_dir or ""),
            os.fspath(weights_file or ""), scheduling={"order": order}, checkpoint=checkpoint,
        )
        self._session.start()
        return trial

    def _add(self, model: Model | ExportedModel, data: Data, train: dict[str, Any],
             seed: int | None = None, name: str = "", trial_id: str = "", until: int = 0,
             checkpoint_dir: str = "", weights_file: str = "", **sections: Any) -> int:
        """Plans a trial. `sections`: other sections of its document."""
        exported: ExportedModel | None = None
        if isinstance(model, ExportedModel):
            exported, train = model, model.train_values(train)
            model = model.model
        name = name or trial_id or f"trial {len(self._trials)}"
        trial = self._session.submit(
            model, data, _document(seed=seed, train=train, **sections), name, trial_id, until,
            checkpoint_dir, weights_file,
        )
        given = train if seed is None else {**train, "seed": seed}
        self._trials[trial] = (name, given)
        self._exported[trial] = exported
        return trial

    def submitted(self, trial: int) -> tuple[str, Mapping[str, Any]]:
        """The name of a trial, and the keys of `train` and the `seed` that it was given."""
        return self._trials[trial]

    def plan(self, trial: int) -> TrialPlan:
        """What is known about a trial before it trains: shards, bytes, seconds."""
        return self._session.plan(trial)

    def wait(self, trial: int | None = None, *, progress: bool = False,
             callback: Callable[[Event], None] | None = None,
             timeout: float | None = None) -> bool:
        """Waits until all trials, or this one, have ended or wait for a call.

        `callback` gets the events of the session, in each wait from the first one on. Returns False
        if `timeout` seconds have passed before. Ctrl-C ends the wait, not the trials.
        """
        shown = Progress(self._described)
        seen, left = 0, timeout
        try:
            while True:
                slice_s = _SLICE_S if left is None else min(_SLICE_S, left)
                over = self._session.wait_for(slice_s, trial)
                if progress or callback:
                    events = self.events(seen)
                    seen = events[-1].sequence if events else seen
                    if progress:
                        shown.take(events)
                    for event in events:
                        if callback:
                            callback(event)
                if over or (left is not None and left <= _SLICE_S):
                    return over
                left = None if left is None else left - _SLICE_S
        finally:
            if progress:
                shown.close()

    def events(self, since: int = 0, wait_s: float = 0.0) -> list[Event]:
        """The events after number `since`; waits up to `wait_s` seconds for the first."""
        while True:
            some = self._session.events(since, min(wait_s, _SLICE_S))
            wait_s -= _SLICE_S
            events = [Event._of(values) for values in json.loads(some)]
            if events or wait_s <= 0:
                return events

    def follow(self, since: int = 0) -> Iterator[Event]:
        """All events after number `since`, as they come, until no trial can go on."""
        while True:
            over = self._session.wait_for(0)
            events = self.events(since, 0 if over else 1)
            yield from events
            if events:
                since = events[-1].sequence
            elif over:
                return

    def extend(self, trial: int, until: int) -> None:
        """Moves the step at which a trial waits. Raises ConfigError (`until`)."""
        self._session.extend(trial, until)

    def pause(self, trial: int) -> None:
        """Pauses a trial after its current step; it keeps its host memory."""
        self._session.pause(trial)

    def resume(self, trial: int) -> None:
        """Continues a paused trial."""
        self._session.resume(trial)

    def stop(self, trial: int | None = None) -> None:
        """Stops a trial, or all. Those with a `checkpoint_dir` are saved."""
        if trial is None:
            self._session.stop_all()
        else:
            self._session.stop(trial)

    def set(
        self,
        trial: int,
        *,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        max_grad_norm: float | None = None,
    ) -> int:
        """Changes values from the trial's next commit on; returns the number of steps before."""
        return self._session.set(trial, learning_rate, weight_decay, max_grad_norm)

    def clone(
        self,
        trial: int,
        *,
        trial_id: str,
        checkpoint_dir: str | os.PathLike[str],
        name: str = "",
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        max_grad_norm: float | None = None,
        max_steps: int = 0,
        until: int = 0,
        weights_file: str | os.PathLike[str] | None = None,
    ) -> int:
        """Submits a copy of a trial that begins from its newest commit; returns its number.

        Both need a `checkpoint_dir`. Raises ConfigError.
        """
        copy = self._session.clone(
            trial, name, trial_id, learning_rate, weight_decay, max_grad_norm, max_steps, until,
            os.fspath(checkpoint_dir), os.fspath(weights_file or ""),
        )
        changed = {"learning_rate": learning_rate, "weight_decay": weight_decay,
                   "max_grad_norm": max_grad_norm, "max_steps": max_steps or None}
        given = {key: value for key, value in changed.items() if value is not None}
        self._trials[copy] = (name or trial_id, {**self._trials[trial][1], **given})
        self._exported[copy] = self._exported[trial]
        return copy

    def resize(self, trial: int, data_parallel: int) -> None:
        """Sets the number of devices that compute a step together, from the next commit on."""
        self._session.resize(trial, data_parallel)

    def results(self) -> Results:
        """The results so far."""
        return Results(self._session.result())

    def result(self, trial: int) -> TrialResult:
        """The result of one trial so far."""
        return self.results()[trial]

    def history(self, trial: int) -> list[dict[str, float]]:
        """What is known of each step of a trial: loss, gradient_norm, eval_loss and metrics."""
        result = self.result(trial)
        begin = result.steps - len(result.losses)
        rows: dict[int, dict[str, float]] = {
            begin + i: {"step": begin + i, "loss": loss, "gradient_norm": norm}
            for i, (loss, norm) in enumerate(zip(result.losses, result.gradient_norms), 1)}
        metrics = dict(result.eval_metrics)
        for step, loss in result.eval_losses:
            rows.setdefault(step, {"step": step}).update(metrics.get(step, {}), eval_loss=loss)
        return list(rows.values())

    def state_dict(self, trial: int) -> dict[str, torch.Tensor]:
        """The weights of a trial that has ended or is paused, by name.

        The module that `from_torch` was given takes them by `load_state_dict`. Raises Error if the
        trial still trains or left none.
        """
        weights = dict(self._session.weights(trial))
        exported = self._exported.get(trial)
        return exported.state_dict(weights) if exported and exported.state else weights

    def evaluate(self, trial: int, data: Data) -> Evaluation:
        """Mean loss and metrics of a trial's weights on the training samples of `data`."""
        return self._session.evaluate(trial, data)

    def predict(self, trial: int, data: Data) -> torch.Tensor:
        """What the model computes before its loss for each training sample of `data`: [N, ...]."""
        return self._session.predict(trial, data)

    def add_device(self, device: Device) -> None:
        """Adds a device to the session."""
        self._session.add_device(_document(devices=[_device(device)]))

    def remove_device(self, device: int) -> None:
        """Removes a device once the work that is bound to it has ended a step."""
        self._session.remove_device(device)

    def _described(self, trial: int) -> tuple[str, int | None]:
        name, values = self._trials.get(trial, (f"trial {trial}", {}))
        return name, values.get("max_steps")

    def close(self) -> None:
        """Stops the trials that have not ended, and ends the run."""
        if self._process != os.getpid() or self not in _open_sessions:
            return
        _open_sessions.discard(self)
        self._session.stop_all()
        self._session.finish()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            self.close()


_open_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Trials are saved before the interpreter, and with it PyTorch, goes."""
    for session in list(_open_sessions):
        try:
            session.close()
        except Error:
            pass
