"""Trains Spillway's GPT by PyTorch on Gloo, one process of several, and prints on rank 0 a line of
JSON: seconds of each step, and a hash of the weights.
Usage: distributed_gpt.py HOW RANK SIZE PORT SHAPE (JSON, see eager.py) TEXT
HOW: ddp (DistributedDataParallel) or fsdp (fully_shard, each block by itself)"""

import ctypes
import hashlib
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "eager"))
import torch_gpt  # noqa: E402


class Ddp:
    def __init__(self, gpt):
        self.module = torch.nn.parallel.DistributedDataParallel(gpt)

    def set_last(self, is_last):
        """Gradients are summed after the last part of a batch alone."""
        self.module.require_backward_grad_sync = is_last

    @staticmethod
    def whole(parameter):
        return parameter


class Fsdp:
    def __init__(self, gpt):
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for block in gpt.blocks:
            fully_shard(block, mesh=mesh)
        self.module = fully_shard(gpt, mesh=mesh)

    def set_last(self, is_last):
        self.module.set_requires_gradient_sync(is_last)

    @staticmethod
    def whole(parameter):
        return parameter.full_tensor()


def train(how, rank, size, shape, text):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    gpt = torch_gpt.Gpt(shape["blocks"], shape["width"], shape["heads"], shape["positions"],
                        shape["dropout"])
    parallel = {"ddp": Ddp, "fsdp": Fsdp}[how](gpt)
    optimizer, seconds = torch_gpt.optimizer_of(gpt), []
    for batch in torch_gpt.batches(text, shape):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        own = batch.chunk(size)[rank].chunk(shape["virtual_nodes"] // size)
        for number, micro in enumerate(own):
            parallel.set_last(number + 1 == len(own))
            (parallel.module(micro) / len(own)).backward()
        torch.nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    weights = hashlib.sha256()
    for parameter in map(parallel.whole, gpt.parameters()):
        weights.update(ctypes.string_at(parameter.data_ptr(), 4 * parameter.numel()))
    return {"seconds": seconds, "weights": weights.hexdigest()}


def main():
    how, rank, size, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=size)
    result = train(how, rank, size, json.loads(sys.argv[5]), sys.argv[6])
    if rank == 0:
        print(json.dumps(result), flush=True)
    dist.barrier()
    os._exit(0)  # destroying the group ends a process now and then by std::terminate


if __name__ == "__main__":
    main()
