"""Runs in folders, as the command `spillway` writes and continues them."""

from __future__ import annotations

import csv
import json
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from . import _core
from .errors import ConfigError
from .export.spw import read_safetensors
from .generate import generate, tokenizer_folder
from .hugging_face import save_gpt2, save_lora, save_pretrained
from .progress import Progress
from .results import Evaluation
from .session import Event

Path = str | os.PathLike[str]
Overrides = Sequence[str] | Mapping[str, Any]
Callback = Callable[[Event], None]


class Run:
    """A run in a folder. Its values are those of the latest `refresh`."""

    def __init__(self, folder: Path) -> None:
        self.folder = pathlib.Path(folder)
        self.report: dict[str, Any] = {}
        self.refresh()

    def refresh(self) -> None:
        """Reads the folder again. Raises ConfigError if it holds no run."""
        self.report = json.loads(_core.results(os.fspath(self.folder)))

    @property
    def state(self) -> str:
        """ended, running or unfinished."""
        return str(self.report["state"])

    @property
    def trials(self) -> list[dict[str, Any]]:
        """The trials, as `spillway results --json` lists them (docs/outputs.md)."""
        return list(self.report["trials"])

    @property
    def best(self) -> dict[str, Any] | None:
        """Name, folder and metric of the best trial; None as long as none has ended."""
        best: dict[str, Any] | None = self.report["best"]
        return best

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each trial and a column for each swept key and metric."""
        import pandas

        return pandas.DataFrame(
            [
                {**{key: value for key, value in trial.items() if key not in ("sweep", "metrics")},
                 **trial["sweep"], **trial["metrics"]}
                for trial in self.trials
            ]
        )

    def history(self, trial: str | None = None) -> list[dict[str, float]]:
        """What is known of each step of a trial, by default the best one: docs/outputs.md lists the
        columns of its metrics.csv. Raises ConfigError (`trial`).
        """
        file = self.folder / "trials" / self._name_of(trial) / "metrics.csv"
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        complete = text[:text.rfind("\n") + 1].splitlines()
        return [{name: float(value) for name, value in row.items() if value}
                for row in csv.DictReader(complete)]

    def state_dict(self, trial: str | None = None) -> dict[str, torch.Tensor]:
        """The final weights of a trial, by default the best one.

        Raises ConfigError (`trial`).
        """
        return read_safetensors(self._weights_file(self._name_of(trial)))

    def evaluate(self, trial: str | None = None, *, data: Path | Sequence[Path] | None = None,
                 overrides: Overrides = ()) -> Evaluation:
        """Mean loss and metrics of the final weights of a trial, by default the best one.

        It computes on the run's devices, within their budgets, also while the run goes on.
        `data`: files like those of `data.path`; by default the evaluation data of the run.
        `overrides`: as for `train`, such as {"devices": [{"memory": "1GiB"}]}.
        Raises ConfigError (`trial`, `data.eval_path`) and DoesNotFit.
        """
        name = self._name_of(trial)
        self._weights_file(name)
        if data is not None:
            paths = [data] if isinstance(data, (str, os.PathLike)) else data
            files = json.dumps([os.path.abspath(path) for path in paths])
            overrides = [*_texts(overrides), f"data.eval_path={files}", "data.eval_fraction=0"]
        return _core.evaluate(os.fspath(self.folder), name, _texts(overrides))

    def generate(self, prompt: str, *, trial: str | None = None, like: Path | None = None,
                 max_new_tokens: int = 100, temperature: float = 0.0, seed: int = 0) -> str:
        """The prompt and what a trained language model adds to it, by `generate` of transformers.

        `trial`, `like`: as for `save_pretrained`. The tokenizer is the one of the folder `like` or,
        of an adapter, of its base. Without one, tokens are bytes if the run's data are.
        `temperature`: 0 takes the likeliest token each time; otherwise tokens are drawn, by `seed`.
        A model with a table of positions ends where that does. Raises ConfigError (`prompt`,
        `trial`, `like`, ...).
        """
        tokenizer = None if like is None else tokenizer_folder(like)
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder, trial=trial, like=like)
            if tokenizer is None and self._contract(self._name_of(trial))["data.format"] != "bytes":
                raise ConfigError("like: must be a folder with the tokenizer of the run's data, "
                                  "because these are not bytes", "like")
            return generate(folder, prompt, tokenizer=tokenizer, max_new_tokens=max_new_tokens,
                            temperature=temperature, seed=seed)

    def save_pretrained(self, folder: Path, *, trial: str | None = None,
                        like: Path | None = None) -> None:
        """Writes a trial, by default the best one, as a folder of Hugging Face.

        `like`: the folder that the model came from, see `spillway.save_pretrained`. A built-in gpt
        becomes a GPT-2 and takes only the tokenizer from there, if any. An adapter of the
        configuration (`adapter.type`) becomes a folder of PEFT's. Raises ConfigError
        (`trial`, `like`).
        """
        weights, name = self.state_dict(trial), self._name_of(trial)
        names = "".join(weights)  # PEFT renames the layers of a base, a configuration does not
        is_lora = ".lora_" in names and ".base_layer." not in names
        needs_more = is_lora or "wte.weight" in weights or like is None
        fields = self._contract(name) if needs_more else {}
        if fields.get("model.family") == "gpt":
            save_gpt2(weights, folder, like=like,
                      num_attention_heads=int(fields["model.num_attention_heads"]),
                      layer_norm_eps=float(fields["model.layer_norm_eps"]))
        elif like is None:
            raise ConfigError(f"like: is missing; trial '{name}' is of the family "
                              f"{fields['model.family']}, so name the folder of its configuration",
                              "like")
        elif is_lora:
            save_lora(weights, folder, like=like, r=int(fields["adapter.r"]),
                      alpha=float(fields["adapter.alpha"]),
                      dropout=float(fields["adapter.dropout"]),
                      target_modules=re.findall(r"[\w.-]+", fields["adapter.target_modules"]))
        else:
            save_pretrained(weights, folder, like=like)

    def _contract(self, name: str) -> dict[str, str]:
        """What decides the bits of a trial, by the keys of the configuration."""
        fields: dict[str, str] = json.loads(_core.contract(os.fspath(self.folder), name))
        return fields

    def _weights_file(self, name: str) -> pathlib.Path:
        file = self.folder / "trials" / name / "weights.safetensors"
        if not file.is_file():
            state = next(each["state"] for each in self.trials if each["name"] == name)
            raise ConfigError(f"trial: '{name}' is {state} and has no final weights yet; choose "
                              "one that is done", "trial")
        return file

    def _name_of(self, trial: str | None) -> str:
        if trial is None:
            if self.best is None:
                raise ConfigError(f"trial: is missing, and no trial of {self} has ended", "trial")
            return str(self.best["name"])
        for each in self.trials:
            if trial in (each["name"], each["short_name"]):
                return str(each["name"])
        raise ConfigError(f"trial: {self} has no trial '{trial}'", "trial")

    def __repr__(self) -> str:
        return f"Run({os.fspath(self.folder)!r}, {self.state}, {len(self.trials)} trials)"


def train(
    config: Path | Mapping[str, Any],
    overrides: Overrides = (),
    *,
    output_dir: Path | None = None,
    overwrite: bool = False,
    progress: bool = True,
    callback: Callback | None = None,
) -> Run:
    """Trains what a configuration describes: a YAML file, or its content as a dictionary.

    `overrides`: values by dotted keys, such as {"train.learning_rate": 1e-3}. `callback` gets each
    event, such as a `spillway.tracking.Tracker`. Ctrl-C stops the
    trials, saves them, and is raised again: `resume` goes on. Raises ConfigError, DoesNotFit,
    IoError and InUse.
    """
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(config, Mapping):
            file = pathlib.Path(folder) / "config.yaml"
            file.write_text(json.dumps(config), encoding="utf-8")
        else:
            file = pathlib.Path(config)
        if output_dir is not None:
            overrides = [*_texts(overrides), f"output_dir={json.dumps(os.fspath(output_dir))}"]
        with _Teller(progress, callback) as tell:
            return Run(_core.train(os.fspath(file), _texts(overrides), overwrite, tell))


def resume(folder: Path, overrides: Overrides = (), *, progress: bool = True,
           callback: Callback | None = None) -> Run:
    """Resumes the trials of a run that have not ended, from their newest checkpoints.

    Their bits are those of a run that was never interrupted. Raises like `train`.
    """
    with _Teller(progress, callback) as tell:
        return Run(_core.resume(os.fspath(folder), _texts(overrides), tell))


def open(folder: Path) -> Run:
    """The run in a folder, also while it trains. Raises ConfigError if there is none."""
    return Run(folder)


def _texts(overrides: Overrides) -> list[str]:
    if isinstance(overrides, Mapping):
        return [f"{key}={json.dumps(value)}" for key, value in overrides.items()]
    return list(overrides)


class _Teller:
    """What a run calls while it trains."""

    def __init__(self, progress: bool, callback: Callback | None) -> None:
        self._callback = callback
        self._shown = Progress(lambda trial: (f"trial {trial}", None)) if progress else None

    def __enter__(self) -> Callable[[str, str], None]:
        return self._tell

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._shown.close()

    def _tell(self, events: str, notes: str) -> None:
        if notes:
            print(notes, end="", file=sys.stderr)
        taken = [Event._of(values) for values in json.loads(events)]
        if self._shown:
            self._shown.take(taken)
        for event in taken:
            if self._callback:
                self._callback(event)
