"""Trains an adapter of a chat model on what assistants say in conversations: {"messages": ...}.

    python examples/chat.py FOLDER CHATS.jsonl ADAPTER
"""

import sys

import peft
import transformers

import spillway as sp

folder, chats, adapter = sys.argv[1:]
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
documents = sp.tokenize(chats, tokenizer, assistant_only_loss=True)
samples = sp.pack(documents, 128, too_long="truncate")
print(f"{len(documents)} conversations in {len(samples)} samples")

lora = peft.LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM",
                       base_model_name_or_path=folder)
model = sp.from_pretrained(folder, path=f"{adapter}.spw", example=samples.example(), adapter=lora)
with sp.Session("256MiB") as session:
    trial = session.submit(model, samples.data(model), batch_size=2, max_steps=10,
                           learning_rate=1e-3)
    session.wait(progress=True)
result = session.result(trial)
print(f"loss {result.first_loss:.3f} -> {result.final_loss:.3f}")
lora.save_pretrained(adapter)
sp.save_pretrained(session.state_dict(trial), adapter, like=adapter)
