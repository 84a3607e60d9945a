"""Trains Spillway's GPT by DistributedDataParallel on Gloo, until it is killed, as one process of
torchrun, which may start it again: rank 0 saves a checkpoint after each step, and all begin with the
newest. Rank 0 writes a line for each step into a file: its process number, and when the step ended by
the machine's clock.
Usage: torchrun_gpt.py SHAPE (JSON, see eager.py) TEXT FOLDER"""

import itertools
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "eager"))
import torch_gpt  # noqa: E402


def main():
    shape, text, folder = json.loads(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    gpt = torch_gpt.Gpt(shape["blocks"], shape["width"], shape["heads"], shape["positions"],
                        shape["dropout"])
    optimizer, done, saved = torch_gpt.optimizer_of(gpt), 0, folder / "checkpoint.pt"
    if saved.exists():
        state = torch.load(saved)
        gpt.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["step"]
    parallel = DistributedDataParallel(gpt)
    batches = itertools.cycle(torch_gpt.batches(text, shape))
    for step, batch in itertools.islice(enumerate(batches, start=1), done, None):
        optimizer.zero_grad(set_to_none=True)
        parallel(batch.chunk(size)[rank]).backward()
        optimizer.step()
        if rank == 0:
            with open(folder / "steps", "a", encoding="ascii") as steps:
                print(os.getpid(), time.monotonic(), file=steps)
            torch.save({"model": gpt.state_dict(), "optimizer": optimizer.state_dict(),
                        "step": step}, folder / "new.pt")
            os.replace(folder / "new.pt", saved)


if __name__ == "__main__":
    main()
