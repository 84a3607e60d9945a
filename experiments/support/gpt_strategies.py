"""GPTs on slow devices, strategies made by hand for them, and the hashes of their weights."""

import json
import tempfile

NODES = 8
PIECES = {"attention": 4, "mlp": 4, "vocabulary": 4}
SMALL = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4,
         "max_position_embeddings": 16, "vocab_size": 256}
LARGE = {"num_hidden_layers": 8, "hidden_size": 128, "num_attention_heads": 4,
         "max_position_embeddings": 64, "vocab_size": 4096}
WIDE = {"num_hidden_layers": 8, "hidden_size": 256, "num_attention_heads": 4,
        "max_position_embeddings": 32, "vocab_size": 256}


def slow_device(slowdown, memory="64MiB", link="40MiB/s"):
    """By default as many operations a byte as a GPU behind a slow network has."""
    return {"kind": "cpu", "memory": memory, "imitate": {"slowdown": slowdown, "link": link}}


def config_of(model, text, devices, steps, **train):
    return {"devices": devices, "host_memory": "1GiB",
            "model": {"family": "gpt", "dropout": 0.1, **model, "pieces": PIECES},
            "data": {"format": "bytes", "path": text},
            "train": {"batch_size": NODES, "virtual_nodes": NODES, "learning_rate": 1e-3,
                      "max_steps": steps, "eval_batches": 1, **train}}


def placed(config, strategy, run):
    """What `run` makes of the configuration with this strategy, or None for none."""
    if strategy is None:
        return run(config)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump({"spillway_strategy": 1, **strategy}, file)
        file.flush()
        return run({**config, "train": {**config["train"], "strategy": file.name}})


def by_hand(model, devices):
    """By name: values of `train`, and a strategy or None."""
    blocks = model["num_hidden_layers"]
    stages = [{"layers": ["*"], "tracks": [devices - 1]}]
    stages += [{"layers": [f"h.{b}.*" for b in range(blocks) if b * devices // blocks == d],
                "tracks": [d]} for d in range(devices)]
    stages.append({"layers": ["embed"], "tracks": [0]})
    everywhere = list(range(devices))
    split = {"tracks": everywhere, "pieces": devices}
    megatron = [{"layers": ["embed", "*.attn", "*.mlp", "head"], **split}]
    return {
        "one device": ({}, None),
        "data parallel": ({"data_parallel": devices}, None),
        "pipeline, 1F1B": ({}, {"place": stages, "order": {"window": devices}}),
        "pipeline, recomputed": ({}, {"place": stages, "order": {"window": devices,
                                                                 "graphs": "recompute"}}),
        "pipeline, GPipe": ({}, {"place": stages, "order": {"first": "forward"}}),
        "pieces (Megatron-LM)": ({}, {"place": megatron}),
        "pieces, recomputed": ({}, {"place": megatron, "order": {"graphs": "recompute"}}),
        "pipeline, head by vocabulary": ({}, {"order": {"window": devices}, "place": [
            *stages, {"layers": ["head", "embed"], **split}]}),
        "data parallel, head by vocabulary": ({}, {"place": [
            {"layers": ["*"], "tracks": everywhere}, {"layers": ["head", "embed"], **split}]}),
    }
