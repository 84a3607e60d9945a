#!/usr/bin/env python3
"""Trains 1, 4 and 16 LoRA adapters of one language model at once, which share its frozen weights.

Usage: sweep.py MODEL (a folder of Hugging Face), or --brief for a tiny model and fewer trials.
Needs the package spillway, transformers and PEFT. Exits with 1 if a trial has other bits than alone,
other losses than with PEFT, or if the base is copied more than twice in a step.
"""

import argparse
import itertools
import pathlib
import sys
import tempfile
import time
import warnings

import peft
import torch
import transformers

import spillway as sp

sys.path.append(str(pathlib.Path(__file__).parent.parent / "support"))
from tables import print_head, print_row  # noqa: E402

SAMPLES, LENGTH, STEPS = 1, 32, 3  # steps that are measured, after a first one
LINK = "500MB/s"
TRAIN = {"batch_size": SAMPLES, "max_steps": STEPS + 1, "lr_scheduler_type": "constant",
         "weight_decay": 0.0, "max_grad_norm": 0.0}


def rates(num_trials):
    """A learning rate for each trial."""
    return [1e-4 * (1 + number) for number in range(num_trials)]


def lora():
    return peft.LoraConfig(r=8, lora_alpha=16, lora_dropout=0.0, target_modules=["q_proj", "v_proj"],
                           task_type="CAUSAL_LM")


def tiny_model(folder):
    """A model of 2 MiB with random weights."""
    torch.manual_seed(1)
    config = transformers.LlamaConfig(vocab_size=512, hidden_size=64, intermediate_size=192,
                                      num_hidden_layers=12, num_attention_heads=4,
                                      num_key_value_heads=4, max_position_embeddings=64)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def peft_losses(folder, tokens, rate):
    """The same training in eager PyTorch, and its seconds."""
    torch.manual_seed(1)
    module = peft.get_peft_model(transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32), lora())
    trained = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=0.0)
    losses = []
    for step in range(STEPS + 1):
        if step == 1:
            begin = time.perf_counter()
        logits = module(input_ids=tokens[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, time.perf_counter() - begin


class Sweep:
    """A session that trains adapters with these learning rates."""

    def __init__(self, model, data, memory, learning_rates):
        device = {"kind": "cpu", "memory": memory, "imitate": {"link": LINK}}
        with sp.Session(device) as session:
            trials = [session.submit(model, data, learning_rate=rate, until=1, **TRAIN)
                      for rate in learning_rates]
            plan = session.plan(trials[0])
            for trial in trials:
                session.wait(trial)
            before = session.results().h2d_shared_bytes
            begin = time.perf_counter()
            for trial in trials:
                session.extend(trial, STEPS + 1)
            session.wait()
            self.seconds = time.perf_counter() - begin
        run = session.results()
        self.results = [session.result(trial) for trial in trials]
        self.base = plan.shared_bytes
        self.bytes_per_step = (run.h2d_shared_bytes - before) / STEPS
        self.host = run.host_peak_bytes
        self.num_shards = plan.num_shards

    @property
    def bits(self):
        return [result.weights_xxh3 for result in self.results]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", type=pathlib.Path)
    parser.add_argument("--brief", action="store_true")
    given = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning)
    if not given.brief and given.model is None:
        parser.error("name the folder of a model, or --brief")
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        folder = given.model or tiny_model(work / "tiny")
        return measure(folder, work, [1, 4] if given.brief else [1, 4, 16])


def measure(folder, work, counts):
    torch.manual_seed(1)
    model = sp.from_pretrained(folder, path=work / "model.spw", batch_size=SAMPLES,
                               sequence_length=LENGTH, adapter=lora())
    vocabulary = transformers.AutoConfig.from_pretrained(folder).vocab_size
    tokens = torch.randint(0, vocabulary, (SAMPLES, LENGTH + 1),
                           generator=torch.Generator().manual_seed(2))
    data = sp.data(tokens)
    with sp.Session("16GiB") as session:  # a session that only plans
        plan = session.plan(session.submit(model, data, learning_rate=1e-4, **TRAIN))
        session.stop(0)
    memory = max(plan.shared_bytes // 4, plan.smallest_budget_bytes)
    print(f"Base {plan.shared_bytes / 2**20:.1f} MiB, device {memory / 2**20:.1f} MiB, "
          f"link {LINK}, {STEPS} steps of {SAMPLES} x {LENGTH} tokens\n")
    print_head(["trials", "shards", "base copied a step / base", "host / base", "tokens/s",
                "one after another", "ratio", "PEFT, eager", "loss differs from PEFT by",
                "bits as alone"])
    holds = True
    for count in counts:
        together = Sweep(model, data, memory, rates(count))
        alone = [Sweep(model, data, memory, [rate]) for rate in rates(count)]
        eager = [peft_losses(folder, tokens, rate) for rate in rates(count)]
        work_done = count * STEPS * SAMPLES * LENGTH
        one_by_one = sum(each.seconds for each in alone)
        difference = max(abs(ours - theirs)
                         for result, (losses, _) in zip(together.results, eager)
                         for ours, theirs in zip(result.losses, losses))
        equal_bits = together.bits == list(itertools.chain(*(each.bits for each in alone)))
        holds &= (equal_bits and difference < 5e-5 and len(set(together.bits)) == count
                  and together.bytes_per_step <= 2 * together.base)
        print_row([str(count), str(together.num_shards),
                   f"{together.bytes_per_step / together.base:.2f}",
                   f"{together.host / together.base:.2f}", f"{work_done / together.seconds:.1f}",
                   f"{work_done / one_by_one:.1f}", f"{one_by_one / together.seconds:.2f}",
                   f"{work_done / sum(seconds for _, seconds in eager):.1f}",
                   f"{difference:.1e}", "yes" if equal_bits else "NO"])
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
