"""Optuna chooses what a session trains. Needs `pip install spillway[optuna]`.

`optimize` works in rounds: all trials of a round train equally many steps, then Optuna hears of
them in the order of their numbers. So a study is a function of its seed, whatever trains at once,
on however many devices, and however often it was interrupted.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import FrozenTrial, Trial, TrialState

from .errors import ConfigError, DoesNotFit
from .results import TrialResult
from .session import Event, Session

__all__ = ["optimize", "optimize_as_they_come"]

#: Asks a trial for its values; returns the arguments of `Session.submit`.
Space = Callable[[Trial], Mapping[str, Any]]

_ROUND = "spillway_round"  # of the study: the round that trains
_MARK = "spillway_mark"  # of a trial: what was decided on it last
_ENDS = {"done": TrialState.COMPLETE, "failed": TrialState.FAIL, "stopped": TrialState.PRUNED,
         "stopped early": TrialState.PRUNED}


def optimize(
    study: optuna.Study,
    session: Session,
    space: Space,
    *,
    n_trials: int,
    quantum: int,
    at_once: int = 8,
    seed: int = 0,
    sampler: Callable[..., BaseSampler] = TPESampler,
    metric: str = "eval_loss",
    checkpoint_dir: str | os.PathLike[str] | None = None,
) -> optuna.Study:
    """Trains in rounds until the study has `n_trials` trials; returns the study.

    A round trains `at_once` trials for `quantum` steps each and evaluates them; then the study's
    pruner decides. `sampler(seed=...)` makes the sampler, instead of that of the study, so that
    each draw depends on `seed` and on what is in the storage alone. A trial whose model does not
    fit fails.

    The same call goes on with an interrupted study of a storage such as SQLite, with the same
    bits: trials continue from their checkpoints in `checkpoint_dir`, or from their first step if
    there are none. Raises ConfigError (`n_trials`, `quantum`, `at_once`, `metric`, `study`).
    """
    for name, value in (("n_trials", n_trials), ("quantum", quantum), ("at_once", at_once)):
        if value < 1:
            raise ConfigError(f"{name} is {value}; it must be at least 1", name)
    trials = _Trials(study, session, space, metric, checkpoint_dir)
    own = study.sampler
    study.sampler = _KeyedSampler(sampler, seed)
    try:
        _Rounds(trials, quantum).run(n_trials, at_once)
    finally:
        study.sampler = own
    return study


def optimize_as_they_come(
    study: optuna.Study,
    session: Session,
    space: Space,
    *,
    n_trials: int,
    at_once: int = 8,
    metric: str = "eval_loss",
    checkpoint_dir: str | os.PathLike[str] | None = None,
) -> optuna.Study:
    """Like `optimize`, but nobody waits: Optuna hears of each evaluation as it comes.

    No device is idle at the end of a round, but the study depends on the speed of the machine. It
    uses the study's own sampler. The pruner decides at each evaluation, so `space` gives
    `eval_steps`.
    """
    _Stream(_Trials(study, session, space, metric, checkpoint_dir)).run(n_trials, at_once)
    return study


class _Trials:
    """The trials of a study in a session."""

    def __init__(self, study: optuna.Study, session: Session, space: Space, metric: str,
                 checkpoint_dir: str | os.PathLike[str] | None) -> None:
        if len(study.directions) != 1:
            raise ConfigError("study: it has several objectives; give it one direction", "study")
        self.study, self.session, self._space, self._metric = study, session, space, metric
        self._folder = None if checkpoint_dir is None else pathlib.Path(checkpoint_dir)

    def running(self) -> list[Trial]:
        """Those that the storage has from an interrupted call."""
        frozen = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return [Trial(self.study, trial._trial_id) for trial in frozen]

    def ask(self, at_most: int, n_trials: int) -> Iterator[Trial]:
        """New trials, as long as the study has fewer than `n_trials`."""
        states = tuple(state for state in TrialState if state != TrialState.WAITING)
        asked = len(self.study.get_trials(deepcopy=False, states=states))
        for _ in range(min(at_most, n_trials - asked)):
            yield self.study.ask()

    def submit(self, trial: Trial, until: int = 0) -> tuple[int, int] | None:
        """Submits it; its number in the session and its `max_steps`. None: it fits no device."""
        values = dict(self._space(trial))
        max_steps = values.get("max_steps", 0)
        if max_steps < 1:
            raise ConfigError("space: it must return max_steps, at least 1", "max_steps")
        if self._folder is not None:
            values["checkpoint_dir"] = self._folder / str(trial.number)
        values["trial_id"] = f"{self.study.study_name}-{trial.number}"
        try:
            return self.session.submit(**values, until=min(until, max_steps)), max_steps
        except DoesNotFit as error:
            self.tell(trial, "failed", str(error))
            return None

    def tell(self, trial: Trial, state: str, reason: str = "", value: float | None = None) -> None:
        """Ends it in the study."""
        if reason:
            trial.set_user_attr("reason", reason)
        self.study.tell(trial, value if state == "done" else None, state=_ENDS[state])

    def value(self, loss: float | None, metrics: Mapping[str, float]) -> float:
        """What the study compares, of an evaluation."""
        if loss is None:
            raise ConfigError(
                "data.eval_fraction is 0, but Optuna compares evaluations; "
                "give the data an eval_fraction", "data.eval_fraction")
        known = {**metrics, "eval_loss": loss}
        if self._metric not in known:
            raise ConfigError(f"metric is '{self._metric}'; use one of {', '.join(known)}",
                              "metric")
        return known[self._metric]


@dataclasses.dataclass
class _Live:
    """A trial that trains."""

    trial: Trial
    number: int  # in the session
    max_steps: int
    round: int  # in which it trains now


class _Rounds:
    """The loop of `optimize`. Whatever it needs after an interruption is in the study's storage."""

    def __init__(self, trials: _Trials, quantum: int) -> None:
        self._trials, self._quantum = trials, quantum
        self._study, self._session = trials.study, trials.session
        self._live: list[_Live] = []

    def run(self, n_trials: int, at_once: int) -> None:
        now = int(self._study.user_attrs.get(_ROUND, 0))
        for trial in self._trials.running():
            self._submit(trial, now + 1)
        while True:
            for live in [live for live in self._live if live.round == now]:
                self._session.wait(live.number)
                if not self._goes_on(live):
                    self._live.remove(live)
            for trial in self._trials.ask(at_once - len(self._live), n_trials):
                self._submit(trial, now + 1)
            if not self._live:
                return
            now += 1
            self._study.set_user_attr(_ROUND, now)

    def _submit(self, trial: Trial, coming: int) -> None:
        """A trial that is new, or of an interrupted call, trains to the end of its round."""
        mark = trial.user_attrs.get(_MARK, {"round": coming, "step": 0})
        until = mark["step"] + self._quantum
        submitted = self._trials.submit(trial, until)
        if submitted is None:
            return
        live = _Live(trial, *submitted, mark["round"])
        if _MARK in trial.user_attrs:
            self._extend(live, until)  # where this session has it from the interrupted call
        else:
            self._mark(trial, live.round, 0)
        self._live.append(live)

    def _extend(self, live: _Live, until: int) -> None:
        self._session.extend(live.number, min(until, live.max_steps))

    def _goes_on(self, live: _Live) -> bool:
        """Tells the study what a trial has reached; whether it trains in the next round."""
        trial, result = live.trial, self._session.result(live.number)
        if result.state not in ("paused", "done"):
            self._end_without_value(trial, result)
            return False
        value = self._trials.value(result.eval_loss, result.metrics)
        reported = _frozen(trial).last_step == result.steps  # by an interrupted call
        if not reported:
            trial.report(value, result.steps)
        if result.state == "done":
            self._trials.tell(trial, "done", value=value)
            return False
        if self._decide_again(trial) if reported else self._decide(self._study, _frozen(trial)):
            self._session.stop(live.number)
            self._trials.tell(trial, "stopped", "pruned by Optuna")
            return False
        live.round += 1
        self._mark(trial, live.round, result.steps)
        self._extend(live, result.steps + self._quantum)
        return True

    def _end_without_value(self, trial: Trial, result: TrialResult) -> None:
        if result.state not in _ENDS:
            raise ConfigError(
                f"at_once: {len(self._live)} trials do not fit into host_memory together; "
                "use a smaller at_once or more host_memory", "at_once")
        self._trials.tell(trial, result.state, result.reason)

    def _decide(self, study: optuna.Study, frozen: FrozenTrial) -> bool:
        """What the pruner says. It keeps nothing in memory from one decision to the next."""
        return copy.deepcopy(self._study.pruner).prune(study, frozen)

    def _decide_again(self, trial: Trial) -> bool:
        """Repeats an interrupted decision, perhaps after the pruner had written its marks."""
        kept = set(trial.user_attrs[_MARK]["kept"])
        copied = optuna.create_study(direction=self._study.direction,
                                     study_name=self._study.study_name)
        for other in self._study.get_trials():
            if other.number == trial.number:
                other.system_attrs = {key: other.system_attrs[key] for key in kept}
            copied.add_trial(other)
        decided = self._decide(copied, copied.trials[trial.number])
        for key, value in copied.trials[trial.number].system_attrs.items():
            trial.storage.set_trial_system_attr(trial._trial_id, key, value)
        return decided

    @staticmethod
    def _mark(trial: Trial, round: int, step: int) -> None:
        kept = sorted(_frozen(trial).system_attrs)
        trial.set_user_attr(_MARK, {"round": round, "step": step, "kept": kept})


def _frozen(trial: Trial) -> FrozenTrial:
    return trial.storage.get_trial(trial._trial_id)


class _Stream:
    """The loop of `optimize_as_they_come`."""

    def __init__(self, trials: _Trials) -> None:
        self._trials, self._session = trials, trials.session
        self._live: dict[int, Trial] = {}
        self._values: dict[int, float] = {}

    def run(self, n_trials: int, at_once: int) -> None:
        seen = 0
        for trial in self._trials.running():
            self._submit(trial)
        while True:
            for trial in self._trials.ask(at_once - len(self._live), n_trials):
                self._submit(trial)
            if not self._live:
                return
            for event in self._session.events(seen, wait_s=1):
                seen = event.sequence
                if event.trial in self._live:
                    self._take(self._live[event.trial], event.trial, event)

    def _submit(self, trial: Trial) -> None:
        submitted = self._trials.submit(trial)
        if submitted is not None:
            self._live[submitted[0]] = trial

    def _take(self, trial: Trial, number: int, event: Event) -> None:
        if event.kind == "eval":
            value = self._values[number] = self._trials.value(event.loss, event.metrics)
            if event.step > (_frozen(trial).last_step or 0):
                trial.report(value, event.step)
                if trial.should_prune():
                    self._session.stop(number)
        elif event.kind == "state" and event.state in _ENDS:
            if event.state == "done" and number not in self._values:
                result = self._session.result(number)
                self._values[number] = self._trials.value(result.eval_loss, result.metrics)
            del self._live[number]
            self._trials.tell(trial, event.state, event.reason, self._values.get(number))


class _KeyedSampler(BaseSampler):
    """Draws each value with a sampler of its own, whose seed depends on what is drawn alone."""

    def __init__(self, make: Callable[..., BaseSampler], seed: int) -> None:
        self._make, self._seed = make, seed

    def _of(self, trial: FrozenTrial, what: str) -> BaseSampler:
        key = hashlib.sha256(f"{self._seed}/{trial.number}/{what}".encode()).digest()
        return self._make(seed=int.from_bytes(key[:4], "little"))

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._of(trial, "").infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        sampler = self._of(trial, "")
        sampler.infer_relative_search_space(study, trial)  # some keep what they find
        return sampler.sample_relative(study, trial, search_space)

    def sample_independent(self, study: optuna.Study, trial: FrozenTrial, param_name: str,
                           param_distribution: BaseDistribution) -> Any:
        sampler = self._of(trial, f"parameter {param_name}")
        return sampler.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self._of(trial, "").before_trial(study, trial)

    def after_trial(self, study: optuna.Study, trial: FrozenTrial, state: TrialState,
                    values: Sequence[float] | None) -> None:
        self._of(trial, "").after_trial(study, trial, state, values)
