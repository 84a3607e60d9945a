"""The C++ part of Spillway; use the package spillway."""

from collections.abc import Sequence
import os

import torch


class TrialPlan:
    """What is known about a trial before it trains."""

    @property
    def num_shards(self) -> int:
        """Pieces into which the model is cut."""

    @property
    def shards(self) -> list[str]:
        """First and last layer of each."""

    @property
    def order(self) -> str:
        """shard_major or vn_major."""

    @property
    def data_parallel(self) -> int:
        """Devices that compute a step together."""

    @property
    def declined(self) -> list[str]:
        """Why devices are left out, a sentence for each."""

    @property
    def host_bytes(self) -> int:
        """Host memory of the trial alone."""

    @property
    def shared_bytes(self) -> int:
        """Host memory that it shares with trials of the same frozen parameters."""

    @property
    def smallest_budget_bytes(self) -> int:
        """The smallest device budget that fits."""

    @property
    def load_ahead_budget_bytes(self) -> int:
        """
        Device budget from which shards load while others compute; 0: nothing spills.
        """

    @property
    def training_state_bytes(self) -> int:
        """Weights, gradients and optimizer state."""

    @property
    def checkpoint_bytes(self) -> int:
        """Most bytes of its checkpoints on disk."""

    @property
    def compute_s_per_step(self) -> float:
        """Seconds of a step on one device, as measured."""

class StepCost:
    """The cost of a training step, simulated."""

    @property
    def step_s(self) -> float:
        """Seconds from one commit to the next."""

    @property
    def to_device_bytes(self) -> int:
        """Copied from the host in a step."""

    @property
    def to_host_bytes(self) -> int:
        """Copied to the host."""

    @property
    def between_devices_bytes(self) -> int:
        """From one device to another."""

class PricedStrategy:
    """A strategy and its cost."""

    @property
    def name(self) -> str:
        """Such as: pipeline of 4."""

    @property
    def has_strategy(self) -> bool:
        """False: data parallelism without a strategy."""

    @property
    def data_parallel(self) -> int:
        """Without a strategy: devices that compute a step together."""

    @property
    def cost(self) -> StepCost | None:
        """None: it does not fit."""

class SearchResult:
    """What a search has found."""

    @property
    def known(self) -> list[PricedStrategy]:
        """Data parallelism and well-known strategies."""

    @property
    def best(self) -> PricedStrategy:
        """The fastest of all."""

    @property
    def simulated(self) -> int:
        """Different strategies that were simulated."""

class TrialResult:
    """What became of a trial."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def state(self) -> str:
        """waiting, paused, running, done, failed, stopped or stopped early."""

    @property
    def reason(self) -> str:
        """Why it failed or was stopped early."""

    @property
    def parameters(self) -> int:
        """Number of weights."""

    @property
    def num_shards(self) -> int:
        """Pieces into which the model is cut."""

    @property
    def virtual_nodes(self) -> int:
        """Per step."""

    @property
    def data_parallel(self) -> int:
        """Devices that compute a step together."""

    @property
    def steps(self) -> int:
        """Committed steps."""

    @property
    def first_loss(self) -> float | None:
        """Loss of the first step."""

    @property
    def final_loss(self) -> float | None:
        """Loss of the last committed step."""

    @property
    def eval_loss(self) -> float | None:
        """Loss of the last evaluation."""

    @property
    def metrics(self) -> dict[str, float]:
        """Of the last evaluation, by name."""

    @property
    def tokens_per_s(self) -> float:
        """Over the run."""

    @property
    def weights_xxh3(self) -> str:
        """XXH3-128 of the final weights."""

    @property
    def training_state_bytes(self) -> int:
        """Weights, gradients and optimizer state."""

    @property
    def losses(self) -> list[float]:
        """One per committed step."""

    @property
    def gradient_norms(self) -> list[float]:
        """One per committed step."""

    @property
    def eval_losses(self) -> list[tuple[int, float]]:
        """(step, loss) of each evaluation."""

    @property
    def eval_metrics(self) -> list[tuple[int, dict[str, float]]]:
        """(step, metrics) of each evaluation."""

class DeviceResult:
    """What a device did."""

    @property
    def kind(self) -> str:
        """cpu or cuda."""

    @property
    def budget_bytes(self) -> int:
        """Most bytes that it may hold."""

    @property
    def peak_bytes(self) -> int:
        """Most bytes held."""

    @property
    def busy_share(self) -> float:
        """Of the run's time, 0 to 1."""

    @property
    def h2d_bytes(self) -> int:
        """Bytes copied from the host."""

    @property
    def d2h_bytes(self) -> int:
        """Bytes copied to the host."""

    @property
    def kept_graphs(self) -> int:
        """Backward ops that recomputed nothing."""

class RunResult:
    """What a session did so far."""

    @property
    def trials(self) -> list[TrialResult]:
        """In order of submission."""

    @property
    def devices(self) -> list[DeviceResult]:
        """In order of their numbers."""

    @property
    def host_peak_bytes(self) -> int:
        """Most bytes of training state in host memory."""

    @property
    def h2d_weight_bytes(self) -> int:
        """Weights copied to devices."""

    @property
    def h2d_shared_bytes(self) -> int:
        """Those of them that trials share: frozen parameters of the same bytes."""

    @property
    def copy_hidden_share(self) -> float | None:
        """
        Part of the copies' time in which their device computed; None without copies.
        """

    @property
    def wall_s(self) -> float:
        """Seconds of the latest run."""

class Evaluation:
    """A trial on other data."""

    @property
    def loss(self) -> float:
        """Mean over all samples."""

    @property
    def metrics(self) -> dict[str, float]:
        """By name."""

class Model:
    """A model to train."""

def model(document: str) -> Model:
    """A built-in model, from the section `model` of a configuration."""

def exported_model(path: str, *, attention: int = 1, mlp: int = 1, vocabulary: int = 1, linear: int = 1) -> Model:
    """A model of PyTorch in a file, with its layers in pieces."""

class Data:
    """Samples for training and evaluation."""

    @property
    def num_samples(self) -> int:
        """Samples for training."""

    @property
    def num_eval_samples(self) -> int:
        """Samples for evaluation."""

    @property
    def sample_elements(self) -> int:
        """Values per sample."""

def tensor_data(parts: Sequence[torch.Tensor], eval_fraction: float = 0.0, eval_parts: Sequence[torch.Tensor] | None = None) -> Data:
    """Samples in tensors [N, ...], which are read in place."""

def bytes_data(paths: Sequence[str], sequence_length: int, eval_fraction: float) -> Data:
    """Bytes of files as tokens."""

def tokens_data(paths: Sequence[str], dtype: str, vocab_size: int, sequence_length: int, eval_fraction: float) -> Data:
    """Files of token numbers, as tokenizers write them."""

class Session:
    """Trials on shared devices."""

    def __init__(self, document: str) -> None: ...

    def start(self) -> None:
        """Trials train from now on."""

    def wait_for(self, seconds: float, trial: int | None = None) -> bool:
        """
        Waits at most so long until nothing can go on, or a trial has ended or is paused. Returns whether the wait is over.
        """

    def finish(self) -> None:
        """Waits, then stops what is paused."""

    def stop_all(self) -> None:
        """Stops all trials; their state is saved if they have checkpoints."""

    def events(self, since: int, wait_s: float) -> str:
        """The events after number `since`, as JSON."""

    def result(self) -> RunResult:
        """The result so far."""

    def add_device(self, document: str) -> None:
        """Adds a device."""

    def remove_device(self, device: int) -> None:
        """Removes a device."""

    def submit(self, model: Model, data: Data, document: str, name: str, client_id: str, until: int, checkpoint_dir: str | os.PathLike, weights_file: str | os.PathLike) -> int:
        """Submits a trial."""

    def plan(self, trial: int) -> TrialPlan:
        """The plan of a trial."""

    def search(self, trial: int, path: str | os.PathLike, proposals: int, seed: int) -> SearchResult:
        """Searches for a strategy and writes it."""

    def stop(self, trial: int) -> None:
        """Stops a trial."""

    def pause(self, trial: int) -> None:
        """Pauses a trial."""

    def resume(self, trial: int) -> None:
        """Continues a trial."""

    def extend(self, trial: int, until: int) -> None:
        """Moves the step at which a trial waits."""

    def set(self, trial: int, learning_rate: float | None = None, weight_decay: float | None = None, max_grad_norm: float | None = None) -> int:
        """
        Changes values from the next commit on; returns the number of steps before.
        """

    def clone(self, trial: int, name: str, client_id: str, learning_rate: float | None = None, weight_decay: float | None = None, max_grad_norm: float | None = None, max_steps: int = 0, until: int = 0, checkpoint_dir: str | os.PathLike = '', weights_file: str | os.PathLike = '') -> int:
        """Submits a copy that begins from the newest commit."""

    def resize(self, trial: int, data_parallel: int) -> None:
        """Sets the number of devices that compute a step."""

    def weights(self, trial: int) -> list[tuple[str, torch.Tensor]]:
        """(name, tensor) of each weight."""

    def evaluate(self, trial: int, data: Data) -> Evaluation:
        """Mean loss and metrics on other samples."""

    def predict(self, trial: int, data: Data) -> torch.Tensor:
        """What the model computes before its loss, by sample."""

def train(config_file: str, overrides: Sequence[str], overwrite: bool, tell: object) -> str:
    """Trains the run of a configuration file; returns its folder."""

def resume(folder: str, overrides: Sequence[str], tell: object) -> str:
    """Resumes the run in a folder; returns the folder."""

def results(folder: str) -> str:
    """The results of a run in a folder, as JSON."""

def contract(folder: str, trial: str) -> str:
    """The fields of a trial's model and data that decide its bits, as JSON."""

def evaluate(folder: str, trial: str, overrides: Sequence[str]) -> Evaluation:
    """The final weights of a trial on its evaluation data."""
