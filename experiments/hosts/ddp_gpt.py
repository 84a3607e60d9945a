"""Trains Spillway's GPT by PyTorch's DistributedDataParallel on Gloo, one process of several, and
prints on rank 0 a line of JSON: seconds of each step, and a hash of the weights.
Usage: ddp_gpt.py RANK SIZE PORT SHAPE (JSON, see eager.py) TEXT"""

import ctypes
import hashlib
import json
import pathlib
import sys
import time

import torch
import torch.distributed as dist

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "eager"))
import torch_gpt  # noqa: E402


def train(rank, size, shape, text):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    gpt = torch_gpt.Gpt(shape["blocks"], shape["width"], shape["heads"], shape["positions"],
                        shape["dropout"])
    model = torch.nn.parallel.DistributedDataParallel(gpt)
    optimizer, seconds = torch_gpt.optimizer_of(gpt), []
    for batch in torch_gpt.batches(text, shape):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        own = batch.chunk(size)[rank].chunk(shape["virtual_nodes"] // size)
        for number, micro in enumerate(own):
            model.require_backward_grad_sync = number + 1 == len(own)
            (model(micro) / len(own)).backward()
        torch.nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    weights = hashlib.sha256()
    for parameter in gpt.parameters():
        weights.update(ctypes.string_at(parameter.data_ptr(), 4 * parameter.numel()))
    return {"seconds": seconds, "weights": weights.hexdigest()}


def main():
    rank, size = int(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[3]}", rank=rank,
                            world_size=size)
    result = train(rank, size, json.loads(sys.argv[4]), sys.argv[5])
    if rank == 0:
        print(json.dumps(result))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
