"""What stands for operators that a layer cannot call as they are, written in PyTorch."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """Attention with dropout, step by step, so that its mask can be keyed.

    The meaning of its arguments is that of `scaled_dot_product_attention`.
    """

    def __init__(self, p: float, is_causal: bool, scale: float | None, enable_gqa: bool) -> None:
        super().__init__()
        self.p, self.is_causal = p, is_causal
        self.scale, self.enable_gqa = scale, enable_gqa

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                mask: torch.Tensor | None = None) -> torch.Tensor:
        """[..., T, D], [..., S, D], [..., S, E] and, broadcast, [T, S] -> [..., T, E]"""
        if self.enable_gqa:
            key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
            value = value.repeat_interleave(query.size(-3) // value.size(-3), -3)
        scale = 1 / math.sqrt(query.size(-1)) if self.scale is None else self.scale
        scores = (query * scale @ key.transpose(-2, -1)).float()
        if self.is_causal:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if mask is None:
            weights = scores.softmax(-1)
        elif mask.dtype == torch.bool:
            weights = scores.masked_fill(~mask, -math.inf).softmax(-1)
            # A row without any key gives zeros instead of nan.
            weights = weights.masked_fill(~mask.any(-1, keepdim=True), 0)
        else:
            weights = (scores + mask).softmax(-1)
        return functional.dropout(weights.to(value.dtype), self.p) @ value


class FeatureDropout(nn.Module):
    """Drops whole channels of [B, C, ...]."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, C, ...] -> [B, C, ...]"""
        ones = x.new_ones(x.shape[:2] + (1,) * (x.dim() - 2))
        return x * functional.dropout(ones, self.p)


class Bernoulli(nn.Module):
    """Ones with probability `p`, otherwise zeros."""

    def __init__(self, p: float, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        super().__init__()
        self.p, self.shape, self.dtype = p, shape, dtype

    def forward(self) -> torch.Tensor:
        """-> [shape]"""
        return (functional.dropout(torch.ones(self.shape), 1 - self.p) > 0).to(self.dtype)


class Counts(nn.Module):
    """How often each of the numbers 0 to `bins` - 1 occurs, as `histc` counts whole numbers."""

    def __init__(self, bins: int) -> None:
        super().__init__()
        self.bins = bins

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[...] -> [bins]"""
        numbers = torch.arange(self.bins, device=x.device)
        return (x.reshape(-1, 1) == numbers).sum(0).to(x.dtype)


class NormByStatistics(nn.Module):
    """Batch norm by running statistics in fp32, whatever the type of `x` is."""

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor,
                weight: torch.Tensor | None = None,
                bias: torch.Tensor | None = None) -> torch.Tensor:
        """[B, C, ...] and four of [C] -> [B, C, ...]"""
        weight = None if weight is None else weight.float()
        bias = None if bias is None else bias.float()
        y = functional.batch_norm(x.float(), mean, variance, weight, bias, eps=self.eps)
        return y.to(x.dtype)
