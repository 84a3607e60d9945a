"""The package `spillway` on a GPU, beside PyTorch that uses the same GPU.

Usage: gpu_test.py; skipped without a GPU, unless SPILLWAY_REQUIRE_GPU is set.
"""

import os
import pathlib
import sys
import tempfile
import threading
import unittest

import torch
from torch import nn

import spillway as sp

SKIPPED = 77
MIB = 2**20
WIDTH, DEPTH, CLASSES, STEPS = 128, 12, 5, 6
TRAIN = {"batch_size": 16, "virtual_nodes": 4, "max_steps": STEPS, "learning_rate": 1e-3,
         "lr_scheduler_type": "constant", "weight_decay": 0.0, "max_grad_norm": 0.0}


def gpu(memory="64MiB"):
    return {"kind": "cuda", "index": 0, "memory": memory}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.wide = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH)
        self.drop, self.back = nn.Dropout(0.1), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.back(self.drop(torch.nn.functional.gelu(self.wide(self.norm(x)))))


def network(dropout=0.1):
    torch.manual_seed(1)
    blocks = [Block() for _ in range(DEPTH)]
    for block in blocks:
        block.drop.p = dropout
    return nn.Sequential(*blocks, nn.Linear(WIDTH, CLASSES))


def samples():
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(64, WIDTH, generator=generator)
    return x, x[:, :CLASSES].argmax(1)


def trained_eagerly(module, x, y, steps=STEPS):
    """The losses of plain PyTorch; the same samples in each step."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.0)
    losses = []
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(module(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class OnGpu(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def export(self, module, example):
        return sp.from_torch(module, example, path=self.folder / "net.spw")

    def train(self, model, data, devices, **train):
        with sp.Session(devices) as session:
            trial = session.submit(model, data, **{**TRAIN, **train})
        return session.result(trial)

    def smallest(self, model, data):
        with sp.Session(gpu()) as session:
            plan = session.plan(session.submit(model, data, **TRAIN))
            session.stop(0)
        return gpu(plan.smallest_budget_bytes)

    def test_has_equal_bits_under_any_budget(self):
        x, y = samples()
        model, data = self.export(network(), x[:4]), sp.data(x, y)
        whole = self.train(model, data, gpu())
        small = self.smallest(model, data)
        for devices in small, [small, small]:
            spilled = self.train(model, data, devices, order="shard_major")
            self.assertEqual(spilled.weights_xxh3, whole.weights_xxh3)
        self.assertNotEqual(self.train(model, data, gpu(), seed=5).weights_xxh3,
                            whole.weights_xxh3)

    def test_takes_what_lies_on_the_gpu(self):
        x, y = samples()
        model, data = self.export(network(), x[:4]), sp.data(x, y)
        expected = self.train(model, data, gpu()).weights_xxh3
        there = self.export(network().cuda(), x[:4].cuda())
        self.assertEqual(self.train(there, sp.data(x.cuda(), y.cuda()), gpu()).weights_xxh3,
                         expected)

    def test_agrees_with_pytorch_on_the_gpu(self):
        x, y = (part[:16] for part in samples())
        module = network(dropout=0.0)
        model, data = self.export(module, x[:4]), sp.data(x, y)
        with sp.Session(gpu()) as session:
            trial = session.submit(model, data, **TRAIN)
        result = session.result(trial)
        module.cuda()
        losses = trained_eagerly(module, x.cuda(), y.cuda())
        for ours, theirs in zip(result.losses, losses, strict=True):
            self.assertAlmostEqual(ours, theirs, delta=1e-4)
        self.assertNotAlmostEqual(losses[0], losses[-1], delta=1e-2)
        twin = network(dropout=0.0)
        twin.load_state_dict(session.state_dict(trial))
        torch.testing.assert_close(session.predict(trial, data), twin.cuda()(x.cuda()).cpu(),
                                   rtol=1e-4, atol=1e-4)

    def test_trains_what_kernels_of_gpus_lay_out_in_other_ways(self):
        class Encoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.0, batch_first=True)
                self.head = nn.Linear(WIDTH, CLASSES)

            def forward(self, x):
                return self.head(self.layer(x)[:, 0])

        torch.manual_seed(1)
        module = Encoder()
        x, y = torch.randn(16, 6, WIDTH, generator=torch.Generator().manual_seed(2)), samples()[1]
        data = sp.data(x, y[:16])
        result = self.train(self.export(module, x[:4]), data, gpu())
        losses = trained_eagerly(module.cuda(), x.cuda(), y[:16].cuda())
        for ours, theirs in zip(result.losses, losses, strict=True):
            self.assertAlmostEqual(ours, theirs, delta=1e-4)

    def test_shares_the_gpu_with_pytorch(self):
        x, y = samples()
        model, data = self.export(network(), x[:4]), sp.data(x, y)
        alone = trained_eagerly(network(dropout=0.0).cuda(), x.cuda(), y.cuda(), steps=50)
        expected = self.train(model, data, gpu(), max_steps=40).weights_xxh3
        beside = []
        thread = threading.Thread(target=lambda: beside.append(trained_eagerly(
            network(dropout=0.0).cuda(), x.cuda(), y.cuda(), steps=50)))
        with sp.Session(gpu()) as session:
            trial = session.submit(model, data, **{**TRAIN, "max_steps": 40})
            thread.start()
            session.wait()
            thread.join()
        self.assertEqual(session.result(trial).weights_xxh3, expected)
        for ours, theirs in zip(beside[0], alone, strict=True):
            self.assertAlmostEqual(ours, theirs, delta=1e-3)

    def test_leaves_the_process_as_it_was(self):
        def flags():
            return (torch.are_deterministic_algorithms_enabled(),
                    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32,
                    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark,
                    torch.cuda.current_stream().cuda_stream, torch.cuda.current_device(),
                    torch.cuda.get_rng_state().tolist(), torch.get_rng_state().tolist())

        x, y = samples()
        model, data = self.export(network(), x[:4]), sp.data(x, y)
        self.train(model, data, gpu())
        torch.backends.cuda.matmul.allow_tf32 = True
        self.addCleanup(setattr, torch.backends.cuda.matmul, "allow_tf32", False)
        before = flags()
        self.train(model, data, gpu())
        self.assertEqual(flags(), before)

    def test_gives_its_memory_back(self):
        x, y = samples()
        model, data = self.export(network(), x[:4]), sp.data(x, y)
        self.train(model, data, gpu("64MiB"))  # what CUDA and LibTorch keep is there from now on
        torch.cuda.empty_cache()
        before = torch.cuda.mem_get_info()[0]
        with sp.Session(gpu("512MiB")) as session:
            session.submit(model, data, **TRAIN)
            session.wait()
            self.assertGreater(before - torch.cuda.mem_get_info()[0], 512 * MIB - MIB)
        del session
        self.assertLess(before - torch.cuda.mem_get_info()[0], 64 * MIB)

    def test_shares_frozen_weights(self):
        class Adapted(nn.Module):
            def __init__(self, base):
                super().__init__()
                self.base = base.requires_grad_(False)
                self.down, self.up = nn.Linear(WIDTH, 2), nn.Linear(2, WIDTH)

            def forward(self, x):
                return self.base(x) + self.up(self.down(x))

        x, y = samples()
        torch.manual_seed(1)
        module = nn.Sequential(*(Adapted(Block()) for _ in range(DEPTH)),
                               nn.Linear(WIDTH, CLASSES))
        model, data = self.export(module, x[:4]), sp.data(x, y)
        rates = [1e-3, 2e-3, 3e-3]
        alone = [self.train(model, data, gpu(), learning_rate=rate).weights_xxh3 for rate in rates]
        small = self.smallest(model, data)
        with sp.Session(small) as session:
            trials = [session.submit(model, data, **{**TRAIN, "learning_rate": rate})
                      for rate in rates]
        self.assertEqual([session.result(trial).weights_xxh3 for trial in trials], alone)
        self.assertEqual(len(set(alone)), len(rates))
        self.assertGreater(session.results().h2d_shared_bytes, 0)


if __name__ == "__main__":
    if not torch.cuda.is_available() and "SPILLWAY_REQUIRE_GPU" not in os.environ:
        print("skipped: no GPU")
        sys.exit(SKIPPED)
    unittest.main()
