"""Sends events to W&B or trackio. Needs `pip install spillway[wandb]` or `spillway[trackio]`."""

from __future__ import annotations

import contextvars
import hashlib
import inspect
import os
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from .runs import Run
from .session import Event, Session

__all__ = ["Tracker"]

_ENDS = ("done", "failed", "stopped", "stopped early")
_UNTRACKED = ("event", "sequence", "time_s", "trial", "step")  # of the values of a step


class Tracker:
    """A callback of `Session.wait`, `train` and `resume`: each trial is a run of W&B or trackio.

    A trial that resumes from a checkpoint goes on in the run that it had; any other trial begins a
    new one. A `with` block, or `close`, ends the runs of trials that wait.
    """

    def __init__(
        self,
        module: Any,
        trials: Session | str | os.PathLike[str],
        *,
        project: str,
        group: str,
        **init: Any,
    ) -> None:
        """`module`: wandb or trackio. `trials`: the session, or the folder of the run.

        A run is found again by `project`, `group` and the name of its trial. In W&B, a trial that
        begins anew replaces the run that had the three. `init`: other arguments of `module.init`,
        such as mode="offline".
        """
        self._module, self._trials = module, trials
        self._project, self._group, self._init = project, group, init
        self._begun: set[int] = set()
        self._open: dict[int, _Tracked] = {}
        self._resumed: dict[int, int] = {}  # the step, as long as nothing was sent since then
        self._seen = 0

    def __call__(self, event: Event) -> None:
        """Takes the next event; one that it has seen before is ignored."""
        trial = event.trial
        if trial is None or event.sequence <= self._seen:
            return
        self._seen = event.sequence
        if trial not in self._open:
            self._open[trial] = self._begin(trial, event.kind == "resumed" or trial in self._begun)
        tracked, ends = self._open[trial], event.state in _ENDS
        if event.kind == "resumed":
            self._resumed[trial] = event.step
        elif trial in self._resumed and (event.kind == "step" or ends):
            self._send_history(trial, self._resumed.pop(trial), tracked)
        if trial not in self._resumed:
            tracked.take(event)
        if ends:
            tracked.finish(event.state == "failed")
            del self._open[trial]

    def close(self, failed: bool = False) -> None:
        """Ends the runs that are open."""
        for tracked in self._open.values():
            tracked.finish(failed)
        self._open.clear()

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close(failed=kind is not None)

    def _begin(self, trial: int, resumes: bool) -> _Tracked:
        self._begun.add(trial)
        name, values = self._submitted(trial)
        key = hashlib.sha256("/".join((self._project, self._group, name)).encode()).hexdigest()
        options = {"project": self._project, "group": self._group, "config": dict(values),
                   "id": key[:16], "name": f"{self._group} {name}", "reinit": "create_new",
                   **({"resume": "allow"} if resumes else {}), **self._init}
        # trackio ends the run of this context before it begins another one.
        context = contextvars.copy_context()
        return _Tracked(context.run(_call, self._module.init, options))

    def _submitted(self, trial: int) -> tuple[str, Mapping[str, Any]]:
        if isinstance(self._trials, Session):
            return self._trials.submitted(trial)
        found = Run(self._trials).trials[trial]
        return found["name"], found["sweep"]

    def _send_history(self, trial: int, step: int, tracked: _Tracked) -> None:
        """Sends what a program that was killed before `step` may not have sent."""
        if isinstance(self._trials, Session):
            rows = self._trials.history(trial)
        else:
            run = Run(self._trials)
            rows = run.history(run.trials[trial]["name"])
        for row in rows:
            if row["step"] <= step:
                tracked.add(int(row["step"]), row)


class _Tracked:
    """A run that is open. A row, all that is known of a step, is sent once it is complete."""

    def __init__(self, run: Any) -> None:
        self._run = run
        # The step after the last one that the run has; in trackio this name is not public.
        self._next = getattr(run, "step", 0) or getattr(run, "_next_step", 0)
        self._step = 0
        self._row: dict[str, float] = {}

    def take(self, event: Event) -> None:
        if event.kind == "step":
            self.add(event.step, event.values)
        elif event.kind == "eval":
            self.add(event.step, {"eval_loss": event.loss, **event.metrics})
        elif event.kind == "state":
            self._send()

    def finish(self, failed: bool) -> None:
        self._send()
        _call(self._run.finish, {"exit_code": int(failed)})

    def add(self, step: int, values: Mapping[str, Any]) -> None:
        """Adds to the row of a step, which is not below that of the last one."""
        if step != self._step:
            self._send()
            self._step = step
        self._row.update({key: value for key, value in values.items() if key not in _UNTRACKED})

    def _send(self) -> None:
        # What the run has of an earlier program has the same bits.
        if self._row and self._step >= self._next:
            self._run.log(self._row, step=self._step)
        self._row = {}


def _call(function: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """Calls it with those options that it takes."""
    taken = inspect.signature(function).parameters
    return function(**{key: value for key, value in options.items() if key in taken})
