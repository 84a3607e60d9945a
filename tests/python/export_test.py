"""The package `spillway`: modules of PyTorch as files that sessions train. Usage: export_test.py"""

import copy
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from unittest import mock

import torch
from torch import nn
from torch.nn import functional as F

import spillway as sp

STEPS, BATCH, NODE, RATE = 6, 16, 4, 1e-2
COMMAND = pathlib.Path(sys.executable).parent / "spillway"
# The AdamW of a session with no other values than these.
TRAIN = {"batch_size": BATCH, "learning_rate": RATE, "max_steps": STEPS, "weight_decay": 0.01,
         "max_grad_norm": 0.0, "lr_scheduler_type": "constant"}


def seeded(seed=1):
    return torch.Generator().manual_seed(seed)


class Attention(nn.Module):
    def __init__(self, width, p):
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.proj, self.p = nn.Linear(width, width), p

    def forward(self, x, mask=None):
        q, k, v = (t.unflatten(-1, (4, -1)).transpose(1, 2)
                   for t in self.qkv(self.norm(x)).chunk(3, -1))
        p = self.p if self.training else 0.0
        heads = F.scaled_dot_product_attention(q, k, v, mask, p, is_causal=mask is None)
        return x + self.proj(heads.transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    """A language model whose head is tied to its embedding."""

    def __init__(self, p=0.0, tokens=32, width=16, layers=3):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Attention(width, p) for _ in range(layers))
        self.head = nn.Linear(width, tokens, bias=False)
        self.head.weight = self.embedding.weight
        nn.init.normal_(self.embedding.weight, std=0.1, generator=seeded())

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Pooled(nn.Module):
    """Classifies padded sequences, with features besides."""

    def __init__(self):
        super().__init__()
        self.embedding, self.attention = nn.Embedding(32, 16), Attention(16, 0.0)
        self.head = nn.Linear(18, 3)

    def forward(self, tokens, mask, features):
        x = self.attention(self.embedding(tokens), mask[:, None, None, :])
        weights = mask.float().unsqueeze(-1)
        pooled = (x * weights).sum(1) / weights.sum(1)
        return self.head(torch.cat([pooled, features], -1))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.norm2 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8, momentum=None)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        return self.head(F.relu(x + self.norm2(self.second(x))).mean((2, 3)))


class Calls(nn.Module):
    """A linear layer behind a function, to see what becomes of that."""

    def __init__(self, function):
        super().__init__()
        self.function, self.linear = function, nn.Linear(8, 3)

    def forward(self, x):
        return self.linear(self.function(x, self))


def multilayer(p=0.0, outputs=3):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Dropout(p), nn.Linear(32, 32), nn.Tanh(),
                         nn.Dropout(p), nn.Linear(32, outputs))


def made(kind, *arguments):
    torch.manual_seed(3)
    return kind(*arguments)


def vectors(count=96):
    x = torch.randn(count, 8, generator=seeded())
    return x, x[:, :3].argmax(1)


def texts(count=96):
    return torch.randint(0, 32, (count, 9), generator=seeded())


def pictures(count=96):
    x = torch.randn(count, 1, 6, 6, generator=seeded())
    return x, torch.randint(0, 3, (count,), generator=seeded(2))


class ExportCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def export(self, module, example, **values):
        return sp.from_torch(module, example, path=self.folder / "net.spw", **values)

    def train(self, model, data, budget="64MiB", lanes=1, **train):
        """The result, the weights and the smallest budget."""
        with sp.Session([budget] * lanes) as session:
            values = {"data_parallel": lanes} if lanes > 1 else {}
            trial = session.submit(model, data, seed=5, **{**TRAIN, **values, **train})
            session.wait()
            result, plan = session.result(trial), session.plan(trial)
            self.assertEqual((result.state, result.reason), ("done", ""))
            return result, session.state_dict(trial), plan.smallest_budget_bytes

    def assert_exact(self, model, data, shards=2, **train):
        """Equal bits of two equal runs, at the smallest budget, and on 2 lanes; other ones not."""
        expected, _, smallest = self.train(model, data, **train)
        again, _, _ = self.train(model, data, **train)
        tight, _, _ = self.train(model, data, smallest, **train)
        wide, _, _ = self.train(model, data, smallest, 2, **train)
        self.assertEqual([r.weights_xxh3 for r in (again, tight, wide)],
                         [expected.weights_xxh3] * 3)
        self.assertEqual(expected.losses, wide.losses)
        self.assertGreaterEqual(tight.num_shards, shards)
        other, _, _ = self.train(model, data, **{**train, "learning_rate": 2 * RATE})
        self.assertNotEqual(other.weights_xxh3, expected.weights_xxh3)
        return expected


class LossTest(ExportCase):
    """Losses are those of a plain loop of PyTorch."""

    def plain(self, module, batches, loss, rate=RATE):
        """Losses of training a copy on these batches."""
        module = copy.deepcopy(module).train()
        groups = [{"params": [p for p in module.parameters() if p.dim() >= 2]},
                  {"params": [p for p in module.parameters() if p.dim() < 2], "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=rate, weight_decay=0.01)
        losses = []
        for inputs, targets in batches:
            optimizer.zero_grad()
            value = loss(module(*inputs), targets)
            value.backward()
            optimizer.step()
            losses.append(value.item())
        return losses

    def compare(self, module, inputs, targets, plain_loss, **values):
        """Every batch is all samples, so their order does not matter."""
        inputs = tuple(x[:BATCH] for x in inputs)
        targets = targets[:BATCH]
        before = copy.deepcopy(module.state_dict())
        mode = module.training
        model = self.export(module, tuple(x[:NODE] for x in inputs), targets=targets[:NODE],
                            **values)
        for name, tensor in module.state_dict().items():
            self.assertTrue(torch.equal(tensor, before[name]), name)
        self.assertEqual(module.training, mode)
        result, _, _ = self.train(model, sp.data(*inputs, targets))
        expected = self.plain(module, [(inputs, targets)] * STEPS, plain_loss)
        wrong = self.plain(module, [(inputs, targets)] * STEPS, plain_loss, rate=1.1 * RATE)
        self.assertLess(self.distance(result.losses, expected), 1e-4)
        self.assertGreater(self.distance(result.losses, wrong), 1e-4)
        return result

    @staticmethod
    def distance(a, b):
        return max(abs(x - y) / max(1, abs(y)) for x, y in zip(a, b, strict=True))

    def test_of_a_multilayer_perceptron(self):
        x, y = vectors()
        self.compare(multilayer(), (x,), y, F.cross_entropy)

    def test_of_a_transformer_with_tied_weights(self):
        tokens = texts()
        self.compare(made(Transformer), (tokens[:, :-1],), tokens[:, 1:],
                     lambda logits, y: F.cross_entropy(logits.flatten(0, 1), y.flatten()))

    def test_of_several_inputs_with_padding(self):
        tokens = texts()[:, :-1]
        mask = torch.arange(8) < torch.randint(1, 9, (96, 1), generator=seeded())
        features = torch.randn(96, 2, generator=seeded())
        self.compare(made(Pooled), (tokens, mask, features), tokens[:, 0] % 3, F.cross_entropy)

    def test_of_modules_of_pytorch(self):
        class Encoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
                self.recurrent = nn.GRU(8, 8, batch_first=True)
                self.head = nn.Linear(8, 3)

            def forward(self, x):
                mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
                return self.head(self.recurrent(self.layer(x, mask))[0].mean(1))

        x = torch.randn(BATCH, 5, 8, generator=seeded())
        self.compare(made(Encoder), (x,), x[:, 0, :3].argmax(1), F.cross_entropy)

    def test_named_mse_and_bce(self):
        x, _ = vectors()
        self.compare(multilayer(), (x,), x[:, :3].sin(), F.mse_loss, loss="mse")
        self.compare(multilayer(), (x,), (x[:, :3] > 0).float(),
                     F.binary_cross_entropy_with_logits, loss="bce")

    def test_with_ignored_classes_and_smoothing(self):
        x, y = vectors()
        y = torch.where(torch.arange(96) % 4 == 1, -1, y)
        loss = nn.CrossEntropyLoss(ignore_index=-1, label_smoothing=0.1)
        module = multilayer()
        model = self.export(module, x[:NODE], targets=y[:NODE], loss=loss)
        result, _, _ = self.train(model, sp.data(x[:NODE], y[:NODE]), batch_size=NODE)
        batches = [((x[:NODE],), y[:NODE])] * STEPS
        self.assertLess(self.distance(result.losses, self.plain(module, batches, loss)), 1e-4)
        plain = self.plain(module, batches, nn.CrossEntropyLoss(ignore_index=-1))
        self.assertGreater(self.distance(result.losses, plain), 1e-4)

    def test_that_is_a_module(self):
        class Pinball(nn.Module):
            def forward(self, output, targets):
                error = targets - output
                return torch.maximum(0.9 * error, -0.1 * error).mean()

        x, _ = vectors()
        self.compare(multilayer(), (x,), x[:, :3].sin(), Pinball(), loss=Pinball())

    def test_of_frozen_parts(self):
        x, y = vectors()
        module = multilayer()
        module[0].requires_grad_(False)
        model = self.export(module, x[:NODE])
        _, state, _ = self.train(model, sp.data(x, y))
        self.assertTrue(torch.equal(state["0.weight"], module[0].weight))
        self.assertFalse(torch.equal(state["3.weight"], module[3].weight))
        self.compare(module, (x,), y, F.cross_entropy)


class BitsTest(ExportCase):
    """Bits depend neither on budgets nor on lanes."""

    def test_of_keyed_dropout(self):
        x, y = vectors()
        dropped = self.assert_exact(self.export(multilayer(0.3), x[:NODE]), sp.data(x, y))
        plain, _, _ = self.train(self.export(multilayer(), x[:NODE]), sp.data(x, y))
        self.assertNotEqual(dropped.losses[0], plain.losses[0])

    def test_of_dropout_in_attention(self):
        tokens = texts()
        values = {"targets": "next_token"}
        model = self.export(made(Transformer, 0.3), tokens[:NODE, :-1], **values)
        dropped = self.assert_exact(model, sp.data(tokens))
        plain, _, _ = self.train(self.export(made(Transformer), tokens[:NODE, :-1], **values),
                                 sp.data(tokens))
        self.assertNotEqual(dropped.losses[0], plain.losses[0])

    def test_of_batch_norm(self):
        x, y = pictures()
        module = made(Residual)
        before = copy.deepcopy(module.state_dict())
        model = self.export(module, x[:NODE])
        self.assert_exact(model, sp.data(x, y))
        _, state, _ = self.train(model, sp.data(x, y))
        self.assertEqual(state["norm.num_batches_tracked"].item(), STEPS)
        self.assertFalse(torch.equal(state["norm.running_mean"], before["norm.running_mean"]))
        for name, tensor in module.state_dict().items():
            self.assertTrue(torch.equal(tensor, before[name]), name)

    def test_of_bfloat16(self):
        x, y = vectors()
        model = self.export(multilayer(0.1), x[:NODE], dtype="bfloat16")
        result = self.assert_exact(model, sp.data(x, y))
        single, _, _ = self.train(self.export(multilayer(0.1), x[:NODE]), sp.data(x, y))
        self.assertNotEqual(result.losses, single.losses)
        self.assertAlmostEqual(result.losses[0], single.losses[0], delta=0.05)


class EvaluationTest(ExportCase):
    def check(self, module, x, y, **values):
        """The module has, with the weights that were trained, the loss that Spillway reports."""
        data = sp.data(x[:80], y[:80], eval=(x[80:], y[80:]))
        model = self.export(module, x[:NODE], **values)
        result, state, _ = self.train(model, data, eval_steps=STEPS)
        twin = copy.deepcopy(module)
        twin.load_state_dict(state, strict=True)
        with torch.no_grad():
            evaluated, trained = (F.cross_entropy(twin.train(mode)(x[80:]), y[80:]).item()
                                  for mode in (False, True))
            untrained = F.cross_entropy(module.eval()(x[80:]), y[80:]).item()
        self.assertAlmostEqual(result.eval_loss, evaluated, places=4)
        self.assertNotAlmostEqual(result.eval_loss, trained, places=4)
        self.assertNotAlmostEqual(result.eval_loss, untrained, places=4)

    def test_has_no_dropout(self):
        self.check(multilayer(0.5), *vectors())

    def test_uses_running_statistics(self):
        self.check(made(Residual), *pictures())

    def test_loads_strictly_with_ties_and_unused_state(self):
        tokens = texts()
        module = made(Transformer)
        module.register_buffer("unused", torch.arange(3))
        module.extra = nn.Linear(2, 2)
        model = sp.load(self.export(module, tokens[:NODE, :-1], targets="next_token").path)
        _, state, _ = self.train(model, sp.data(tokens))
        twin = copy.deepcopy(module)
        twin.load_state_dict(state, strict=True)
        self.assertTrue(torch.equal(twin.extra.weight, module.extra.weight))
        self.assertTrue(torch.equal(state["head.weight"], state["embedding.weight"]))
        self.assertFalse(torch.equal(twin.head.weight, module.head.weight))


class FitTest(ExportCase):
    def test_sweeps_over_lists(self):
        x, y = vectors()
        module = multilayer()
        results = sp.fit(module, x, y.numpy(), devices=["64MiB"], batch_size=BATCH,
                         max_steps=STEPS, learning_rate=[1e-3, 3e-3], eval_fraction=0.2)
        self.assertEqual([(r.name, r.state) for r in results],
                         [("learning_rate=0.001", "done"), ("learning_rate=0.003", "done")])
        self.assertNotEqual(results[0].weights_xxh3, results[1].weights_xxh3)
        copy.deepcopy(module).load_state_dict(results.weights[1], strict=True)
        alone = sp.fit(module, x, y, devices="64MiB", batch_size=BATCH, max_steps=STEPS,
                       learning_rate=3e-3, eval_fraction=0.2)
        self.assertEqual(alone[0].weights_xxh3, results[1].weights_xxh3)

    def test_trains_language_models_and_losses(self):
        tokens = (texts()[:, :1] + torch.arange(9)) % 32
        result, = sp.fit(made(Transformer), tokens, devices="64MiB", batch_size=BATCH,
                         max_steps=STEPS, learning_rate=RATE)
        self.assertLess(result.final_loss, result.first_loss)
        x, _ = vectors()
        result, = sp.fit(multilayer(), x, x[:, :3], loss="mse", devices="64MiB",
                         batch_size=BATCH, max_steps=STEPS, learning_rate=RATE)
        self.assertLess(result.final_loss, result.first_loss)


class FileTest(ExportCase):
    def test_begins_in_python_and_goes_on_by_the_command(self):
        x, y = vectors()
        model = self.export(multilayer(0.3), x[:NODE])
        write_rows(self.folder / "rows.safetensors", model.rows(input=x, targets=y))
        config = {"name": "net", "data_root": str(self.folder), "devices": [{"memory": "64MiB"}],
                  "model": {"family": "torch", "path": "net.spw"},
                  "data": {"format": "tensors", "path": "rows.safetensors"},
                  "train": {"batch_size": BATCH, "max_steps": 2000},
                  "checkpoint": {"every_steps": 20}}
        whole = sp.train(config, output_dir=self.folder / "whole", progress=False)
        (self.folder / "config.json").write_text(json.dumps(config))
        code = ("import json, sys, spillway as sp; sp.train(json.load(open(sys.argv[1])), "
                "output_dir=sys.argv[2], progress=False)")
        begun = self.folder / "begun"
        with subprocess.Popen([sys.executable, "-c", code, str(self.folder / "config.json"),
                               str(begun)]) as process:
            self.wait_for_checkpoint(begun)
            process.send_signal(signal.SIGKILL)
        self.assertEqual(sp.open(begun).state, "unfinished")
        subprocess.run([COMMAND, "resume", str(begun)], check=True, capture_output=True)
        hashes = [run.trials[0]["weights_xxh3"] for run in (whole, sp.open(begun))]
        self.assertEqual(hashes[0], hashes[1])
        resumed = [line for line in (begun / "events.jsonl").read_text().splitlines()
                   if '"event":"resumed"' in line]
        self.assertGreater(json.loads(resumed[0])["step"], 0)

    def wait_for_checkpoint(self, run):
        log, until = run / "events.jsonl", time.monotonic() + 120
        while not log.exists() or '"event":"saved"' not in log.read_text():
            if time.monotonic() > until:
                self.fail("the run saved no checkpoint")
            time.sleep(0.01)

    def test_is_loaded_and_packs_rows(self):
        x, y = vectors()
        model = self.export(multilayer(), x[:NODE])
        loaded = sp.load(str(model.path))
        self.assertEqual(loaded, model)
        self.assertEqual(loaded.rows(input=x, targets=y).shape, (96, 9))
        with self.assertRaisesRegex(sp.ExportError, "samples of shape"):
            loaded.rows(input=x[:, :5], targets=y)
        (self.folder / "broken.spw").write_bytes(model.path.read_bytes()[:100])
        with self.assertRaises(sp.CorruptData):
            sp.load(self.folder / "broken.spw")


def write_rows(path, rows):
    header = json.dumps({"rows": {"dtype": "F32", "shape": list(rows.shape),
                                  "data_offsets": [0, 4 * rows.numel()]}}).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(len(header).to_bytes(8, "little") + header + rows.numpy().tobytes())


class RefusalTest(ExportCase):
    """What cannot be trained is refused with one sentence that says why."""

    def refuses(self, function, pattern):
        x, _ = vectors()
        module = Calls(function)
        with self.assertRaisesRegex(sp.ExportError, pattern):
            self.export(module, x[:NODE])
        self.assertFalse((self.folder / "net.spw").exists())

    def test_of_writes_in_place(self):
        self.refuses(lambda x, _: x.add_(1), "changes the input .* in place. Compute a new tensor")

        def scale(x, module):
            with torch.no_grad():
                module.linear.bias.mul_(0.5)
            return x
        self.refuses(scale, "changes the parameter or buffer linear.bias in place")

    def test_of_random_operators_by_name(self):
        self.refuses(lambda x, _: x + torch.randn_like(x), "calls aten::randn_like, which draws")
        self.refuses(lambda x, _: torch.bernoulli(x.sigmoid()), "aten::bernoulli")

        def drop_path(x, module):
            if not module.training:
                return x
            return x * (torch.rand(x.shape[0], 1) > 0.2) / 0.8
        self.refuses(drop_path, "calls aten::rand, which draws random numbers")

    def test_of_control_flow_on_values(self):
        self.refuses(lambda x, _: x if x.sum() > 0 else -x,
                     r"branches on values .*export_test.py, line \d+\).*torch.where")
        self.refuses(lambda x, _: x.matmul(x), r"export_test.py, line \d+\).*reduction dim")
        self.refuses(lambda x, _: x * x.max().item(), "the module reads a number from a tensor")
        self.refuses(lambda x, _: x[x > 0], "sizes depend on values.*Pad or mask")

    def test_without_what_torch_prints(self):
        for body in ("x if x.sum() > 0 else -x", "x @ x"):
            program = textwrap.dedent(f"""
                import torch, spillway as sp
                class Net(torch.nn.Linear):
                    def forward(self, x):
                        x = super().forward(x)
                        return {body}
                try:
                    sp.from_torch(Net(8, 3), torch.zeros(4, 8), path="net.spw", loss="mse")
                except sp.ExportError as error:
                    print(error)
            """)
            ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                                 cwd=self.folder, check=True)
            self.assertEqual(len(ran.stdout.splitlines()), 1, ran.stdout)
            self.assertEqual(ran.stderr, "")

    def test_of_another_torch(self):
        x, _ = vectors()
        with mock.patch.object(torch, "__version__", "2.12.0"):
            with self.assertRaisesRegex(sp.ExportError, "torch is 2.12.0.*pip install"):
                self.export(multilayer(), x[:NODE])

    def test_of_wrong_batches_and_shapes(self):
        x, y = vectors()
        model = self.export(multilayer(), x[:NODE])
        for batch, values, field in ((18, {}, "train.batch_size"),
                                     (16, {"virtual_nodes": 8}, "train.virtual_nodes"),
                                     (16, {"dtype": "bf16"}, "train.dtype")):
            with sp.Session("64MiB") as session, self.assertRaises(sp.ConfigError) as raised:
                session.submit(model, sp.data(x, y), **{**TRAIN, "batch_size": batch, **values})
            self.assertEqual(raised.exception.field, field)
        with sp.Session("64MiB") as session, self.assertRaisesRegex(sp.ConfigError, "9"):
            session.submit(model, sp.data(x[:, :5], y), **TRAIN)


if __name__ == "__main__":
    unittest.main()
