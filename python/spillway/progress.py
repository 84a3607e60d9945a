"""Shows how trials proceed: bars of tqdm where it is installed, else one line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .session import Event

#: Name and number of steps of a trial, by its number.
Describe = Callable[[int], tuple[str, int | None]]


class Progress:
    """Takes events and shows each trial's steps and loss on standard error."""

    def __init__(self, describe: Describe) -> None:
        self._describe = describe
        self._bars: dict[int, Any] = {}
        self._lines = _tqdm() is None
        self._latest = ""

    def take(self, events: Iterable[Event]) -> None:
        """Shows the latest of these events."""
        for event in events:
            if event.trial is None or event.kind not in ("step", "eval"):
                continue
            if self._lines:
                self._show_line(event.trial, event)
            else:
                self._show_bar(event.trial, event)

    def close(self) -> None:
        """Leaves what is shown, and ends the line."""
        for bar in self._bars.values():
            bar.close()
        if self._latest:
            print(file=sys.stderr)

    def _show_bar(self, trial: int, event: Event) -> None:
        if trial not in self._bars:
            name, steps = self._describe(trial)
            self._bars[trial] = _tqdm()(total=steps, desc=name, unit="step", leave=True)
        bar = self._bars[trial]
        bar.n = event.step
        key = "loss" if event.kind == "step" else "eval_loss"
        bar.set_postfix({key: f"{event.loss:.4g}"}, refresh=False)
        bar.refresh()

    def _show_line(self, trial: int, event: Event) -> None:
        name, steps = self._describe(trial)
        of = f"/{steps}" if steps else ""
        text = f"{name}: step {event.step}{of}, loss {event.loss:.4g}"
        end = "\r" if sys.stderr.isatty() else "\n"
        print(text.ljust(len(self._latest)), end=end, file=sys.stderr, flush=True)
        self._latest = text if end == "\r" else ""


def _tqdm() -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm
