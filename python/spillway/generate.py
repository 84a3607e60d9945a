"""Text by a trained language model, for a look at what it has learnt. Needs `transformers`."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import torch

from .errors import ConfigError
from .export.errors import first_line

Path = str | os.PathLike[str]

_BYTES = 256


def tokenizer_folder(folder: Path) -> pathlib.Path | None:
    """The folder itself or, of an adapter, that of its base: where the tokenizer is, if anywhere."""
    source = pathlib.Path(folder)
    adapter = source / "adapter_config.json"
    if not any(source.glob("tokenizer*")) and adapter.is_file():
        base = json.loads(adapter.read_text(encoding="utf-8")).get("base_model_name_or_path")
        source = pathlib.Path(base or source)
    return source if any(source.glob("tokenizer*")) else None


def generate(folder: Path, prompt: str, *, tokenizer: Path | None, max_new_tokens: int,
             temperature: float, seed: int) -> str:
    """The prompt and what the model in a folder of Hugging Face adds to it.

    `tokenizer`: its folder; None: tokens are bytes.
    """
    _check(prompt, max_new_tokens, temperature)
    model = _model(folder)
    text: Any = _Bytes()
    others: list[int] = []  # tokens that the text does not have
    if tokenizer is None:
        others = list(range(_BYTES, model.config.get_text_config().vocab_size))
    else:
        import transformers

        text = transformers.AutoTokenizer.from_pretrained(tokenizer, local_files_only=True)
    tokens = torch.tensor([text.encode(prompt)])
    how = {"do_sample": False} if temperature == 0 else {
        "do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = model.generate(
            tokens, attention_mask=torch.ones_like(tokens), pad_token_id=0, use_cache=True,
            suppress_tokens=others or None, max_new_tokens=_room(model, tokens, max_new_tokens),
            **how)
    return str(text.decode(made[0].tolist(), skip_special_tokens=True))


class _Bytes:
    """The tokenizer of bytes."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: list[int], skip_special_tokens: bool) -> str:
        return bytes(tokens).decode(errors="replace")


def _check(prompt: str, max_new_tokens: int, temperature: float) -> None:
    if not prompt:
        raise ConfigError("prompt: is empty; write some text to go on from", "prompt")
    if max_new_tokens < 1:
        raise ConfigError(f"max_new_tokens: is {max_new_tokens}, must be above 0", "max_new_tokens")
    if not 0 <= temperature < float("inf"):
        raise ConfigError(f"temperature: is {temperature}, must be 0 (the likeliest tokens) or above",
                          "temperature")


def _model(folder: Path) -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ConfigError("generating text needs transformers. Run: "
                          "python -m pip install transformers") from error
    load: Any = transformers.AutoModelForCausalLM.from_pretrained
    try:
        model, loaded = load(folder, dtype=torch.float32, local_files_only=True,
                             output_loading_info=True)
    except (ValueError, OSError) as error:
        raise ConfigError(f"transformers cannot generate text with this model: {first_line(error)}"
                          ) from error
    if loaded["missing_keys"]:
        raise ConfigError("the model is no language model that generates text: it has no "
                          + ", ".join(sorted(loaded["missing_keys"])[:3]))
    return model.eval()


def _room(model: Any, tokens: torch.Tensor, wanted: int) -> int:
    """Tokens that may follow. Models with a table of positions have no more than those."""
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if positions is None:
        return wanted
    room = int(positions) - tokens.shape[1]
    if room < 1:
        raise ConfigError(f"prompt: has {tokens.shape[1]} tokens, but the model has {positions} "
                          "positions; write a shorter one", "prompt")
    return min(wanted, room)
