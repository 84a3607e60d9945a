"""The package `spillway`: text and chats as samples. Real tokenizers, a tiny model."""

import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

os.environ["HF_HUB_OFFLINE"] = "1"

try:
    import datasets
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import tokenizers
import torch
from torch.nn import functional as F

import spillway as sp
from spillway import documents as documents_module

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

COMMAND = pathlib.Path(sys.executable).parent / "spillway"
CHAT = pathlib.Path(__file__).parents[2] / "examples/chat.py"
LENGTH, STEPS = 64, 4
TEXT = "\n".join(f"The {n}th row says:  {n * n} is\n\n the square of {n}." for n in range(60))
CHATS = [{"messages": [{"role": "system", "content": "Be brief."},
                       {"role": "user", "content": "What is 3 squared?"},
                       {"role": "assistant", "content": "9 is the square."},
                       {"role": "user", "content": "And of 4?"},
                       {"role": "assistant", "content": " 16 is"}]},
         {"messages": [{"role": "user", "content": "Say row."},
                       {"role": "assistant", "content": "row"}]}]
PAIRS = [{"prompt": f"{n} squared is", "completion": f" {n * n}, says row {n}."}
         for n in range(12)]
MARKED = ("{% for message in messages %}{{ '<|start|>' + message['role'] + '\n' }}"
          "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|end|>"
          "\n' }}{% endgeneration %}{% else %}{{ message['content'] + '<|end|>\n' }}{% endif %}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}")
PLAIN = MARKED.replace("{% generation %}", "").replace("{% endgeneration %}", "")


def make_tokenizer(template=PLAIN):
    """Bytes and pairs of them, with special tokens."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.train_from_iterator([TEXT], tokenizers.trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<|begin|>", "<|start|>", "<|end|>", "<|pad|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|begin|> $A", special_tokens=[("<|begin|>", 0)])
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<|begin|>", eos_token="<|end|>", pad_token="<|pad|>")
    tokenizer.chat_template = template
    return tokenizer


TOKENIZER = make_tokenizer()


def split(documents):
    """Each document as its tokens, and whether each has a loss."""
    flags = torch.zeros(len(documents.tokens), dtype=torch.bool)
    for first, last in documents.trained.tolist():
        flags[first:last] = True
    ends = documents.ends.tolist()
    return [(documents.tokens[begin:end].tolist(), flags[begin:end].tolist())
            for begin, end in zip([0, *ends], ends)]


def tokens(documents):
    return [ids for ids, _ in split(documents)]


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")
        return self.folder / name


class Tokenize(InFolder):
    def test_reads_a_file_of_text(self):
        expected = [*TOKENIZER(TEXT)["input_ids"], TOKENIZER.eos_token_id]
        file = self.write("a.txt", TEXT)
        self.assertEqual(split(sp.tokenize(file, TOKENIZER)),
                         [(expected, [False] + [True] * (len(expected) - 1))])
        with mock.patch.object(documents_module, "_BLOCK", 50):
            self.assertEqual(tokens(sp.tokenize([file, file], TOKENIZER)), [expected] * 2)

    def test_reads_lines_records_and_tables_alike(self):
        file = self.write("a.jsonl", "\n".join(json.dumps(pair) for pair in PAIRS) + "\n\n")
        expected = split(sp.tokenize(PAIRS, TOKENIZER))
        self.assertEqual(split(sp.tokenize(file, TOKENIZER)), expected)
        self.assertEqual(split(sp.tokenize(datasets.Dataset.from_list(PAIRS), TOKENIZER)), expected)
        with mock.patch.object(documents_module, "_BATCH", 5):
            self.assertEqual(split(sp.tokenize(PAIRS, TOKENIZER)), expected)

    def test_trains_completions(self):
        expected = []
        for pair in PAIRS:
            prompt = TOKENIZER(pair["prompt"])["input_ids"]
            ids = TOKENIZER(pair["prompt"] + pair["completion"])["input_ids"] + [2]
            self.assertEqual(ids[:len(prompt)], prompt)
            expected.append((ids, [i >= len(prompt) for i in range(len(ids))]))
        self.assertEqual(split(sp.tokenize(PAIRS, TOKENIZER)), expected)
        whole = sp.tokenize(PAIRS, TOKENIZER, completion_only_loss=False)
        self.assertEqual(split(whole), [(ids, [False] + [True] * (len(ids) - 1))
                                        for ids, _ in expected])

    def test_trains_what_assistants_say(self):
        marked, expected = make_tokenizer(MARKED), []
        for chat in CHATS:
            encoded = marked.apply_chat_template(chat["messages"], return_dict=True,
                                                 return_assistant_tokens_mask=True)
            flags = [bool(flag) for flag in encoded["assistant_masks"]]
            self.assertIn(True, flags)
            expected.append((encoded["input_ids"], flags))
        for tokenizer in TOKENIZER, marked:
            self.assertEqual(split(sp.tokenize(CHATS, tokenizer, assistant_only_loss=True)),
                             expected)
            whole = split(sp.tokenize(CHATS, tokenizer))
            self.assertEqual(whole, [(ids, [False] + [True] * (len(ids) - 1))
                                     for ids, _ in expected])

    def test_trains_completions_of_chats(self):
        messages = CHATS[0]["messages"]
        pair = {"prompt": messages[:4], "completion": messages[4:]}
        ids, flags = split(sp.tokenize([pair], TOKENIZER))[0]
        self.assertEqual(ids, TOKENIZER.apply_chat_template(messages)["input_ids"])
        said = [id for id, flag in zip(ids, flags) if flag]
        self.assertEqual(TOKENIZER.decode(said), " 16 is<|end|>\n")

    def test_keeps_tokens_in_a_file(self):
        path = self.folder / "tokens.bin"
        expected = sp.tokenize(PAIRS, TOKENIZER)
        for documents in sp.tokenize(PAIRS, TOKENIZER, path=path), sp.Documents.open(path):
            self.assertEqual(split(documents), split(expected))
            self.assertEqual((documents.dtype, documents.pad_token_id), ("uint16", 3))
        self.assertEqual(list(path.read_bytes()[::2]),
                         [id & 255 for ids in tokens(expected) for id in ids])
        self.assertEqual(sorted(file.name for file in self.folder.iterdir()),
                         ["tokens.bin", "tokens.bin.safetensors"])
        rows = sp.token_data(path, 16, vocab_size=len(TOKENIZER))
        self.assertEqual(rows.num_samples, (len(expected.tokens) - 1) // 16)

    def test_names_the_line_that_is_wrong(self):
        good = json.dumps({"text": "row"})
        for line, message in [
                ('{"txt": "row"}', "line 2 of .*a.jsonl has the fields txt; it must have 'text'"),
                ('{"text": 5}', "'text' in line 2 of .*a.jsonl is a int, must be text"),
                ('{"text": "row"', "line 2 of .*a.jsonl is no JSON"),
                ("[1]", "line 2 of .*a.jsonl is a list, must be an object"),
                ('{"messages": "row"}', "'messages' in line 2 .* must be a list of objects"),
                ('{"prompt": "row", "completion": 5}', "'completion' in line 2 .* is a int")]:
            file = self.write("a.jsonl", f"{good}\n{line}\n")
            with self.subTest(line), self.assertRaisesRegex(sp.ConfigError, message):
                sp.tokenize(file, TOKENIZER, path=self.folder / "tokens.bin")
            self.assertEqual([file.name for file in self.folder.iterdir()], ["a.jsonl"])

    def test_refuses_what_has_nothing_to_train_on(self):
        silent = {"messages": CHATS[0]["messages"][:2]}
        with self.assertRaisesRegex(sp.ConfigError, "record 3 has no token to train on"):
            sp.tokenize([*CHATS, silent], TOKENIZER, assistant_only_loss=True)
        self.assertEqual(len(sp.tokenize([*CHATS, silent], TOKENIZER)), 3)
        with self.assertRaisesRegex(sp.ConfigError, "source: has no record"):
            sp.tokenize([], TOKENIZER)

    def test_refuses_other_templates(self):
        with self.assertRaisesRegex(sp.ConfigError, "record 1 need; set tokenizer.chat_template"):
            sp.tokenize(CHATS, make_tokenizer(None))
        forgets = make_tokenizer(PLAIN.replace("{{ message['content']", "{{ (message['content'] if "
                                               "loop.last else '')", 1))
        with self.assertRaisesRegex(sp.ConfigError, "otherwise once others follow"):
            sp.tokenize(CHATS, forgets, assistant_only_loss=True)
        raises = make_tokenizer("{{ raise_exception('roles must alternate') }}")
        with self.assertRaisesRegex(sp.ConfigError, "in record 1: roles must alternate"):
            sp.tokenize(CHATS, raises)

    def test_refuses_other_sources(self):
        with self.assertRaisesRegex(sp.ConfigError, "is no .txt or .jsonl file"):
            sp.tokenize("a.csv", TOKENIZER)
        with self.assertRaisesRegex(sp.ConfigError, "'b.txt' cannot be read: .*No such file"):
            sp.tokenize("b.txt", TOKENIZER)
        with self.assertRaisesRegex(sp.ConfigError, "is a DatasetDict of train"):
            sp.tokenize(datasets.DatasetDict(train=datasets.Dataset.from_list(PAIRS)), TOKENIZER)


def random_documents(count=40, longest=LENGTH):
    """Records that become documents of up to so many tokens."""
    numbers = random.Random(3)
    return [{"text": " row" * numbers.randint(1, longest - 4)} for _ in range(count)]


def best_fit_by_hand(sizes, length):
    bins = []
    for piece in sorted(range(len(sizes)), key=lambda piece: -sizes[piece]):
        rooms = [length - sum(sizes[each] for each in held) for held in bins]
        fitting = [room for room in rooms if room >= sizes[piece]]
        if fitting:
            held = bins[rooms.index(min(fitting))]
        else:
            bins.append(held := [])
        held.append(piece)
    return bins


class Pack(InFolder):
    def test_puts_documents_side_by_side(self):
        documents = sp.tokenize(CHATS + PAIRS, TOKENIZER, assistant_only_loss=True)
        samples = sp.pack(documents, 128)
        parts = sorted(split(documents))
        found = []
        for ids, labels, positions in zip(*(samples.tensors[name].tolist() for name in
                                            ("input_ids", "labels", "position_ids"))):
            begins = [i for i, position in enumerate(positions) if position == 0]
            for begin, end in zip(begins, [*begins[1:], 128]):
                self.assertEqual(positions[begin:end], list(range(end - begin)))
                flags = [label != -100 for label in labels[begin:end]]
                self.assertEqual([label for label in labels[begin:end] if label != -100],
                                 [id for id, flag in zip(ids[begin:end], flags) if flag])
                if any(flags):
                    found.append((ids[begin:end], flags))
                else:
                    self.assertEqual(set(ids[begin:end]), {TOKENIZER.pad_token_id})
        self.assertEqual(sorted(found), parts)
        self.assertLess(len(samples), len(documents) // 2)

    def test_fits_best(self):
        documents = sp.tokenize(random_documents(), TOKENIZER)
        sizes = [len(ids) for ids in tokens(documents)]
        by_hand = best_fit_by_hand(sizes, LENGTH)
        samples = sp.pack(documents, LENGTH)
        self.assertEqual(len(samples), len(by_hand))
        filled = (samples.tensors["input_ids"] != TOKENIZER.pad_token_id).sum(1)
        self.assertEqual(sorted(filled.tolist()),
                         sorted(sum(sizes[piece] for piece in held) for held in by_hand))

    def test_makes_equal_files_in_blocks(self):
        documents = sp.tokenize(random_documents(), TOKENIZER)
        for make in sp.pack, sp.pad:
            expected = make(documents, LENGTH).tensors
            with mock.patch("spillway.samples._BLOCK", 7):
                made = make(documents, LENGTH, path=self.folder / "a.safetensors")
            for tensors in made.tensors, sp.Samples.open(self.folder / "a.safetensors").tensors:
                self.assertEqual(list(tensors), list(expected))
                self.assertTrue(all(torch.equal(tensors[name], expected[name])
                                    for name in expected))

    def test_cuts_long_documents_as_asked(self):
        records = [{"text": " row" * 100}, {"text": " row"}]
        documents = sp.tokenize(records, TOKENIZER)
        ids, size = documents.tokens.tolist(), int(documents.ends[0])
        with self.assertRaisesRegex(sp.ConfigError, f"is 32, but document 1 has {size} tokens"):
            sp.pack(documents, 32)
        held = {way: sp.pad(documents, 32, too_long=way).tensors["input_ids"]
                for way in ("truncate", "split", "drop")}
        self.assertEqual([len(rows) for rows in held.values()], [2, size // 32 + 2, 1])
        self.assertEqual(held["truncate"][0].tolist(), ids[:32])
        self.assertEqual(held["split"].flatten()[:size].tolist(), ids[:size])

    def test_leaves_out_what_trains_nothing(self):
        record = {"prompt": " row" * 40, "completion": " 5"}
        documents = sp.tokenize([record, PAIRS[0]], TOKENIZER)
        self.assertEqual(len(sp.pad(documents, 32, too_long="truncate")), 1)
        with self.assertRaisesRegex(sp.ConfigError, "no document has a token to train on"):
            sp.pad(sp.tokenize([record], TOKENIZER), 32, too_long="truncate")

    def test_needs_no_memory_for_all_samples(self):
        def megabytes(path):
            code = f"""
import pathlib, re, torch, spillway as sp
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
ends = torch.arange(1, 8193) * 1000
documents = sp.Documents(torch.ones(8192000, dtype=torch.int32).to(torch.uint16), ends,
                         torch.stack([ends - 999, ends], 1), 0)
before = peak()
sp.pack(documents, 2048, path={path!r})
print((peak() - before) / 1024)"""
            return float(subprocess.run([sys.executable, "-c", code], check=True, text=True,
                                        capture_output=True).stdout)

        self.assertLess(megabytes(f"{self.folder}/a.safetensors"), 40)
        self.assertGreater(megabytes(None), 60)  # of 96


class Train(InFolder):
    def setUp(self):
        super().setUp()
        torch.manual_seed(5)
        self.module = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=len(TOKENIZER), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=4, initializer_range=0.2))
        self.module.save_pretrained(self.folder / "model")
        self.documents = sp.tokenize(CHATS + PAIRS[:2], TOKENIZER, assistant_only_loss=True)

    def export(self, samples, name="net"):
        return sp.from_pretrained(self.folder / "model", path=self.folder / f"{name}.spw",
                                  example=samples.example(), batch_size=len(samples))

    def train(self, samples, steps=STEPS):
        model = self.export(samples)
        with sp.Session("64MiB") as session:
            trial = session.submit(model, samples.data(model), batch_size=len(samples),
                                   max_steps=steps, learning_rate=1e-2, weight_decay=0.0,
                                   max_grad_norm=0.0, lr_scheduler_type="constant")
            session.wait()
            result = session.result(trial)
            self.assertEqual(result.reason, "")
            return result

    def eager(self, samples):
        """Losses of PyTorch on all samples at once."""
        inputs = {name: tensor.long() for name, tensor in samples.tensors.items()}
        module = transformers.LlamaForCausalLM.from_pretrained(self.folder / "model").train()
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2, weight_decay=0.0)
        losses = []
        for _ in range(STEPS):
            loss = module(**inputs, use_cache=False).loss
            losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return losses

    def alone(self):
        """The mean loss of tokens when each document is a sequence of its own."""
        losses = []
        for ids, flags in split(self.documents):
            logits = self.module(torch.tensor([ids])).logits[0, :-1]
            each = F.cross_entropy(logits, torch.tensor(ids[1:]), reduction="none")
            losses += each[torch.tensor(flags[1:])].tolist()
        return sum(losses) / len(losses)

    def assert_close(self, losses, expected):
        for ours, theirs in zip(losses, expected, strict=True):
            self.assertLess(abs(ours - theirs), 1e-5 * theirs)

    def test_keeps_packed_documents_apart(self):
        samples = sp.pack(self.documents, 128)
        self.assertGreater(len(self.documents), len(samples))
        losses = self.train(samples).losses
        self.assert_close(losses, self.eager(samples))
        self.assert_close(losses[:1], [self.alone()])

    def test_refuses_positions_that_a_model_does_not_use(self):
        module = transformers.BloomForCausalLM(transformers.BloomConfig(
            vocab_size=len(TOKENIZER), hidden_size=32, n_layer=1, n_head=4, use_cache=False))
        samples = sp.pack(self.documents, 128)
        with self.assertRaisesRegex(sp.ExportError, "does not use 'position_ids'"):
            sp.from_torch(module, samples.example(), path=self.folder / "a.spw", loss="model")
        samples = sp.pack(self.documents, 128, position_ids=False)
        sp.from_torch(module, samples.example(), path=self.folder / "a.spw", loss="model")

    def test_lets_packed_documents_see_those_before(self):
        samples = sp.pack(self.documents, 128, position_ids=False)
        losses = self.train(samples).losses
        self.assert_close(losses, self.eager(samples))
        self.assertGreater(abs(losses[0] - self.alone()), 1e-3)

    def test_ignores_padding(self):
        samples = sp.pad(self.documents, 128)
        self.assertEqual(len(samples), len(self.documents))
        losses = self.train(samples).losses
        self.assert_close(losses, self.eager(samples))
        self.assert_close(losses[:1], [self.alone()])

    def test_has_the_bits_of_a_configuration_that_the_command_resumes(self):
        samples = sp.pack(self.documents, 128, path=self.folder / "chat.safetensors")
        expected = self.train(samples).weights_xxh3
        (self.folder / "run.yaml").write_text(f"""
name: run
devices: [{{memory: 64MiB}}]
model: {{family: torch, path: {self.folder}/net.spw}}
data: {{format: tensors, path: {self.folder}/chat.safetensors, eval_fraction: 0}}
train: {{batch_size: {len(samples)}, max_steps: {STEPS}, learning_rate: 1e-2, weight_decay: 0,
        max_grad_norm: 0, lr_scheduler_type: constant}}
""")
        folder = self.folder / "run"
        sp.train(self.folder / "run.yaml", {"train.max_steps": 2}, output_dir=folder,
                 progress=False)
        self.assertNotEqual(sp.open(folder).trials[0]["weights_xxh3"], expected)
        subprocess.run([COMMAND, "resume", folder, f"train.max_steps={STEPS}"], check=True,
                       capture_output=True)
        self.assertEqual(sp.open(folder).trials[0]["weights_xxh3"], expected)

    def test_trains_an_adapter_as_in_the_example(self):
        TOKENIZER.save_pretrained(self.folder / "model")
        file = self.write("chats.jsonl", "\n".join(map(json.dumps, CHATS * 4)))
        shown = subprocess.run([sys.executable, CHAT, self.folder / "model", file,
                                self.folder / "adapter"], check=True, text=True,
                               capture_output=True).stdout
        self.assertIn("8 conversations in 4 samples", shown)
        first, last = map(float, re.search(r"loss (\S+) -> (\S+)", shown).groups())
        self.assertLess(last, first)
        self.assertTrue((self.folder / "adapter/adapter_model.safetensors").is_file())

    def test_evaluates_on_other_samples(self):
        train, other = (sp.pack(self.documents, 128) for _ in range(2))
        model = self.export(train)
        data = train.data(model, eval=other)
        self.assertEqual((data.num_samples, data.num_eval_samples), (len(train), len(other)))
        with self.assertRaisesRegex(sp.ConfigError, r"but the model takes input_ids \[128\]"):
            train.data(model, eval=sp.pad(self.documents, 128))


if __name__ == "__main__":
    unittest.main()
