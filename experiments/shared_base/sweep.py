#!/usr/bin/env python3
"""Trains 1, 4 and 16 LoRA adapters of one language model at once, which share its frozen weights.

Usage: sweep.py MODEL (a folder of Hugging Face), or --brief for a tiny model and fewer trials; with
--gpu on a GPU. Needs the package spillway, transformers and PEFT. Exits with 1 if a trial has other
bits than alone, other losses than with PEFT, or if the base is copied more than twice in a step.
"""

import argparse
import dataclasses
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

STEPS = 3  # steps that are measured, after a first one
HOST_MEMORY = "32GiB"
LINK = "500MB/s"  # where there is no GPU
LOSS_TOLERANCE = {"float32": 5e-5, "bfloat16": 5e-2}


@dataclasses.dataclass(frozen=True)
class Setting:
    gpu: bool
    samples: int
    length: int
    dtype: str

    def device(self, memory):
        if self.gpu:
            return {"kind": "cuda", "index": 0, "memory": memory}
        return {"kind": "cpu", "memory": memory, "imitate": {"link": LINK}}

    @property
    def train(self):
        return {"batch_size": self.samples, "max_steps": STEPS + 1, "weight_decay": 0.0,
                "lr_scheduler_type": "constant", "max_grad_norm": 0.0}

    @property
    def link(self):
        return "of a GPU" if self.gpu else LINK


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


def peft_losses(setting, folder, tokens, rate):
    """The same training in eager PyTorch, and its seconds."""
    torch.manual_seed(1)
    module = peft.get_peft_model(transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=getattr(torch, setting.dtype)), lora(), autocast_adapter_dtype=False)
    if setting.gpu:
        module, tokens = module.cuda(), tokens.cuda()
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


def last_step_s(session):
    """When the last step ended."""
    return max(event.time_s for event in session.events() if event.kind == "step")


class Sweep:
    """A session that trains adapters with these learning rates."""

    def __init__(self, setting, model, data, memory, learning_rates):
        with sp.Session(setting.device(memory), host_memory=HOST_MEMORY) as session:
            trials = [session.submit(model, data, learning_rate=rate, until=1, **setting.train)
                      for rate in learning_rates]
            plan = session.plan(trials[0])
            for trial in trials:
                session.wait(trial)
            before = session.results().h2d_shared_bytes
            begin = last_step_s(session)
            for trial in trials:
                session.extend(trial, STEPS + 1)
            session.wait()
            self.seconds = last_step_s(session) - begin  # the end of a trial reads all weights
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
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--samples", type=int, default=1, help="of a batch")
    parser.add_argument("--length", type=int, default=32, help="tokens of a sample")
    parser.add_argument("--dtype", choices=LOSS_TOLERANCE, default="float32")
    parser.add_argument("--trials", type=int, nargs="+", default=[1, 4, 16])
    given = parser.parse_args()
    setting = Setting(given.gpu, given.samples, given.length, given.dtype)
    transformers.utils.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning)
    if not given.brief and given.model is None:
        parser.error("name the folder of a model, or --brief")
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        folder = given.model or tiny_model(work / "tiny")
        return measure(setting, folder, work, [1, 4] if given.brief else given.trials)


def measure(setting, folder, work, counts):
    torch.manual_seed(1)
    model = sp.from_pretrained(folder, path=work / "model.spw", batch_size=setting.samples,
                               sequence_length=setting.length, adapter=lora(),
                               dtype=setting.dtype)
    vocabulary = transformers.AutoConfig.from_pretrained(folder).vocab_size
    tokens = torch.randint(0, vocabulary, (setting.samples, setting.length + 1),
                           generator=torch.Generator().manual_seed(2))
    data = sp.data(tokens)
    with sp.Session(setting.device("16GiB"), host_memory=HOST_MEMORY) as session:  # only plans
        plan = session.plan(session.submit(model, data, learning_rate=1e-4, **setting.train))
        session.stop(0)
    memory = max(plan.shared_bytes // 4, plan.smallest_budget_bytes)
    print(f"Base {plan.shared_bytes / 2**20:.1f} MiB, device {memory / 2**20:.1f} MiB, "
          f"link {setting.link}, {setting.dtype}, "
          f"{STEPS} steps of {setting.samples} x {setting.length} tokens\n")
    print_head(["trials", "shards", "base copied a step / base", "host / base", "tokens/s",
                "one after another", "ratio", "PEFT, eager", "loss differs from PEFT by",
                "bits as alone"])
    holds = True
    for count in counts:
        together = Sweep(setting, model, data, memory, rates(count))
        alone = [Sweep(setting, model, data, memory, [rate]) for rate in rates(count)]
        eager = [peft_losses(setting, folder, tokens, rate) for rate in rates(count)]
        work_done = count * STEPS * tokens[:, 1:].numel()
        one_by_one = sum(each.seconds for each in alone)
        difference = max(abs(ours - theirs)
                         for result, (losses, _) in zip(together.results, eager)
                         for ours, theirs in zip(result.losses, losses))
        equal_bits = together.bits == list(itertools.chain(*(each.bits for each in alone)))
        holds &= (equal_bits and len(set(together.bits)) == count
                  and difference < LOSS_TOLERANCE[setting.dtype]
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
