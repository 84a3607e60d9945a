"""The package `spillway`: what stands for operators in exported graphs.

Usage: rewrite_test.py
"""

import json
import pathlib
import tempfile
import unittest

import torch
from safetensors import safe_open
from torch import nn

import spillway as sp
from spillway.export.replacements import Counts


class Views(nn.Module):
    """[B, 4, 6] -> [B, 5]; may change a view in place."""

    def __init__(self, in_place):
        super().__init__()
        self.linear, self.in_place = nn.Linear(24, 5), in_place

    def forward(self, x):
        x = x * 2
        flat = x.view(x.shape[0], 24)
        if self.in_place:
            flat.mul_(3)
            return self.linear(x.flatten(1))
        return self.linear(flat)


class Experts(nn.Module):
    """Counts how often each expert is chosen: [B, 8] -> [B, 4]"""

    def __init__(self, most):
        super().__init__()
        self.linear, self.most = nn.Linear(8, 4), most

    def forward(self, x):
        scores = self.linear(x)
        chosen = scores.topk(2).indices
        counts = torch.histc(chosen.float(), bins=4, min=0, max=self.most)
        return scores * counts


class RewriteTest(unittest.TestCase):
    def operators(self, module, example):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "net.spw"
            sp.from_torch(module, example, path=path)
            with safe_open(path, "pt") as file:
                document = file.metadata()["spillway"]
        found = set()
        json.loads(document, object_hook=lambda values: found.add(values.get("op")))
        return found

    def test_that_views_may_copy(self):
        x = torch.randn(3, 4, 6)
        operators = self.operators(Views(in_place=False), x)
        self.assertIn("aten::reshape", operators)
        self.assertNotIn("aten::view", operators)
        self.assertIn("aten::view", self.operators(Views(in_place=True), x))

    def test_that_whole_numbers_are_counted(self):
        x = torch.randn(3, 8)
        self.assertNotIn("aten::histc", self.operators(Experts(most=3), x))
        self.assertIn("aten::histc", self.operators(Experts(most=2), x))

    def test_that_counts_are_those_of_histc(self):
        for bins in 2, 7, 64, 1000:
            x = torch.randint(-3, bins + 3, (17, 31)).float()
            self.assertTrue(torch.equal(Counts(bins)(x), torch.histc(x, bins, 0, bins - 1)))


if __name__ == "__main__":
    unittest.main()
