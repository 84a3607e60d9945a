"""The runs whose plans are checked: name, and differences from DEFAULTS. `text` and `digits` stand
for the paths of data.
"""

DEFAULTS = {
    "host_memory": "4GiB",
    "model": {"family": "gpt", "num_hidden_layers": 6, "hidden_size": 128,
              "num_attention_heads": 4, "max_position_embeddings": 64, "dropout": 0.1},
    "data": {"format": "bytes", "path": "text", "eval_fraction": 0.05},
    "train": {"batch_size": 32, "virtual_nodes": 8, "reduction_groups": 4, "optimizer": "adamw",
              "learning_rate": 1e-3, "max_grad_norm": 1.0, "eval_batches": 1},
}

DIGITS = {"format": "digits", "path": "digits", "eval_fraction": 0.2}


def devices(count, memory, link=None):
    device = {"kind": "cpu", "memory": memory, **({"imitate": {"link": link}} if link else {})}
    return [device] * count


def mlp(layers, width):
    return {"family": "mlp", "num_hidden_layers": layers, "hidden_size": width}


def trials(count):
    rates = [1e-4 * (i + 1) for i in range(count)]
    return {"method": "grid", "metric": {"name": "final_loss", "goal": "minimize"},
            "parameters": {"train.learning_rate": {"values": rates}}}


CONFIGURATIONS = [
    ("6 x 128, resident", {"devices": devices(1, "1GiB"), "train": {"max_steps": 32}}),
    ("6 x 128, 5 shards", {"devices": devices(1, "8MiB"), "train": {"max_steps": 24}}),
    ("6 x 128, tightest", {"devices": devices(1, "tightest"), "train": {"max_steps": 24}}),
    ("6 x 128, 3 trials, 2 devices",
     {"devices": devices(2, "12MiB"), "sweep": trials(3), "train": {"max_steps": 12}}),
    ("6 x 128, SGD, 2 GB/s",
     {"devices": devices(1, "8MiB", "2GB/s"), "train": {"max_steps": 24, "optimizer": "sgd"}}),
    ("8 x 128, 16 samples in 4, 0.5 GB/s",
     {"devices": devices(1, "8MiB", "500MB/s"), "model": {"num_hidden_layers": 8},
      "train": {"max_steps": 32, "batch_size": 16, "virtual_nodes": 4}}),
    ("12 x 64, 32 positions, no double buffer",
     {"devices": devices(1, "2MiB", "500MB/s"), "scheduling": {"double_buffer": False},
      "model": {"num_hidden_layers": 12, "hidden_size": 64, "max_position_embeddings": 32},
      "train": {"max_steps": 60, "batch_size": 16, "virtual_nodes": 4}}),
    ("4 x 256, 128 positions, 2 lanes",
     {"devices": devices(2, "24MiB"),
      "model": {"num_hidden_layers": 4, "hidden_size": 256, "max_position_embeddings": 128},
      "train": {"max_steps": 16, "batch_size": 8, "virtual_nodes": 4, "data_parallel": 2}}),
    ("4 x 384, 2 trials, 2 GB/s",
     {"devices": devices(1, "40MiB", "2GB/s"), "sweep": trials(2),
      "model": {"num_hidden_layers": 4, "hidden_size": 384},
      "train": {"max_steps": 10, "batch_size": 16, "virtual_nodes": 2, "reduction_groups": 2}}),
    ("2 x 64, 1 sample each, resident",
     {"devices": devices(1, "1GiB"), "model": {"num_hidden_layers": 2, "hidden_size": 64},
      "train": {"max_steps": 200, "batch_size": 8}}),
    ("MLP 6 x 512, resident",
     {"devices": devices(1, "1GiB"), "model": mlp(6, 512), "data": DIGITS,
      "train": {"max_steps": 300, "batch_size": 256, "virtual_nodes": 4}}),
    ("MLP 6 x 512, SGD, 3 trials, 2 devices, 0.5 GB/s",
     {"devices": devices(2, "8MiB", "500MB/s"), "model": mlp(6, 512), "data": DIGITS,
      "sweep": trials(3),
      "train": {"max_steps": 60, "batch_size": 256, "virtual_nodes": 4, "optimizer": "sgd"}}),
]
