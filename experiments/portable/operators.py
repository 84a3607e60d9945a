#!/usr/bin/env python3
"""Runs PyTorch's samples of its operators in fp32 with portable numerics; prints a line of JSON
before and after each.

Usage: operators.py [NAME]: begins behind this operator.
"""

import hashlib
import json
import random
import sys
import warnings

warnings.filterwarnings("ignore")
import numpy  # noqa: E402
import spillway  # noqa: E402
import torch  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

MOST_SAMPLES = 25
UNDEFINED = ["empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided",
             "empty_permuted"]  # their results are whatever the memory held


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in tensors_of(each)]
    return []


def add(sum_of, tensors):
    for tensor in tensors:
        if tensor.layout != torch.strided or tensor.numel() == 0:
            continue
        plain = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
        if plain.is_floating_point():  # processors differ in the sign of NaN
            plain = torch.where(plain.isnan(), torch.full_like(plain, float("nan")), plain)
        sum_of.update(plain.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def run(op, sample, results, gradients):
    output = tensors_of(op(sample.input, *sample.args, **sample.kwargs))
    add(results, output)
    inputs = [tensor for tensor in tensors_of([sample.input, sample.args,
                                               list(sample.kwargs.values())])
              if tensor.requires_grad]
    outputs = [tensor for tensor in output if tensor.requires_grad]
    if inputs and outputs:
        found = torch.autograd.grad(outputs, inputs, [torch.full_like(o, 0.37) for o in outputs],
                                    allow_unused=True)
        add(gradients, [gradient for gradient in found if gradient is not None])


def seed(number):
    torch.manual_seed(number)
    numpy.random.seed(number)
    random.seed(number)


def hashes_of(op):
    results, gradients, samples = hashlib.sha256(), hashlib.sha256(), 0
    seed(1)
    for sample in op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd):
        seed(2)
        try:
            run(op, sample, results, gradients)
        except (RuntimeError, NotImplementedError, AssertionError):  # not in this build
            continue
        samples += 1
        if samples == MOST_SAMPLES:
            break
    return {"samples": samples, "results": results.hexdigest(), "gradients": gradients.hexdigest()}


def main():
    spillway.Session("64MiB", numerics="portable")
    torch.set_num_threads(1)
    behind = sys.argv[1] if len(sys.argv) > 1 else ""
    for op in op_db:
        name = f"{op.name}.{op.variant_test_name}".rstrip(".")
        if behind:
            behind = "" if name == behind else behind
            continue
        if torch.float32 not in op.supported_dtypes("cpu") or op.name in UNDEFINED:
            continue
        print(json.dumps({"name": name}), flush=True)
        print(json.dumps({"name": name, **hashes_of(op)}), flush=True)


if __name__ == "__main__":
    main()
