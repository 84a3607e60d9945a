#!/usr/bin/env python3
"""Losses and step times of built-in models and of their twins that PyTorch exports; prints a table.

Usage: twins.py [--brief]; needs the package spillway.
"""

import argparse
import pathlib
import statistics
import tempfile

import torch
from torch import nn
from torch.nn import functional as F

import spillway as sp

BATCH, NODE = 8, 4


class Block(nn.Module):
    """A block of the built-in gpt."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(width, 3 * width),
                                   "proj": nn.Linear(width, width)})
        self.mlp = nn.ModuleDict({"fc": nn.Linear(width, 4 * width),
                                  "proj": nn.Linear(4 * width, width)})

    def forward(self, x):
        """[B, T, width] -> the same"""
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for part in self.attn["qkv"](self.ln_1(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["proj"](mixed.transpose(1, 2).flatten(2))
        return x + self.mlp["proj"](F.gelu(self.mlp["fc"](self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """The built-in gpt."""

    def __init__(self, width, layers, heads, length):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(256, width), nn.Embedding(length, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens):
        """[B, T] -> logits [B, T, 256]"""
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


class Mlp(nn.Module):
    """The built-in mlp."""

    def __init__(self, width, layers):
        super().__init__()
        self.h = nn.ModuleList(nn.Linear(width if i else 64, width) for i in range(layers))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        """Integers [B, 64] -> logits [B, 10]"""
        x = x.float() / 16
        for layer in self.h:
            x = F.relu(layer(x))
        return self.head(x)


class Residual(nn.Module):
    """A block of the built-in resnet."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        if stride > 1 or inputs != width:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False),
                                            nn.BatchNorm2d(width))
        else:
            self.downsample = nn.Identity()

    def forward(self, x):
        """[B, inputs, H, W] -> [B, width, H / stride, W / stride]"""
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.downsample(x))


class Resnet(nn.Module):
    """The built-in resnet."""

    def __init__(self, widths, depth):
        super().__init__()
        self.conv1 = nn.Conv2d(1, widths[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.num_stages = len(widths)
        for stage, (inputs, width) in enumerate(zip([widths[0], *widths], widths), 1):
            blocks = [Residual(inputs if i == 0 else width, width, 2 if stage > 1 > i else 1)
                      for i in range(depth)]
            setattr(self, f"layer{stage}", nn.Sequential(*blocks))
        self.fc = nn.Linear(widths[-1], 10)

    def forward(self, x):
        """Integers [B, 64], pictures of 8 x 8 -> logits [B, 10]"""
        x = F.relu(self.bn1(self.conv1(x.float().unflatten(1, (1, 8, 8)) / 16)))
        for stage in range(1, self.num_stages + 1):
            x = getattr(self, f"layer{stage}")(x)
        return self.fc(x.mean((2, 3)))


def train(model, data, steps, rate=1e-3):
    """The weights, the losses and the seconds of each step but the first two."""
    with sp.Session("1GiB") as session:
        trial = session.submit(model, data, batch_size=BATCH, virtual_nodes=BATCH // NODE,
                               max_steps=steps, learning_rate=rate, lr_scheduler_type="constant")
        session.wait()
        result = session.result(trial)
        times = [event.time_s for event in session.events() if event.kind == "step"]
        if result.state != "done":
            raise RuntimeError(result.reason)
        return (session.state_dict(trial), result.losses,
                [b - a for a, b in zip(times[1:], times[2:])])


def distance(a, b):
    return max(abs(x - y) / abs(y) for x, y in zip(a, b, strict=True))


def compare(name, built_in, module, example, data, folder, arguments, **values):
    """A row of the table."""
    initial, _, _ = train(built_in, data, 1, rate=0.0)
    running = {key: value for key, value in module.state_dict().items()
               if "running_" in key or key.endswith("num_batches_tracked")}
    module.load_state_dict({**initial, **running}, strict=True)
    twin = sp.from_torch(module, example, path=folder / "net.spw", **values)
    seconds = {"built-in": [], "exported": []}
    losses = {}
    for _ in range(arguments.rounds):
        for side, model in (("built-in", built_in), ("exported", twin)):
            _, losses[side], times = train(model, data, arguments.steps)
            seconds[side].append(statistics.median(times))
    _, control, _ = train(built_in, data, arguments.steps, rate=1.1e-3)
    found, control = (distance(each, losses["built-in"]) for each in (losses["exported"], control))
    if not found < 1e-5 < control:
        raise RuntimeError(f"{name}: losses differ by {found}, and by {control} with another rate")
    ratios = [b / a for a, b in zip(seconds["built-in"], seconds["exported"])]
    medians = [1000 * statistics.median(seconds[side]) for side in seconds]
    print(f"| {name} | {found:.1e} | {control:.1e} | {medians[0]:.2f} | {medians[1]:.2f} | "
          f"{statistics.median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f}) |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--brief", action="store_true")
    arguments = parser.parse_args()
    arguments.rounds, arguments.steps = (1, 4) if arguments.brief else (7, 40)
    width, layers, length = (32, 1, 16) if arguments.brief else (256, 4, 128)
    generator = torch.Generator().manual_seed(1)
    print("| model | difference of losses | control | built-in, ms a step | exported, ms a step | "
          "exported / built-in |\n| --- | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tokens = torch.randint(0, 256, (256, 1), generator=generator)
        tokens = (tokens + torch.arange(length + 1) ** 2 % 7) % 256
        gpt = sp.gpt(hidden_size=width, num_hidden_layers=layers, num_attention_heads=4,
                     max_position_embeddings=length, dropout=0)
        compare(f"gpt, {layers} blocks of {width}, {length} tokens", gpt,
                Gpt(width, layers, 4, length), tokens[:NODE, :-1], sp.data(tokens), folder,
                arguments, targets="next_token")
        x = torch.randint(0, 17, (256, 64), generator=generator)
        mlp = sp.mlp(hidden_size=4 * width, num_hidden_layers=4)
        compare(f"mlp, 4 layers of {4 * width}", mlp, Mlp(4 * width, 4), x[:NODE],
                sp.data(x, x[:, :10].argmax(1)), folder, arguments)
        widths = (8, 16) if arguments.brief else (32, 64, 128)
        resnet = sp.resnet(hidden_sizes=list(widths), depths=[2] * len(widths))
        compare(f"resnet, {len(widths)} stages of 2 blocks, {widths[0]} to {widths[-1]} channels",
                resnet, Resnet(widths, 2), x[:NODE], sp.data(x, x[:, :10].argmax(1)), folder,
                arguments)


if __name__ == "__main__":
    main()
