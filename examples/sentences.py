"""Fine-tunes a sentence encoder of Hugging Face, such as a MiniLM, to rate how alike sentences are.

    python examples/sentences.py FOLDER PAIRS OUTPUT

Each line of PAIRS has two sentences and a number from 0 to 1, separated by tabs.
"""

import sys

import torch
import transformers

import spillway as sp

folder, pairs, output = sys.argv[1:]


class Similarity(torch.nn.Module):
    """The cosine of two sentences' mean states."""

    def __init__(self, encoder: torch.nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """[pairs, 2, tokens] -> [pairs]"""
        both = mask.flatten(0, 1)  # one pass of the encoder for both sentences
        states = self.encoder(input_ids=ids.flatten(0, 1), attention_mask=both).last_hidden_state
        sums = (states * both.unsqueeze(-1)).sum(1).unflatten(0, mask.shape[:2])
        return torch.cosine_similarity(sums[:, 0], sums[:, 1])


tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
with open(pairs, encoding="utf-8") as file:
    lines = [line.rstrip("\n").split("\t") for line in file]
read = tokenizer([text for line in lines for text in line[:2]], padding=True, truncation=True,
                 max_length=64, return_tensors="pt")
samples = {"ids": read.input_ids.view(len(lines), 2, -1),
           "mask": read.attention_mask.view(len(lines), 2, -1)}
scores = torch.tensor([float(line[2]) for line in lines])

encoder = transformers.AutoModel.from_pretrained(folder)
encoder.embeddings.requires_grad_(False)
module = Similarity(encoder)
model = sp.from_torch(module, {name: part[:4] for name, part in samples.items()}, loss="mse",
                      path=f"{output}.spw")
with sp.Session("64MiB") as session:
    trial = session.submit(model, sp.data(model.rows(**samples, targets=scores)), batch_size=8,
                           max_steps=30, learning_rate=2e-5)
    session.wait(progress=True)
result = session.result(trial)
print(f"loss {result.first_loss:.4f} -> {result.final_loss:.4f}, in {result.num_shards} shards, "
      f"peak {session.results().devices[0].peak_bytes / 2**20:.0f} MiB")
weights = {name.removeprefix("encoder."): value
           for name, value in session.state_dict(trial).items()}
sp.save_pretrained(weights, output, like=folder)
