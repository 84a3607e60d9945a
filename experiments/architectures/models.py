"""Tiny models of the architectures of transformers, with random weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn

VOCABULARY, WIDTH, TOKENS = 96, 32, 16

_TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": 2 * WIDTH,
    "num_hidden_layers": 3, "num_attention_heads": 4, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}
_GROUPED = {**_TEXT, "num_key_value_heads": 2}
_GPT2 = {"vocab_size": VOCABULARY, "n_embd": WIDTH, "n_layer": 3, "n_head": 4, "n_positions": 64}
_IMAGE = {"image_size": 16, "num_channels": 3, "num_labels": 5}
_ENCODER = {key: value for key, value in _TEXT.items() if not key.startswith("num_key")}


@dataclass(frozen=True)
class Architecture:
    """How to make a model and what it is trained on."""

    name: str
    model: str  # class of transformers
    config: str
    fields: dict[str, Any]
    task: str = "next_token"  # or "labels" of sequences or pictures, "masked", "translation"

    def make(self) -> nn.Module:
        """With weights that depend on the name alone."""
        torch.manual_seed(0)
        config = getattr(transformers, self.config)(**self.fields)
        config.use_cache = False
        return getattr(transformers, self.model)(config).train()


def _text(name: str, stem: str, **fields: Any) -> Architecture:
    return Architecture(name, f"{stem}ForCausalLM", f"{stem}Config", {**_GROUPED, **fields})


def _encoder(name: str, stem: str, head: str = "SequenceClassification", **fields: Any
             ) -> Architecture:
    task = "masked" if head == "MaskedLM" else "labels"
    return Architecture(name, f"{stem}For{head}", f"{stem}Config", {**_ENCODER, **fields}, task)


ARCHITECTURES = [
    _text("llama", "Llama", tie_word_embeddings=True),
    _text("mistral", "Mistral"),
    _text("qwen2", "Qwen2"),
    _text("qwen3", "Qwen3", head_dim=8),
    _text("gemma", "Gemma", head_dim=8),
    _text("gemma2", "Gemma2", head_dim=8),
    Architecture("gemma3", "Gemma3ForCausalLM", "Gemma3TextConfig", {**_GROUPED, "head_dim": 8}),
    _text("phi3", "Phi3"),
    _text("olmo2", "Olmo2"),
    _text("granite", "Granite"),
    _text("smollm3", "SmolLM3"),
    _text("cohere", "Cohere"),
    _text("stablelm", "StableLm"),
    _text("mixtral", "Mixtral", num_local_experts=4, num_experts_per_tok=2),
    _text("qwen3_moe", "Qwen3Moe", head_dim=8, num_experts=4, num_experts_per_tok=2,
          moe_intermediate_size=WIDTH),
    Architecture("gpt2", "GPT2LMHeadModel", "GPT2Config", _GPT2),
    Architecture("gpt_neox", "GPTNeoXForCausalLM", "GPTNeoXConfig", _TEXT),
    Architecture("gptj", "GPTJForCausalLM", "GPTJConfig", {**_GPT2, "rotary_dim": 8}),
    Architecture("bloom", "BloomForCausalLM", "BloomConfig",
                 {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "n_layer": 3, "n_head": 4}),
    Architecture("opt", "OPTForCausalLM", "OPTConfig",
                 {**_TEXT, "ffn_dim": 2 * WIDTH, "word_embed_proj_dim": WIDTH}),
    Architecture("mamba", "MambaForCausalLM", "MambaConfig",
                 {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": 3,
                  "state_size": 8}),
    _encoder("bert", "Bert"),
    _encoder("bert_masked", "Bert", "MaskedLM"),
    _encoder("roberta", "Roberta"),
    _encoder("electra", "Electra", embedding_size=WIDTH),
    _encoder("modernbert", "ModernBert", global_attn_every_n_layers=2, local_attention=8),
    Architecture("distilbert", "DistilBertForSequenceClassification", "DistilBertConfig",
                 {"vocab_size": VOCABULARY, "dim": WIDTH, "hidden_dim": 2 * WIDTH, "n_layers": 3,
                  "n_heads": 4, "max_position_embeddings": 64, "pad_token_id": 0}, "labels"),
    Architecture("vit", "ViTForImageClassification", "ViTConfig",
                 {**_IMAGE, "hidden_size": WIDTH, "intermediate_size": 2 * WIDTH,
                  "num_hidden_layers": 3, "num_attention_heads": 4, "patch_size": 4}, "pictures"),
    Architecture("convnext", "ConvNextForImageClassification", "ConvNextConfig",
                 {**_IMAGE, "image_size": 32, "hidden_sizes": [8, 16, 32, 32],
                  "depths": [1, 1, 2, 1]}, "pictures"),
    Architecture("resnet", "ResNetForImageClassification", "ResNetConfig",
                 {"num_channels": 3, "num_labels": 5, "embedding_size": 8,
                  "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}, "pictures"),
    Architecture("swin", "SwinForImageClassification", "SwinConfig",
                 {**_IMAGE, "image_size": 32, "embed_dim": 8, "depths": [2, 2],
                  "num_heads": [2, 2], "window_size": 4, "patch_size": 2}, "pictures"),
    Architecture("t5", "T5ForConditionalGeneration", "T5Config",
                 {"vocab_size": VOCABULARY, "d_model": WIDTH, "d_kv": 8, "d_ff": 2 * WIDTH,
                  "num_layers": 2, "num_heads": 4, "pad_token_id": 0,
                  "decoder_start_token_id": 0}, "translation"),
    Architecture("bart", "BartForConditionalGeneration", "BartConfig",
                 {"vocab_size": VOCABULARY, "d_model": WIDTH, "encoder_layers": 2,
                  "decoder_layers": 2, "encoder_attention_heads": 4,
                  "decoder_attention_heads": 4, "encoder_ffn_dim": 2 * WIDTH,
                  "decoder_ffn_dim": 2 * WIDTH, "max_position_embeddings": 64,
                  "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
                  "decoder_start_token_id": 2}, "translation"),
]


def samples(architecture: Architecture, count: int) -> dict[str, torch.Tensor]:
    """Arguments [count, ...] of the model, with labels where it computes its own loss."""
    generator = torch.Generator().manual_seed(1)

    def tokens(length: int) -> torch.Tensor:
        return torch.randint(3, VOCABULARY, (count, length), generator=generator)

    if architecture.task == "next_token":
        return {"input_ids": tokens(TOKENS + 1)}
    if architecture.task == "pictures":
        side = architecture.fields.get("image_size", 16)
        pictures = torch.randn(count, 3, side, side, generator=generator)
        return {"pixel_values": pictures,
                "labels": torch.randint(0, 5, (count,), generator=generator)}
    if architecture.task == "labels":
        return {"input_ids": tokens(TOKENS),
                "labels": torch.randint(0, 2, (count,), generator=generator)}
    if architecture.task == "masked":
        labels = tokens(TOKENS)
        return {"input_ids": labels.masked_fill(labels % 5 == 0, 3), "labels": labels}
    return {"input_ids": tokens(TOKENS), "labels": tokens(TOKENS)}
