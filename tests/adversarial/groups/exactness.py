"""Does each setting reach the training: do those of the contract change the bits, and no others?
Tests of sessions combine contracts, devices, faults and changes."""

from groups.contracts import CNN, MLP, RESNET, RNN, SGD
from run import Run, exists
from scene import Attempt
from steps import (equal_trials, every, furnish, other_bits, peaks_within_budgets, same_bits,
                   trials_are)

TRAIN = Run("train base.yaml --json", doc=every(trials_are("done"), peaks_within_budgets))

# The change of a contract that must change the bits.
CONTROLS = [
    ("seed", {}, {"seed": 2}),
    ("train.learning_rate", {}, {"train.learning_rate": 1.0000001e-3}),
    ("train.batch_size", {}, {"train.batch_size": 16}),
    ("train.virtual_nodes", {}, {"train.virtual_nodes": 2}),
    ("train.reduction_groups", {"train.virtual_nodes": 8}, {"train.reduction_groups": 2}),
    ("train.max_steps", {}, {"train.max_steps": 11}),
    ("train.dtype", {}, {"train.dtype": "bf16"}),
    ("train.gradient_dtype", {}, {"train.gradient_dtype": "bf16"}),
    ("train.optimizer", {}, {"train.optimizer": "sgd"}),
    ("train.weight_decay", {}, {"train.weight_decay": 0.5}),
    ("train.momentum", SGD, {"train.momentum": 0.5}),
    ("train.adam_beta1", {}, {"train.adam_beta1": 0.8}),
    ("train.adam_beta2", {}, {"train.adam_beta2": 0.9}),
    ("train.adam_epsilon", {}, {"train.adam_epsilon": 1e-4}),
    ("train.max_grad_norm", {}, {"train.max_grad_norm": 0.1}),
    ("train.lr_scheduler_type", {}, {"train.lr_scheduler_type": "linear"}),
    ("train.warmup_ratio", {}, {"train.warmup_ratio": 0.5}),
    ("model.dropout", {}, {"model.dropout": 0.2}),
    ("model.initializer_range", {}, {"model.initializer_range": 0.03}),
    ("model.layer_norm_eps", {}, {"model.layer_norm_eps": 1e-3}),
    ("model.freeze", {}, {"model.freeze": ["h.0.*"]}),
    ("model.hidden_act", MLP, {"model.hidden_act": "gelu"}),
    ("model.batch_norm_eps", RESNET, {"model.batch_norm_eps": 1e-2}),
    ("model.batch_norm_momentum", RESNET, {"model.batch_norm_momentum": 0.5}),
    ("model.input_scale", CNN, {"model.input_scale": 0.1}),
    ("model.pieces", CNN, {"model.pieces": {"channels": 3}}),
    ("model.chunk_steps", RNN, {"model.chunk_steps": 4}),
    ("model.tie_word_embeddings", RNN, {"model.tie_word_embeddings": True}),
    ("data.augment", RESNET, {"data.augment": "shift"}),
    ("data.eval_fraction", {}, {"data.eval_fraction": 0.3}),
]

TWO = [{"memory": "64MiB"}, {"memory": "2MiB", "imitate": {"slowdown": 3}}]
# Compares only weights: evaluations and names may differ.
NO_BIT = [
    ("train.eval_steps", {"train.eval_steps": 1}),
    ("train.eval_batches", {"train.eval_batches": 1}),
    ("checkpoint.keep", {"checkpoint.keep": 0}),
    ("checkpoint.every_s", {"checkpoint.every_s": 0.01}),
    ("train.priority", {"train.priority": 100}),
    ("scheduling.policy", {"scheduling.policy": "random"}),
    ("scheduling.device_timeout", {"scheduling.device_timeout": 1}),
    ("host_memory", {"host_memory": "900KiB"}),
    ("data_root", {"data_root": ".."}),
    ("train.autoscale", {"train.autoscale": [{"rule": "straggler"}, {"rule": "linear"}]}),
    ("train.data_parallel", {"devices": TWO, "train.data_parallel": 2}),
    ("scheduling.sharing", {"devices": TWO, "scheduling.sharing": "wfs",
                            "train.data_parallel": "auto"}),
    ("scheduling.order", {"scheduling.order": "shard_major", "scheduling.double_buffer": False}),
    ("activation_share", {"activation_share": 0.5}),
    ("offload_path", {"offload_path": "."}),
]

EARLY = {
    "train.max_steps": 36, "train.eval_steps": 12,
    "sweep": {"parameters": {"train.learning_rate": {"values": [1e-3, 2e-3, 3e-3, 4e-3, 5e-3]}},
              "early_terminate": {"type": "hyperband", "min_iter": 6, "eta": 2}}}
COMPANY = {"sweep": {"parameters": {"seed": {"values": [5, 1, 7]}}}}


def attempts():
    for key, contract, change in CONTROLS:
        yield Attempt(f"Another {key} gives other bits",
                      [furnish({**contract, **change}), TRAIN, other_bits(contract)])
    for key, change in NO_BIT:
        words = "data_root=/ data.path=HERE/text.txt" if key == "data_root" else ""
        yield Attempt(f"{key} changes no bit",
                      [furnish({}, {} if words else change), Run(f"train base.yaml {words}"),
                       same_bits(only_weights=True)])
    yield Attempt("A sweep with early stopping that is interrupted stops the same trials",
                  [furnish(EARLY, {"devices": [{"memory": "64MiB", "imitate": {"link": "20MB/s"}}],
                                   "checkpoint.every_steps": 1}),
                   Run("train base.yaml", code=(0, 130),
                       during=[(exists("r/trials/learning_rate=0.002/checkpoints/000000000002"),
                                15)]),
                   Run("resume r devices='[{memory: 2MiB}, {memory: 64MiB}]'"), same_bits()])
    yield Attempt("A trial among others has the bits that it has alone",
                  [furnish(COMPANY), Run("train base.yaml output_dir=sweep"), furnish({}),
                   Run("train base.yaml"),
                   equal_trials("sweep/trials/seed=1/weights.safetensors",
                                "r/trials/base/weights.safetensors")])
    yield Attempt("The configuration that a run wrote gives the same bits again",
                  [furnish(), TRAIN, Run("train r/config.yaml output_dir=again"),
                   same_bits("again")], is_basic=True)
