"""What became of trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

import torch

from ._core import DeviceResult, Evaluation, RunResult, TrialPlan, TrialResult

__all__ = ["Evaluation", "Results", "TrialPlan", "TrialResult"]

_COLUMNS = ("name", "state", "steps", "first_loss", "final_loss", "eval_loss", "tokens_per_s",
            "parameters", "num_shards", "weights_xxh3")


class Results(Sequence[TrialResult]):
    """The results of a session's trials, in order of submission."""

    def __init__(self, run: RunResult) -> None:
        self._run = run
        #: After `fit`, what the module's `load_state_dict` takes, for each trial.
        self.weights: Sequence[Mapping[str, torch.Tensor]] = ()
        self._trials: list[TrialResult] = run.trials

    def __len__(self) -> int:
        return len(self._trials)

    @overload
    def __getitem__(self, index: int) -> TrialResult: ...
    @overload
    def __getitem__(self, index: slice) -> list[TrialResult]: ...
    def __getitem__(self, index: int | slice) -> TrialResult | list[TrialResult]:
        return self._trials[index]

    @property
    def devices(self) -> list[DeviceResult]:
        """What each device did in the latest run."""
        return self._run.devices

    @property
    def wall_s(self) -> float:
        """Seconds of the latest run."""
        return self._run.wall_s

    @property
    def host_peak_bytes(self) -> int:
        """Most bytes of training state in host memory."""
        return self._run.host_peak_bytes

    @property
    def h2d_weight_bytes(self) -> int:
        """Weights copied to devices."""
        return self._run.h2d_weight_bytes

    @property
    def h2d_shared_bytes(self) -> int:
        """Those of them that trials share: frozen parameters of the same bytes."""
        return self._run.h2d_shared_bytes

    def rows(self) -> list[dict[str, Any]]:
        """A dictionary for each trial, with its metrics."""
        return [
            {**{column: getattr(trial, column) for column in _COLUMNS}, **trial.metrics}
            for trial in self._trials
        ]

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each trial."""
        import pandas

        return pandas.DataFrame(self.rows())
