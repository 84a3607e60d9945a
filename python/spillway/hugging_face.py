"""Models of Hugging Face, in as `.spw` files and out as folders.

Only `from_pretrained` needs `transformers`, and `peft` for adapters.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from .errors import ConfigError
from .export import ExportedModel, ExportError, from_torch
from .export.spw import write_safetensors
from .stored_weights import INDEX, WEIGHTS, StoredWeights, require_model

__all__ = ["from_pretrained", "save_gpt2", "save_lora", "save_pretrained"]

Path = str | os.PathLike[str]

_ADAPTER = "adapter_model.safetensors"
_MOST_BYTES = 5 * 10**9  # of a file of weights, as transformers writes them
_TOKENIZER = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt",
              "chat_template*", "spiece.model", "sentencepiece*")
# What belongs to a model beside its weights.
_COMPANIONS = ("config.json", "generation_config.json", "preprocessor_config.json", "LICENSE*",
               *_TOKENIZER)

# Fields of peft.LoraConfig that do not change how an adapter begins.
_PLAIN_LORA = {"alpha_pattern", "base_model_name_or_path", "exclude_modules", "fan_in_fan_out",
               "inference_mode", "layers_pattern", "layers_to_transform", "lora_alpha",
               "lora_dropout", "r", "rank_pattern", "revision", "target_modules", "task_type",
               "use_rslora"}


def from_pretrained(
    folder: Path,
    *,
    path: Path,
    example: Any = None,
    batch_size: int = 1,
    sequence_length: int = 128,
    adapter: Any = None,
    **export: Any,
) -> ExportedModel:
    """Writes a model of Hugging Face as a `.spw` file, as `from_torch` does.

    `folder`: config.json and safetensors files. The weights are copied tensor by tensor, so the
    model is never in memory as a whole.
    `example`: tensors by names of arguments. By default the model is a language model, whose
    samples are `sequence_length` + 1 tokens; `batch_size` is the number of samples in a virtual
    node. With an example that has `labels`, the loss is that of the model.
    `adapter`: a configuration of PEFT, such as `peft.LoraConfig`; everything else is frozen. If its
    initial values follow from the weights, as those of DoRA do, the model is loaded whole.
    `export`: other arguments of `from_torch`.
    Raises ExportError.
    """
    source = pathlib.Path(folder)
    require_model(source)
    make, config = _architecture(source)
    model = _without_weights(make, config)
    stored = StoredWeights(source, model)
    if _ignores_weights(adapter) and all(name in stored for name, _ in model.named_parameters()):
        _read_buffers(model, stored)
        export["weights"] = stored.read
    else:
        model = make.from_pretrained(source, config=config, dtype=torch.float32)
    if adapter is not None:
        import peft

        model = peft.get_peft_model(model, adapter)
    if example is None:
        example = {"input_ids": torch.zeros(batch_size, sequence_length, dtype=torch.int64)}
        export.setdefault("targets", "next_token")
    elif "labels" in example:
        export.setdefault("loss", "model")
    return from_torch(model, example, path=path, batch_size=batch_size, **export)


def save_pretrained(weights: Mapping[str, torch.Tensor], folder: Path, *, like: Path) -> None:
    """Writes trained weights as a folder that `from_pretrained` of transformers, or of PEFT, loads.

    `weights`: of a trial whose model came from a folder of Hugging Face, for example
    `session.state_dict(trial)`. If they have adapters, only the adapters are saved.
    `like`: the folder from which the configuration and the tokenizer are copied. For an adapter,
    the one into which `adapter.save_pretrained` wrote its configuration.
    Weights above 5 GB are split into several files. Raises ConfigError (`like`).
    """
    source, target = pathlib.Path(like), pathlib.Path(folder)
    adapters = _adapters(weights)
    needed = "adapter_config.json" if adapters else "config.json"
    if not (source / needed).is_file():
        raise ConfigError(f"like: '{source}' has no {needed}; name the folder of the "
                          f"{'adapter' if adapters else 'model'}", "like")
    _copy_all((needed, *_COMPANIONS), source, target)
    if adapters:
        _write(target / _ADAPTER, adapters)
    else:
        _write_split(target, weights, _MOST_BYTES)


def save_lora(weights: Mapping[str, torch.Tensor], folder: Path, *, like: Path, r: int,
              alpha: float, dropout: float, target_modules: list[str]) -> None:
    """Writes the adapter of a configuration as a folder that PEFT loads.

    `like`: the folder of its base. The other arguments are the configuration's `adapter`. Raises
    ConfigError (`like`).
    """
    source, target = pathlib.Path(like), pathlib.Path(folder)
    adapters = _adapters(weights)
    if not (source / "config.json").is_file():
        raise ConfigError(f"like: '{source}' has no config.json; name the folder of the model that "
                          "the adapter belongs to", "like")
    base = json.loads((source / "config.json").read_text(encoding="utf-8"))
    is_text = any(name.endswith("ForCausalLM") or name.endswith("LMHeadModel")
                  for name in base.get("architectures") or [])
    modules = sorted({name.removeprefix("base_model.model.").partition(".lora_")[0]
                      for name in adapters})
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM" if is_text else None,
        "base_model_name_or_path": os.path.abspath(source), "bias": "none", "inference_mode": True,
        "r": r, "lora_alpha": int(alpha) if alpha.is_integer() else alpha, "lora_dropout": dropout,
        "target_modules": modules if target_modules == ["all-linear"] else target_modules,
    }
    _copy_all(_TOKENIZER, source, target)
    (target / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n",
                                                encoding="utf-8")
    _write(target / _ADAPTER, adapters)


# Names of the matrices of a block, which GPT-2 holds transposed.
_GPT2_NAMES = {"attn.qkv": "attn.c_attn", "attn.proj": "attn.c_proj", "mlp.fc": "mlp.c_fc",
               "mlp.proj": "mlp.c_proj"}


def save_gpt2(weights: Mapping[str, torch.Tensor], folder: Path, *, num_attention_heads: int,
              layer_norm_eps: float = 1e-5, like: Path | None = None) -> None:
    """Writes the weights of a built-in `gpt` as a folder that transformers loads as GPT-2.

    `like`: a folder from which the tokenizer is copied. The other arguments are what cannot be read
    off the weights.
    """
    renamed: dict[str, torch.Tensor] = {}
    for name, value in weights.items():
        part = re.sub(r"^h\.\d+\.|\.(weight|bias)$", "", name)
        if part in _GPT2_NAMES:
            name = name.replace(f".{part}.", f".{_GPT2_NAMES[part]}.")
            value = value.t() if value.dim() == 2 else value
        renamed["transformer." + name] = value
    vocabulary, width = weights["wte.weight"].shape
    config = {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": vocabulary,
        "n_embd": width, "n_positions": len(weights["wpe.weight"]), "n_head": num_attention_heads,
        "n_layer": sum(name.endswith(".ln_1.weight") for name in weights),
        "n_inner": len(weights["h.0.mlp.fc.weight"]), "layer_norm_epsilon": layer_norm_eps,
        "activation_function": "gelu_new", "bos_token_id": None, "eos_token_id": None,
        "tie_word_embeddings": True, "dtype": "float32",
    }
    target = pathlib.Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    if like is not None:
        _copy_all(_TOKENIZER, pathlib.Path(like), target)
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    _write_split(target, renamed, _MOST_BYTES)


def _adapters(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Those of adapters, with the names that PEFT's files have."""
    return {name.replace(".modules_to_save.default.", ".").replace(".default.", "."): value
            for name, value in weights.items()
            if ".lora_" in name or ".modules_to_save." in name}


def _write(file: pathlib.Path, tensors: Mapping[str, torch.Tensor]) -> None:
    write_safetensors(file, tensors, {"format": "pt"})


def _write_split(target: pathlib.Path, weights: Mapping[str, torch.Tensor], most: int) -> None:
    """One file, or several with an index."""
    first: dict[int, str] = {}
    for name, value in weights.items():
        first.setdefault(value.data_ptr(), name)
    weights = {name: weights[name] for name in first.values()}  # tied ones once
    groups: list[dict[str, torch.Tensor]] = [{}]
    room = most
    for name, value in weights.items():
        if value.nbytes > room and groups[-1]:
            groups.append({})
            room = most
        groups[-1][name] = value
        room -= value.nbytes
    if len(groups) == 1:
        return _write(target / WEIGHTS, weights)
    files: dict[str, str] = {}
    for number, group in enumerate(groups, 1):
        file = f"model-{number:05}-of-{len(groups):05}.safetensors"
        _write(target / file, group)
        files.update(dict.fromkeys(group, file))
    total = sum(value.nbytes for value in weights.values())
    index = {"metadata": {"total_size": total}, "weight_map": files}
    (target / INDEX).write_text(json.dumps(index, indent=2), encoding="utf-8")


def _copy_all(patterns: Iterable[str], source: pathlib.Path, target: pathlib.Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for file in (file for pattern in patterns for file in source.glob(pattern)):
        to = target / file.name
        if not (to.exists() and file.samefile(to)):
            shutil.copyfile(file, to)


def _architecture(folder: pathlib.Path) -> tuple[Any, Any]:
    """The class of transformers, and the configuration, that config.json names."""
    try:
        import transformers
    except ImportError as error:
        raise ExportError("models of Hugging Face need transformers. Run: "
                          "python -m pip install transformers") from error
    config = transformers.AutoConfig.from_pretrained(folder)
    names = config.architectures or []
    make = getattr(transformers, names[0], None) if names else None
    if make is None:
        raise ExportError(f"{folder / 'config.json'} names the architectures {names}, which "
                          "transformers does not have")
    config.use_cache = False
    return make, config


def _without_weights(make: Any, config: Any) -> nn.Module:
    """A model with its buffers, but nothing in its parameters, which take no room."""
    with _parameters_on_meta():
        model: nn.Module = make(config)
    _untouched(model)
    return model


def _ignores_weights(adapter: Any) -> bool:
    """Whether PEFT makes the adapter without weights of the model: by a plain LoRA."""
    if adapter is None:
        return True
    plain = type(adapter)().to_dict()
    changed = {name for name, value in adapter.to_dict().items() if value != plain[name]}
    return str(plain["peft_type"].value) == "LORA" and changed <= _PLAIN_LORA


def _read_buffers(model: nn.Module, stored: StoredWeights) -> None:
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            value = stored.read(name)
            if value is not None:
                buffer.copy_(value)


@contextlib.contextmanager
def _parameters_on_meta() -> Iterator[None]:
    """Within, the parameters of new modules have no memory and are not initialized."""
    register = nn.Module.register_parameter

    def on_meta(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and not parameter.is_meta:
            parameter = nn.Parameter(parameter.detach().to("meta"), parameter.requires_grad)
        register(module, name, parameter)

    nn.Module.register_parameter = on_meta  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


def _untouched(model: nn.Module) -> None:
    """Gives parameters memory, which takes no room until somebody writes to it."""
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, each in module._parameters.items():
            if each is None:
                continue
            if id(each) not in made:
                made[id(each)] = nn.Parameter(torch.empty(each.shape), each.requires_grad)
            module._parameters[name] = made[id(each)]
