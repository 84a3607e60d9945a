"""Sweeps over the nodes of Ray, and trials that Ray Tune chooses.

Needs `pip install spillway[ray]`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
import torch
from ray import tune

from .errors import ConfigError, Error
from .runs import Path, Run
from .session import Device, Session
from .shares import merge, train_share

__all__ = ["SessionActor", "sweep", "trainable"]


def sweep(config: Path, output_dir: Path, *, shares: int, overrides: Sequence[str] = (),
          **options: Any) -> Run:
    """Trains the sweep of a configuration file on the nodes of Ray, and merges it into one run.

    Each of `shares` tasks of Ray trains a share in a process of its own, in
    `output_dir`/shares/NUMBER. `output_dir`, the configuration and its data are on storage that all
    nodes share. If a node is lost, another goes on from the newest checkpoints, with the same bits.
    `options` are those of `ray.remote`, such as `num_cpus` (default 1); by default the tasks are
    spread over the nodes (`scheduling_strategy="SPREAD"`). Raises ConfigError
    (`shares`), Error with what a share's process wrote, and like `spillway.resume`.
    """
    if shares < 1:
        raise ConfigError(f"shares is {shares}; it must be at least 1", "shares")
    config, output_dir = os.path.abspath(config), os.path.abspath(output_dir)
    defaults = {"num_cpus": 1, "scheduling_strategy": "SPREAD", "max_retries": -1}
    task: Any = ray.remote(**{**defaults, **options})(train_share)
    ray.get([task.remote(config, output_dir, number, shares, overrides, cwd=os.getcwd())
             for number in range(1, shares + 1)])
    return merge(output_dir, progress=False)


#: Takes what Ray chose; returns the arguments of `Session.submit`.
Space = Callable[[Mapping[str, Any]], Mapping[str, Any]]

_CANNOT_GO_ON = {
    "stopped": "schedulers that pause or copy trials do not work here; use ASHAScheduler",
    "waiting": "no host memory is free; use more host_memory or a smaller max_concurrent_trials",
}


# A thread for each trial that trains.
@ray.remote(num_cpus=0, max_concurrency=64)  # type: ignore[call-overload]
class SessionActor:
    """The session of all trials. `devices` and `options` are those of `Session`."""

    def __init__(self, space: Space, devices: Device | list[Device], **options: Any) -> None:
        self._space, self._session = space, Session(devices, **options)
        self._trials: dict[str, tuple[int, int]] = {}  # number and max_steps by Ray's name

    def train(self, name: str, config: Mapping[str, Any], until: int) -> dict[str, Any]:
        """Trains a trial to step `until` or its end; returns its evaluation."""
        if name not in self._trials:
            values = dict(self._space(config))
            steps = values.get("max_steps", 0)
            if steps < 1:
                raise ConfigError("space: it must return max_steps, at least 1", "max_steps")
            number = self._session.submit(**values, trial_id=name, until=min(until, steps))
            self._trials[name] = number, steps
        number, steps = self._trials[name]
        self._session.extend(number, min(until, steps))
        self._session.wait(number)
        result = self._session.result(number)
        if result.state not in ("paused", "done", "stopped early"):
            reason = result.reason or _CANNOT_GO_ON.get(result.state, "")
            raise Error(f"trial {name} is {result.state}: {reason}")
        return {"steps": result.steps, "loss": result.final_loss, "eval_loss": result.eval_loss,
                **result.metrics, "done": result.state != "paused"}

    def stop(self, name: str) -> None:
        """Stops a trial, unless it has ended."""
        if name in self._trials:
            self._session.stop(self._trials[name][0])

    def state_dict(self, name: str) -> dict[str, torch.Tensor]:
        """The weights of a trial that has ended or is paused, as of `Session`."""
        return self._session.state_dict(self._trials[name][0])


def trainable(actor: Any, *, quantum: int) -> Any:
    """What `tune.Tuner` runs: its trials train in the session of `actor`, a SessionActor.

    A trial reports every `quantum` steps and at its end. Its process only waits, so it asks Ray for
    a hundredth of a CPU. Raises ConfigError (`quantum`).
    """
    if quantum < 1:
        raise ConfigError(f"quantum is {quantum}; it must be at least 1", "quantum")

    class SpillwayTrial(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            self._name, self._until = "", 0

        def step(self) -> dict[str, Any]:
            # Ray may prepare a trial in a second process, which ends without a step.
            self._name = self.trial_id
            self._until += quantum
            reached = ray.get(actor.train.remote(self._name, self.config, self._until))
            return dict(reached)

        def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
            return {"until": self._until}

        def load_checkpoint(self, checkpoint: dict[str, Any] | None) -> None:
            self._until = checkpoint["until"] if checkpoint else 0

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.cleanup()
            self.setup(new_config)
            return True

        def cleanup(self) -> None:
            ray.get(actor.stop.remote(self._name))

    return tune.with_resources(SpillwayTrial, {"cpu": 0.01})
