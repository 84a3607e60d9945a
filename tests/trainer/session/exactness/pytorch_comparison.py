#!/usr/bin/env python3
"""Compares the losses of a spilled run with the same GPT in eager PyTorch.

Usage: pytorch_comparison.py TORCH_DIR COMPARISON_RUN. Needs a Python version that the PyTorch of
TORCH_DIR supports; without one, prints so and exits with 77.
"""

import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
TOLERANCE = 1e-4

# The same values as in tests/trainer/session/exactness/comparison_run.cpp.
STEPS, BATCH, POSITIONS, CHANNELS, HEADS, LAYERS = 10, 16, 16, 32, 2, 3
LEARNING_RATE, WEIGHT_DECAY, MAX_GRAD_NORM, WARMUP = 3e-3, 0.1, 0.5, 2


def find_python(torch_dir):
    """The first Python of the version for which the extension module in `torch_dir` is built."""
    tags = [re.search(r"cpython-3(\d+)", path.name) for path in torch_dir.glob("_C.cpython-*.so")]
    for tag in filter(None, tags):
        version = f"3.{tag[1]}"
        for candidate in (sys.executable, f"python{version}", "/usr/bin/python3", "python3"):
            path = shutil.which(candidate)
            report = "import sys; print('%d.%d' % sys.version_info[:2])"
            if path and subprocess.run([path, "-c", report], capture_output=True, text=True,
                                       check=False).stdout.strip() == version:
                return path
    return None


def read_safetensors(path):
    """Name -> tensor, for a file of float32 tensors."""
    import torch
    data = path.read_bytes()
    header_bytes, = struct.unpack("<Q", data[:8])
    body = bytearray(data[8 + header_bytes:])
    header = json.loads(data[8:8 + header_bytes])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "F32", entry
        begin, end = entry["data_offsets"]
        flat = torch.frombuffer(body, dtype=torch.float32, count=(end - begin) // 4, offset=begin)
        tensors[name] = flat.reshape(entry["shape"]).clone()
    return tensors


def loss_of(w, tokens):
    """Mean cross entropy of a pre-norm GPT with tied embedding; `tokens` [B, P + 1]."""
    import torch
    from torch.nn import functional as F

    def norm(x, name):
        return F.layer_norm(x, (CHANNELS,), w[name + ".weight"], w[name + ".bias"])

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    x = w["wte.weight"][inputs] + w["wpe.weight"]
    future = torch.ones(POSITIONS, POSITIONS, dtype=torch.bool).triu(1)
    for layer in range(LAYERS):
        h = f"h.{layer}."
        qkv = linear(norm(x, h + "ln_1"), h + "attn.qkv").chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in qkv)
        scores = q @ k.transpose(-2, -1) / math.sqrt(CHANNELS // HEADS)
        mixed = scores.masked_fill(future, -math.inf).softmax(-1) @ v
        x = x + linear(mixed.transpose(1, 2).flatten(2), h + "attn.proj")
        hidden = F.gelu(linear(norm(x, h + "ln_2"), h + "mlp.fc"), approximate="tanh")
        x = x + linear(hidden, h + "mlp.proj")
    logits = norm(x, "ln_f") @ w["wte.weight"].T
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def schedule(step):
    if step < WARMUP:
        return step / WARMUP
    return 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))


def train(weights, batches, learning_rate=LEARNING_RATE):
    import torch
    w = {name: value.clone().requires_grad_() for name, value in weights.items()}
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in w.values() if p.dim() > 1], "weight_decay": WEIGHT_DECAY},
         {"params": [p for p in w.values() if p.dim() == 1], "weight_decay": 0.0}],
        lr=learning_rate)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    losses = []
    for tokens in batches:
        optimizer.zero_grad()
        loss = loss_of(w, tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(w.values(), MAX_GRAD_NORM)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


def compare(folder):
    import torch
    weights = read_safetensors(folder / "initial.safetensors")
    data = bytearray((folder / "batches.bin").read_bytes())
    batches = torch.frombuffer(data, dtype=torch.int64).reshape(STEPS, BATCH, POSITIONS + 1)
    expected = [float(line) for line in (folder / "losses.txt").read_text().split()]

    def difference(losses):
        assert len(losses) == len(expected) == STEPS
        return max(abs(a - b) for a, b in zip(losses, expected))

    other = {name: value * 1.01 if name == "wte.weight" else value
             for name, value in weights.items()}
    same = difference(train(weights, batches))
    controls = {"another learning rate": difference(train(weights, batches, LEARNING_RATE * 1.05)),
                "other initial weights": difference(train(other, batches))}
    print(f"PyTorch {torch.__version__}: losses {expected[0]:.4f} ... {expected[-1]:.4f}, "
          f"largest difference {same:.1e}")
    for name, found in controls.items():
        print(f"control, {name}: {found:.1e}")
    return 0 if same < TOLERANCE and min(controls.values()) > TOLERANCE else 1


def main():
    if sys.argv[1] == "--compare":
        return compare(Path(sys.argv[2]))
    torch_dir = Path(sys.argv[1])
    python = find_python(torch_dir)
    if python is None:
        print(f"skipped: no Python here fits the PyTorch in {torch_dir}")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[2], folder], check=True)
        environment = {**os.environ, "PYTHONPATH": str(torch_dir.parent)}
        return subprocess.run([python, __file__, "--compare", folder], env=environment,
                              check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
