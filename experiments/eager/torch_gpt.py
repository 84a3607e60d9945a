"""Trains Spillway's GPT in eager PyTorch on one thread and prints a line of JSON: when each
step ended, the CPU time used by then, the system's part of that, and its loss. Usage: torch_gpt.py SHAPE (JSON, see eager.py) TEXT"""

import json
import os
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        batch, positions, width = x.shape
        qkv = self.qkv(self.ln_1(x)).view(batch, positions, 3, self.heads, width // self.heads)
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(batch, positions, width)
        x = x + self.dropout(self.attn_proj(y))
        return x + self.dropout(self.proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh")))


class Gpt(nn.Module):
    def __init__(self, blocks, width, heads, positions, dropout, vocabulary=256):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Parameter(torch.empty(positions, width))
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(blocks))
        self.ln_f = nn.LayerNorm(width)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                residual = name.endswith("proj.weight")
                nn.init.normal_(p, std=0.02 / (2 * blocks) ** 0.5 if residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, tokens):
        x = self.dropout(self.wte(tokens[:, :-1]) + self.wpe)
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].reshape(-1))


def optimizer_of(model):
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    return torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1},
                              {"params": others, "weight_decay": 0.0}], lr=3e-4, fused=True)


def batches(text, shape):
    """Batches of samples as Spillway cuts them: [batch, positions + 1], in consecutive order."""
    with open(text, "rb") as file:
        data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
    sample = shape["positions"] + 1
    data = data[:len(data) // sample * sample].view(-1, sample)
    torch.manual_seed(1)
    order = torch.randperm(len(data))
    for i in range(shape["steps"]):
        yield data[order[i * shape["batch"]:(i + 1) * shape["batch"]]].long()


def train(shape, text):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = Gpt(shape["blocks"], shape["width"], shape["heads"], shape["positions"],
                shape["dropout"], shape.get("vocabulary", 256))
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=shape.get("bf16", False))
    optimizer, steps = optimizer_of(model), []
    for batch in batches(text, shape):
        optimizer.zero_grad(set_to_none=True)
        loss = 0.0
        for micro in batch.chunk(shape["virtual_nodes"]):
            with autocast:
                part = model(micro) / shape["virtual_nodes"]
            part.backward()
            loss += part.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps.append({"loss": loss.item(), "time_s": time.perf_counter(),
                      "cpu_s": time.process_time(), "system_s": os.times().system})
    return steps


if __name__ == "__main__":
    print(json.dumps(train(json.loads(sys.argv[1]), sys.argv[2])))
