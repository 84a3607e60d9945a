"""Prints the nanoseconds per element of PyTorch's dropout, forward, on one thread: a JSON list with
an entry for each given number of elements.

Usage: torch_dropout.py ELEMENTS...
"""

import json
import statistics
import sys
import time

import torch


def nanoseconds(elements):
    x, samples = torch.randn(elements), []
    for _ in range(5 + (1 << 22) // elements):
        begin = time.perf_counter()
        torch.nn.functional.dropout(x, 0.1)
        samples.append((time.perf_counter() - begin) / elements * 1e9)
    return statistics.median(samples)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps([nanoseconds(int(n)) for n in sys.argv[1:]]))
