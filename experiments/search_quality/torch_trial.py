"""A trial of the search in plain PyTorch on one thread: model, data, steps and evaluation."""

import functools
import math
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "eager"))
from torch_gpt import Gpt  # noqa: E402


class Mlp(nn.Module):
    """Of rows of 64 numbers and a class."""

    def __init__(self, layers, width, dropout):
        super().__init__()
        sizes = [64] + [width] * layers + [10]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.dropout = nn.Dropout(dropout)
        for layer in self.layers:
            nn.init.normal_(layer.weight, std=math.sqrt(2 / layer.in_features))
            nn.init.zeros_(layer.bias)

    def forward(self, rows):
        x = rows[:, :64].float() / 16
        for layer in self.layers[:-1]:
            x = self.dropout(F.relu(layer(x)))
        return F.cross_entropy(self.layers[-1](x), rows[:, 64])


@functools.lru_cache
def samples_of(family, path, positions, eval_fraction):
    """Rows to train on, and rows to evaluate on, which are the last ones."""
    if family == "mlp":
        with open(path, encoding="ascii") as file:
            rows = torch.tensor([[int(float(x)) for x in line.split(",")] for line in file])
    else:
        with open(path, "rb") as file:
            data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
        sample = positions + 1
        rows = data[:len(data) // sample * sample].view(-1, sample)
    num_eval = round(len(rows) * eval_fraction)
    return rows[:-num_eval], rows[-num_eval:]


class TorchTrial:
    def __init__(self, problem, values, seed, eval_batches, eval_fraction):
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self.seed = seed
        dropout = values["dropout"]
        self.model = (Mlp(problem["layers"], problem["width"], dropout)
                      if problem["family"] == "mlp" else
                      Gpt(problem["blocks"], problem["width"], problem["heads"],
                          problem["positions"], dropout))
        parameters = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(
            [{"params": [p for p in parameters if p.dim() > 1],
              "weight_decay": values["weight_decay"]},
             {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0}],
            lr=values["learning_rate"], fused=True)
        self.train_rows, eval_rows = samples_of(problem["family"], problem["path"],
                                                problem.get("positions"), eval_fraction)
        self.batch = problem["batch"]
        most = min(eval_batches, len(eval_rows) // self.batch)
        self.eval_rows = eval_rows[:most * self.batch].long()
        self.order = torch.empty(0, dtype=torch.long)
        self.step = 0

    def next_rows(self):
        if len(self.order) < self.batch:
            self.order = torch.randperm(len(self.train_rows))
        taken, self.order = self.order[:self.batch], self.order[self.batch:]
        return self.train_rows[taken].long()

    def train_to(self, step):
        self.model.train()
        while self.step < step:
            self.optimizer.zero_grad(set_to_none=True)
            self.model(self.next_rows()).backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.step += 1

    def evaluate(self):
        self.model.eval()
        with torch.no_grad():
            parts = [self.model(rows).item() for rows in self.eval_rows.split(self.batch)]
        return sum(parts) / len(parts)

    def state(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                "step": self.step}

    def take(self, state, learning_rate):
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.step = state["step"]
        torch.manual_seed(self.seed + 1_000_000 * self.step)  # not the samples of step 0 again
