"""The package `spillway`: trials that share their frozen parameters.

Usage: shared_base_test.py
"""

import os
import pathlib
import tempfile
import unittest

import torch
from torch import nn

import spillway as sp
from spillway.export.spw import read_header, read_safetensors, write_safetensors

WIDTH, LAYERS, STEPS = 64, 8, 4
TRAIN = {"batch_size": 8, "virtual_nodes": 2, "max_steps": STEPS, "lr_scheduler_type": "constant"}
RATES = [1e-3, 2e-3, 3e-3, 4e-3]


class Adapted(nn.Module):
    """A frozen layer with a small trained one beside it."""

    def __init__(self, frozen):
        super().__init__()
        self.base, self.down = frozen, nn.Linear(WIDTH, 2, bias=False)
        self.up = nn.Linear(2, WIDTH, bias=False)

    def forward(self, x):
        return x + torch.tanh(self.base(x) + self.up(self.down(x)))


def network(base_seed=1, adapter_seed=1, frozen=True):
    torch.manual_seed(base_seed)
    base = [nn.Linear(WIDTH, WIDTH).requires_grad_(not frozen) for _ in range(LAYERS)]
    torch.manual_seed(adapter_seed)
    return nn.Sequential(*(Adapted(layer) for layer in base), nn.Linear(WIDTH, 3))


class SharedBaseTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        generator = torch.Generator().manual_seed(2)
        self.x = torch.randn(64, WIDTH, generator=generator)
        self.y = torch.randint(0, 3, (64,), generator=generator)

    def export(self, name="net", **network_arguments):
        return sp.from_torch(network(**network_arguments), self.x[:4], loss="cross_entropy",
                             path=self.folder / f"{name}.spw")

    def data(self):
        return sp.data(self.x, self.y, eval_fraction=0.25)

    def smallest(self, model):
        with sp.Session("64MiB") as session:
            plan = session.plan(session.submit(model, self.data(), **TRAIN))
            session.stop(0)
        return plan.smallest_budget_bytes, plan.shared_bytes

    def train(self, models, rates, devices, **session_arguments):
        with sp.Session(devices, **session_arguments) as session:
            for model, rate in zip(models, rates):
                session.submit(model, self.data(), learning_rate=rate, eval_batches=2, until=1,
                               **TRAIN)
            for trial in range(len(models)):  # all of them go on at the same time
                session.wait(trial)
            for trial in range(len(models)):
                session.extend(trial, STEPS)
            session.wait()
        run = session.results()
        self.assertEqual({trial.state for trial in run}, {"done"})
        return run

    def bits(self, run):
        return [trial.weights_xxh3 for trial in run]

    def test_that_bits_do_not_depend_on_company(self):
        model = self.export()
        smallest, base = self.smallest(model)
        self.assertGreaterEqual(base, LAYERS * WIDTH * WIDTH * 4)
        alone = [self.bits(self.train([model], [rate], "64MiB"))[0] for rate in RATES]
        self.assertEqual(len(set(alone)), len(RATES))
        for devices in [smallest], ["64MiB"], [smallest, smallest]:
            run = self.train([model] * 4, RATES, devices)
            self.assertEqual(self.bits(run), alone)

    def test_that_a_load_serves_all_trials(self):
        model = self.export()
        smallest, base = self.smallest(model)
        one, four = (self.train([model] * n, RATES, smallest) for n in (1, 4))
        self.assertGreater(one[0].num_shards, 3)
        # They may begin apart.
        self.assertLess(four.h2d_shared_bytes, 0.75 * 4 * one.h2d_shared_bytes)
        self.assertLess(four.host_peak_bytes, base + 4 * (one.host_peak_bytes - base) + 4096)

    def test_that_files_of_one_base_share_it_and_others_do_not(self):
        models = [self.export(f"{seed}", adapter_seed=seed) for seed in range(3)]
        other = self.export("other", base_seed=5)
        trained = self.export("trained", frozen=False)
        smallest, base = self.smallest(models[0])
        alone = [self.bits(self.train([model], RATES, "64MiB"))[0] for model in [*models, other]]
        of_one_base = self.train(models, [RATES[0]] * 3, smallest)
        self.assertEqual(self.bits(of_one_base), alone[:3])
        self.assertEqual(len(set(alone)), 4)
        mixed = self.train([*models[:2], other], [RATES[0]] * 3, smallest)
        self.assertEqual(self.bits(mixed), [alone[0], alone[1], alone[3]])
        self.assertGreater(mixed.host_peak_bytes, of_one_base.host_peak_bytes + 0.9 * base)
        self.assertEqual(self.train([trained], RATES, "64MiB").h2d_shared_bytes, 0)

    def train_and_look(self, model, path):
        """Its bits, and whether the file was mapped while it trained."""
        with sp.Session("64MiB") as session:
            trial = session.submit(model, self.data(), until=1, **TRAIN)
            session.wait()
            is_mapped = str(path) in pathlib.Path("/proc/self/maps").read_text()
            session.extend(trial, STEPS)
            session.wait()
        return session.result(trial).weights_xxh3, is_mapped

    def test_that_homes_are_mapped_from_the_file(self):
        path, moved = self.folder / "net.spw", self.folder / "moved.spw"
        bits = self.train_and_look(self.export(), path)
        self.assertEqual(bits[1], True)
        header, _ = read_header(path)
        tensors = {name: tensor for name, tensor in read_safetensors(path).items()
                   if not name.startswith("padding.")}
        # A tensor of odd size comes first.
        write_safetensors(moved, {"state_dict.unused": torch.zeros(3), **tensors},
                          header["__metadata__"])
        self.assertEqual(self.train_and_look(sp.load(moved), moved), (bits[0], False))

    def test_that_a_mapped_file_must_stay_as_it_is(self):
        model = self.export()
        with sp.Session("64MiB") as session:
            trial = session.submit(model, self.data(), until=1, **TRAIN)
            session.wait()
            os.utime(self.folder / "net.spw", (0, 0))
            session.extend(trial, STEPS)
            session.wait()
        self.assertEqual(session.result(trial).state, "failed")
        self.assertIn("was written to during the run", session.result(trial).reason)

    def test_that_host_memory_needs_room_for_one_base(self):
        model = self.export()
        one, four = (self.train([model] * n, RATES, "64MiB") for n in (1, 4))
        run = self.train([model] * 4, RATES, "64MiB", host_memory=four.host_peak_bytes)
        self.assertEqual(run.host_peak_bytes, four.host_peak_bytes)
        with self.assertRaises(sp.DoesNotFit):
            self.train([model], RATES, "64MiB", host_memory=one.host_peak_bytes - 1)


if __name__ == "__main__":
    unittest.main()
