"""Trains a LoRA adapter of a language model of Hugging Face on a device of 160 MiB.

    python examples/lora.py FOLDER TEXT ADAPTER
"""

import sys

import peft
import torch
import transformers

import spillway as sp

folder, text, adapter = sys.argv[1:]
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
with open(text, encoding="utf-8") as file:
    tokens = torch.tensor(tokenizer(file.read()).input_ids)
samples = tokens[: len(tokens) // 65 * 65].view(-1, 65)

lora = peft.LoraConfig(r=8, lora_alpha=16, lora_dropout=0.05, target_modules=["q_proj", "v_proj"],
                       task_type="CAUSAL_LM", base_model_name_or_path=folder)
model = sp.from_pretrained(folder, path=f"{adapter}.spw", sequence_length=64, adapter=lora)
with sp.Session("160MiB") as session:
    trial = session.submit(model, sp.data(samples, eval_fraction=0.1), batch_size=4, max_steps=20,
                           learning_rate=1e-3, lr_scheduler_type="constant", eval_batches=2)
    session.wait(progress=True)
result = session.result(trial)
print(f"loss {result.first_loss:.3f} -> {result.final_loss:.3f}, in {result.num_shards} shards, "
      f"peak {session.results().devices[0].peak_bytes / 2**20:.0f} MiB")
lora.save_pretrained(adapter)
sp.save_pretrained(session.state_dict(trial), adapter, like=adapter)
