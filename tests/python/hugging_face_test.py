"""The package `spillway`: models of Hugging Face, in and out. Real libraries, tiny models."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest
from unittest import mock

from tiny_models import TOKENS, VOCABULARY, architecture, matrix, peft, transformers

import safetensors
import tokenizers
import torch

import spillway as sp
from spillway.stored_weights import StoredWeights

STEPS = 6
TRAIN = {"batch_size": 4, "max_steps": STEPS, "learning_rate": 1e-2,
         "lr_scheduler_type": "constant"}


def tokens(count=8, length=TOKENS + 1):
    generator = torch.Generator().manual_seed(2)
    return torch.randint(3, VOCABULARY, (count, length), generator=generator)


def write_tokenizer(folder):
    """Its tokens are the words w0, w1 and so on."""
    words = {f"w{i}": i for i in range(VOCABULARY)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)


def likeliest(module, row, count):
    """Text of this tokenizer: the row and `count` tokens more."""
    for _ in range(count):
        row = [*row, int(module(torch.tensor([row])).logits[0, -1].argmax())]
    return " ".join(f"w{token}" for token in row)


def train(model, data, budget="256MiB"):
    with sp.Session(budget) as session:
        trial = session.submit(model, data, **TRAIN)
        session.wait()
        result = session.result(trial)
        assert result.state == "done", result.reason
        return result, session.state_dict(trial)


class HuggingFace(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def saved(self, name="llama"):
        module = matrix.without_dropout(architecture(name).make())
        module.save_pretrained(self.folder / name)
        return module, self.folder / name

    def imported(self, source, **options):
        return sp.from_pretrained(source, path=self.folder / "net.spw", batch_size=2,
                                  sequence_length=TOKENS, **options)

    def test_architectures_keep_their_promises(self):
        for name in ("qwen3", "gpt2", "bert", "resnet", "t5"):
            with self.subTest(name):
                row = matrix.measure(architecture(name))
                self.assertTrue(row.holds, row)
                self.assertGreater(row.shards, 1)

    def test_imports_the_weights_of_the_folder(self):
        for name in ("llama", "mixtral"):  # the files of the second name them otherwise
            module, source = self.saved(name)
            whole = mock.patch.object(type(module), "from_pretrained", side_effect=AssertionError)
            with whole:  # tensor by tensor
                model = self.imported(source)
            from_memory = sp.from_torch(module, {"input_ids": tokens(2)[:, :-1]},
                                        path=self.folder / "memory.spw", targets="next_token")
            bits = [train(each, sp.data(tokens()))[0].weights_xxh3 for each in (model, from_memory)]
            self.assertEqual(*bits)
            next(module.parameters()).data[0] += 1  # the control
            other = sp.from_torch(module, {"input_ids": tokens(2)[:, :-1]},
                                  path=self.folder / "other.spw", targets="next_token")
            self.assertNotEqual(train(other, sp.data(tokens()))[0].weights_xxh3, bits[0])

    def test_finds_weights_that_files_name_otherwise(self):
        for name in ("qwen3_moe", "gpt_neox", "vit", "swin"):
            module, source = self.saved(name)
            with safetensors.safe_open(source / "model.safetensors", framework="pt") as file:
                self.assertLess(set(file.keys()) & set(module.state_dict()), set(file.keys()))
            values = dict(module.named_parameters())
            own = self.folder / "own_names"
            sp.save_pretrained(values, own, like=source)
            for folder in (source, own):
                stored = StoredWeights(folder, module)
                for each, value in values.items():
                    self.assertTrue(torch.equal(stored.read(each), value), each)
                self.assertIsNone(stored.read("no.such.weight"))

    def test_never_holds_the_weights_as_a_whole(self):
        config = transformers.LlamaConfig(
            vocab_size=20000, hidden_size=512, intermediate_size=1024, num_hidden_layers=16,
            num_attention_heads=8)
        transformers.LlamaForCausalLM(config).save_pretrained(self.folder / "large")
        stored = (self.folder / "large/model.safetensors").stat().st_size
        program = textwrap.dedent(f"""
            import threading, time
            import torch, transformers
            import spillway as sp
            def private():
                lines = open("/proc/self/status").read().splitlines()
                return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
            sp.from_torch(torch.nn.Linear(2, 2), torch.zeros(1, 2), loss="mse",
                          path="{self.folder}/small.spw")
            most, done, before = 0, False, private()
            def watch():
                global most
                while not done:
                    most = max(most, private())
                    time.sleep(0.002)
            watcher = threading.Thread(target=watch)
            watcher.start()
            sp.from_pretrained("{self.folder}/large", path="{self.folder}/large.spw")
            done = True
            watcher.join()
            print((most - before) * 1024)
        """)
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                             check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        grown = int(ran.stdout.split()[-1])
        self.assertGreater(stored, 200e6)
        self.assertLess(grown, 0.6 * stored)
        self.assertGreater((self.folder / "large.spw").stat().st_size, stored)

    def test_trains_adapters_that_peft_loads(self):
        module, source = self.saved()
        base, options = module.state_dict(), {"dora": {"use_dora": True},
                                              "head": {"modules_to_save": ["lm_head"]}}
        for kind in ("lora", "dora", "head"):
            with self.subTest(kind):
                adapter = peft.LoraConfig(
                    r=4, lora_alpha=8, lora_dropout=0.1, target_modules=["q_proj", "v_proj"],
                    task_type="CAUSAL_LM", **options.get(kind, {}))
                model = self.imported(source, adapter=adapter)
                result, weights = train(model, sp.data(tokens()))
                spilled, _ = train(model, sp.data(tokens()), budget="112KiB")
                self.assertGreater(spilled.num_shards, 2)
                self.assertEqual(spilled.weights_xxh3, result.weights_xxh3)
                other, _ = train(model, sp.data(tokens() // 2))
                self.assertNotEqual(other.weights_xxh3, result.weights_xxh3)  # the control
                self.assertLess(result.final_loss, result.first_loss)
                self.check_frozen(weights, base)
                self.check_loads(weights, source, adapter)

    def check_frozen(self, weights, base):
        frozen = {name: value for name, value in weights.items()
                  if ".lora_" not in name and ".modules_to_save." not in name}
        self.assertTrue(frozen)
        for name, value in frozen.items():
            plain = re.sub(r"^base_model\.model\.|\.(base_layer|original_module)(?=\.)", "", name)
            self.assertTrue(torch.equal(value, base[plain]), name)

    def check_loads(self, weights, source, adapter):
        adapter.save_pretrained(self.folder / "config")
        sp.save_pretrained(weights, self.folder / "adapter", like=self.folder / "config")
        self.assertEqual(sorted(path.name for path in (self.folder / "adapter").iterdir()),
                         ["adapter_config.json", "adapter_model.safetensors"])
        base = transformers.AutoModelForCausalLM.from_pretrained(source)
        loaded = peft.PeftModel.from_pretrained(base, self.folder / "adapter").eval()
        whole = peft.get_peft_model(
            transformers.AutoModelForCausalLM.from_pretrained(source), adapter).eval()
        untrained = whole(tokens()).logits
        state = whole.state_dict()
        for name, value in weights.items():
            state[name].copy_(value)
        with torch.no_grad():
            logits = loaded(tokens()).logits
            self.assertTrue(torch.equal(logits, whole(tokens()).logits))
        self.assertFalse(torch.equal(logits, untrained))  # the control

    def test_generates_with_an_adapter(self):
        _, source = self.saved()
        write_tokenizer(source)
        adapter = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"],
                                  task_type="CAUSAL_LM", base_model_name_or_path=str(source))
        adapter.save_pretrained(self.folder / "adapter")
        self.imported(source, adapter=adapter)
        (self.folder / "tokens.bin").write_bytes(
            tokens(40).flatten().to(torch.int16).numpy().tobytes())
        run = sp.train({
            "devices": [{"memory": "64MiB"}], "output_dir": str(self.folder / "run"),
            "model": {"family": "torch", "path": str(self.folder / "net.spw")},
            "data": {"format": "tokens", "path": str(self.folder / "tokens.bin")},
            "train": {**TRAIN, "learning_rate": 0.1}}, progress=False)
        run.save_pretrained(self.folder / "trained", like=self.folder / "adapter")
        base = transformers.AutoModelForCausalLM.from_pretrained(source).eval()
        plain = likeliest(base, [5, 6], 8)
        trained = peft.PeftModel.from_pretrained(base, self.folder / "trained").eval()
        text = run.generate("w5 w6", like=self.folder / "adapter", max_new_tokens=8)
        self.assertEqual(text, likeliest(trained, [5, 6], 8))
        self.assertNotEqual(text, plain)  # the control

    def test_generates_with_language_models_only(self):
        _, source = self.saved("bert")
        with self.assertRaisesRegex(sp.ConfigError, "is no language model that generates text"):
            sp.generate.generate(source, "w5", tokenizer=None, max_new_tokens=1, temperature=0,
                                 seed=0)

    def test_splits_large_files(self):
        module, source = self.saved()
        target = self.folder / "split"
        target.mkdir()
        sp.hugging_face._write_split(target, dict(module.named_parameters()), most=20_000)
        (target / "config.json").write_bytes((source / "config.json").read_bytes())
        self.assertGreater(len(list(target.glob("*.safetensors"))), 2)
        loaded = type(module).from_pretrained(target)
        for name, value in module.named_parameters():
            self.assertTrue(torch.equal(dict(loaded.named_parameters())[name], value), name)
        bits = []
        for folder in (source, target):  # and both can be imported
            bits.append(train(self.imported(folder), sp.data(tokens()))[0].weights_xxh3)
        self.assertEqual(*bits)

    def trained_gpt(self):
        text = self.folder / "text.txt"
        text.write_bytes(bytes(range(32, 127)) * 30)
        run = sp.train({
            "devices": [{"memory": "64MiB"}], "output_dir": str(self.folder / "run"),
            "model": {"family": "gpt", "vocab_size": 300, "num_hidden_layers": 2, "hidden_size": 32,
                      "num_attention_heads": 4, "max_position_embeddings": 16,
                      "intermediate_size": 48, "layer_norm_eps": 1e-4},
            "data": {"format": "bytes", "path": str(text), "eval_fraction": 0.2},
            "train": {"batch_size": 4, "max_steps": 60, "eval_batches": 1000,
                      "learning_rate": 1e-2}}, progress=False)
        return run, text

    def test_exports_a_built_in_gpt_as_gpt2(self):
        run, text = self.trained_gpt()
        run.save_pretrained(self.folder / "gpt2")
        module = transformers.AutoModelForCausalLM.from_pretrained(self.folder / "gpt2").eval()
        data = torch.tensor(list(text.read_bytes()))
        samples = (len(data) - 1) // 16
        first = samples - round(0.2 * samples)
        rows = torch.stack([data[16 * i:16 * i + 17] for i in range(first, samples)])
        with torch.no_grad():
            loss = torch.nn.functional.cross_entropy(
                module(rows[:, :-1]).logits.flatten(0, 1), rows[:, 1:].flatten())
        self.assertAlmostEqual(loss.item(), run.best["value"], delta=2e-5)

    def test_evaluates_the_final_weights(self):
        run, text = self.trained_gpt()
        found = run.evaluate()
        self.assertEqual(found.loss, run.best["value"])
        self.assertEqual(found.metrics, run.trials[0]["metrics"])
        spilled = run.evaluate(overrides={"devices": [{"memory": "300KiB"}]})
        self.assertEqual(spilled.loss, found.loss)
        other = self.folder / "other.txt"
        other.write_bytes(text.read_bytes()[::-1])
        self.assertGreater(run.evaluate(data=other).loss, found.loss + 1)
        self.assertEqual(run.evaluate(data=[text]).loss, run.evaluate(data=text).loss)
        with self.assertRaisesRegex(sp.ConfigError, "missing.txt"):
            run.evaluate(data=self.folder / "missing.txt")
        with self.assertRaises(sp.DoesNotFit):
            run.evaluate(overrides={"devices": [{"memory": "64KiB"}]})
        with self.assertRaisesRegex(sp.ConfigError, "has no trial 'second'"):
            run.evaluate("second")
        (self.folder / "run/trials" / run.best["name"] / "weights.safetensors").unlink()
        with self.assertRaisesRegex(sp.ConfigError, "has no final weights"):
            run.evaluate()

    def test_generates_bytes(self):
        run, _ = self.trained_gpt()
        self.assertEqual(run.generate("abcd", max_new_tokens=8), "abcdefghijkl")
        self.assertEqual(run.generate("abcd"), "abcdefghijklmnop")  # all positions
        drawn = [run.generate("abcd", temperature=10.0, seed=seed) for seed in (1, 1, 2)]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])
        for wrong, said in (({"prompt": ""}, "prompt: is empty"),
                            ({"prompt": "a" * 16}, "has 16 tokens, but the model has 16 positions"),
                            ({"prompt": "a", "temperature": -1}, "temperature: is -1"),
                            ({"prompt": "a", "max_new_tokens": 0}, "max_new_tokens: is 0")):
            with self.assertRaisesRegex(sp.ConfigError, said):
                run.generate(**wrong)

    def test_commands_import_and_export(self):
        module, source = self.saved()

        def command(*arguments):
            program = "import spillway_command; spillway_command.main()"
            return subprocess.run([sys.executable, "-c", program, *map(str, arguments)],
                                  capture_output=True, text=True, check=False, cwd=self.folder)

        made = command("import", source, "-o", "net.spw", "--batch-size", 2, "--sequence-length",
                       TOKENS)
        self.assertEqual(made.returncode, 0, made.stderr)
        (self.folder / "tokens.bin").write_bytes(
            tokens(40).flatten().to(torch.uint16).view(torch.uint8).numpy().tobytes())
        (self.folder / "run.yaml").write_text(textwrap.dedent("""
            devices: [{memory: 64MiB}]
            model: {family: torch, path: net.spw}
            data: {format: tokens, path: tokens.bin, eval_fraction: 0.2}
            train: {batch_size: 4, max_steps: 5, eval_batches: 1000}
            output_dir: run
        """), encoding="utf-8")
        trained = command("train", "run.yaml")
        self.assertEqual(trained.returncode, 0, trained.stderr)
        refused = command("export", "run", "--to", "hf", "out")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("like: is missing", refused.stderr)
        self.assertFalse((self.folder / "out").exists())
        exported = command("export", "run", "--to", "hf", "out", "--like", source)
        self.assertEqual(exported.returncode, 0, exported.stderr)
        loaded = type(module).from_pretrained(self.folder / "out")
        run = sp.open(self.folder / "run")
        trained_weights = run.state_dict()
        for name, value in loaded.named_parameters():
            self.assertTrue(torch.equal(value, trained_weights[name]), name)
            self.assertFalse(torch.equal(value, dict(module.named_parameters())[name]), name)

        evaluated = command("eval", "run", "--json")
        self.assertEqual(evaluated.returncode, 0, evaluated.stderr)
        self.assertEqual(json.loads(evaluated.stdout)["loss"], run.best["value"])
        name = run.best["name"]
        other = command("eval", "run", name, "devices=[{memory: 1MiB}]", "--data", "tokens.bin")
        self.assertEqual(other.returncode, 0, other.stderr)
        self.assertRegex(other.stdout, r"^loss \d.*  perplexity \d")
        none = command("generate", "run", "--prompt", "w5 w6", "--like", source)
        self.assertEqual(none.returncode, 1)
        self.assertIn("like: must be a folder with the tokenizer", none.stderr)
        write_tokenizer(source)
        text = command("generate", "run", "--prompt", "w5 w6", "--like", source,
                       "--max-new-tokens", 3)
        self.assertEqual(text.returncode, 0, text.stderr)
        self.assertEqual(text.stdout, likeliest(loaded, [5, 6], 3) + "\n")

    def test_refuses_with_a_remedy(self):
        _, source = self.saved()
        empty = self.folder / "empty"
        empty.mkdir()
        with self.assertRaisesRegex(sp.ExportError, "is not a model of Hugging Face"):
            self.imported(empty)
        (empty / "config.json").write_text(json.dumps({"model_type": "llama"}), encoding="utf-8")
        with self.assertRaisesRegex(sp.ExportError, "has neither model.safetensors nor"):
            self.imported(empty)
        with self.assertRaisesRegex(sp.ConfigError, "has no config.json") as refused:
            sp.save_pretrained({}, self.folder / "out", like=self.folder)
        self.assertEqual(refused.exception.field, "like")
        with self.assertRaisesRegex(sp.ConfigError, "has no adapter_config.json"):
            sp.save_pretrained({"q.lora_A.default.weight": torch.zeros(1)}, self.folder / "out",
                               like=source)
        self.assertFalse((self.folder / "out").exists())


if __name__ == "__main__":
    unittest.main()
