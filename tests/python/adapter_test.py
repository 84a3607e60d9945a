"""The package `spillway`: adapters from a configuration, beside those of PEFT. Tiny models."""

import csv
import pathlib
import subprocess
import sys
import tempfile
import unittest

from tiny_models import TOKENS, VOCABULARY, architecture, matrix, peft, transformers

import torch

import spillway as sp

LORA = {"type": "lora", "r": 4, "alpha": 12, "dropout": 0.1, "target_modules": ["q_proj", "v_proj"]}


def in_peft(lora, **others):
    """The same configuration."""
    targets = lora["target_modules"]
    return peft.LoraConfig(
        r=lora["r"], lora_alpha=lora["alpha"], lora_dropout=lora["dropout"],
        target_modules=targets[0] if targets == ["all-linear"] else targets,
        task_type="CAUSAL_LM", **others)


def adapters(weights):
    return {name: value for name, value in weights.items() if ".lora_" in name}


class Adapter(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        generator = torch.Generator().manual_seed(2)
        tokens = torch.randint(3, VOCABULARY, (40 * (TOKENS + 1),), generator=generator)
        (self.folder / "tokens.bin").write_bytes(
            tokens.to(torch.uint16).view(torch.uint8).numpy().tobytes())
        self.source = self.folder / "base"

    def save(self, name="llama"):
        matrix.without_dropout(architecture(name).make()).save_pretrained(self.source)

    def base(self):
        return transformers.AutoModelForCausalLM.from_pretrained(self.source)

    def imported(self, dtype="float32"):
        sp.from_pretrained(self.source, path=self.folder / "base.spw", batch_size=2,
                           sequence_length=TOKENS, dtype=dtype)
        return "base.spw"

    def train(self, model, name, lora=None, **train):
        """A run of the command's configuration, and its losses."""
        config = {
            "devices": [{"memory": "64MiB"}], "data_root": str(self.folder),
            "output_dir": str(self.folder / name), "model": {"family": "torch", "path": model},
            "data": {"format": "tokens", "path": "tokens.bin", "eval_fraction": 0.2},
            "train": {"batch_size": 4, "max_steps": 6, "eval_steps": 3, "learning_rate": 1e-2,
                      "max_grad_norm": 0.05, "eval_batches": 2, **train}}
        if lora:
            config["adapter"] = lora
        run = sp.train(config, progress=False)
        with open(self.folder / name / "trials/run/metrics.csv", encoding="utf-8") as file:
            rows = [(row["loss"], row["gradient_norm"], row["eval_loss"])
                    for row in csv.DictReader(file)]
        return run, rows

    def twin(self, lora, weights, dtype="float32", **options):
        """The model of PEFT whose adapters begin with these weights, as a file."""
        module = peft.get_peft_model(self.base(), in_peft(lora, **options))
        state = module.state_dict()
        with torch.no_grad():
            for name, value in adapters(weights).items():
                state[name].copy_(value)
        sp.from_torch(module, {"input_ids": torch.zeros(2, TOKENS, dtype=torch.int64)},
                      path=self.folder / "twin.spw", targets="next_token", dtype=dtype)
        return "twin.spw"

    def test_has_the_losses_and_weights_of_peft(self):
        gpt2 = {**LORA, "target_modules": ["c_attn", "c_fc", "mlp.c_proj"]}
        cases = [("llama", LORA, "float32", {}),
                 ("llama", {**LORA, "target_modules": ["all-linear"]}, "float32", {}),
                 ("llama", {**LORA, "dropout": 0.0}, "bfloat16", {}),
                 ("gpt2", gpt2, "float32", {"fan_in_fan_out": True})]
        for number, (architecture, lora, dtype, options) in enumerate(cases):
            with self.subTest(architecture, lora=lora, dtype=dtype):
                self.save(architecture)
                model = self.imported(dtype)
                precision = {"dtype": "bf16"} if dtype == "bfloat16" else {}
                first, _ = self.train(model, f"first{number}", lora, learning_rate=0, **precision)
                run, losses = self.train(model, f"run{number}", lora, **precision)
                twin, expected = self.train(
                    self.twin(lora, first.state_dict(), dtype, **options), f"twin{number}",
                    **precision)
                self.assertEqual(losses, expected)
                trained, others = adapters(run.state_dict()), adapters(twin.state_dict())
                self.assertEqual(trained.keys(), others.keys())
                for name, value in trained.items():
                    self.assertTrue(torch.equal(value, others[name]), name)
        other = self.train(model, "other", {**lora, "alpha": 13})[1]  # the control
        self.assertNotEqual(other, losses)

    def test_begins_as_peft_does(self):
        self.save()
        first, _ = self.train(self.imported(), "first", LORA, learning_rate=0)
        theirs = peft.get_peft_model(self.base(), in_peft(LORA)).state_dict()
        for name, value in adapters(first.state_dict()).items():
            self.assertEqual(value.shape, theirs[name].shape)
            if ".lora_B." in name:
                self.assertFalse(value.any())
                continue
            limit = value.shape[1] ** -0.5
            self.assertLessEqual(value.abs().max(), limit)
            self.assertGreater(value.abs().max(), 0.95 * limit)
            self.assertAlmostEqual(value.std().item(), theirs[name].std().item(), delta=0.1 * limit)
        sums = {value.sum().item() for name, value in adapters(first.state_dict()).items()
                if ".lora_A." in name}
        self.assertEqual(len(sums), 6)  # all differ

    def test_keeps_the_base(self):
        self.save()
        run, _ = self.train(self.imported(), "run", LORA)
        weights, base = run.state_dict(), self.base().state_dict()
        frozen = weights.keys() - adapters(weights).keys()
        self.assertTrue(frozen)
        for name in frozen:
            self.assertTrue(torch.equal(weights[name], base[name]), name)

    def export(self, run, target, like):
        program = "import spillway_command; spillway_command.main()"
        return subprocess.run(
            [sys.executable, "-c", program, "export", str(run.folder), "--to", "hf", str(target),
             "--like", str(like)], capture_output=True, text=True, check=False)

    def test_becomes_a_folder_of_peft(self):
        everything = {**LORA, "alpha": 2.5, "target_modules": ["all-linear"]}
        for architecture, lora in ("llama", LORA), ("gpt2", everything):
            with self.subTest(architecture):
                self.save(architecture)
                run, _ = self.train(self.imported(), architecture, lora)
                target = self.folder / f"{architecture}-adapter"
                exported = self.export(run, target, self.source)
                self.assertEqual(exported.returncode, 0, exported.stderr)
                self.assertEqual(sorted(path.name for path in target.iterdir()),
                                 ["adapter_config.json", "adapter_model.safetensors"])
                config = peft.LoraConfig.from_pretrained(target)
                self.assertEqual((config.r, config.lora_alpha, config.lora_dropout),
                                 (lora["r"], lora["alpha"], lora["dropout"]))
                loaded = peft.AutoPeftModelForCausalLM.from_pretrained(target).eval()
                whole = peft.get_peft_model(self.base(), in_peft(lora)).eval()
                state, new = whole.state_dict(), adapters(run.state_dict())
                self.assertEqual(adapters(state).keys(), new.keys())
                tokens = torch.arange(3, 3 + TOKENS)[None]
                with torch.no_grad():
                    untrained = whole(tokens).logits
                    for name, value in new.items():
                        state[name].copy_(value)
                    logits = loaded(tokens).logits
                    self.assertTrue(torch.equal(logits, whole(tokens).logits))
                self.assertFalse(torch.equal(logits, untrained))  # the control

    def test_needs_the_folder_of_the_base(self):
        self.save()
        run, _ = self.train(self.imported(), "run", LORA)
        refused = self.export(run, self.folder / "out", self.folder)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("has no config.json; name the folder of the model", refused.stderr)
        self.assertFalse((self.folder / "out").exists())


if __name__ == "__main__":
    unittest.main()
