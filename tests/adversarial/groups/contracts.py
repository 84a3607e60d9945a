"""Configurations that determine the bits, and variants of the surroundings that must not."""

from scene import Surprise

MLP = {"model": {"family": "mlp", "num_hidden_layers": 2, "hidden_size": 24, "dropout": 0.1},
       "data": {"format": "digits", "path": "digits.csv", "eval_fraction": 0.2}}
RESNET = {"model": {"family": "resnet", "hidden_sizes": [4, 8], "depths": [1, 1]},
          "data": {"format": "digits", "path": "digits.csv", "eval_fraction": 0.2}}
SGD = {"train.optimizer": "sgd", "train.learning_rate": 0.05}

CONTRACTS = {
    "a GPT": {},
    "a GPT in bf16": {"train.dtype": "bf16"},
    "a GPT with bf16 gradients": {"train.gradient_dtype": "bf16", "train.reduction_groups": 2},
    "a GPT without dropout or clipping": {"model.dropout": 0, "train.max_grad_norm": 0},
    "a GPT with a frozen embedding": {"model.freeze": ["wte.*", "h.0.*"]},
    "a GPT of one virtual node": {"train.virtual_nodes": 1},
    "a GPT of eight virtual nodes in two groups": {"train.virtual_nodes": 8,
                                                   "train.reduction_groups": 2},
    "a GPT with momentum and a linear schedule": {
        **SGD, "train.lr_scheduler_type": "linear", "train.warmup_ratio": 0.3},
    "a GPT whose seed has 64 bits": {"seed": 2**64 - 1},
    "a perceptron": MLP,
    "a perceptron in bf16 with tanh": {**MLP, "model.hidden_act": "tanh", "train.dtype": "bf16"},
    "a residual network": RESNET,
    "a residual network in bf16 with shifted pictures": {
        **RESNET, "train.dtype": "bf16", "data.augment": "shift", **SGD},
}


def cpu(memory="64MiB", **imitate):
    return {"memory": memory, **({"imitate": imitate} if imitate else {})}


def fault(kind, after_ops):
    return {"fault": {"kind": kind, "after_ops": after_ops}}


def fewest_lanes(contract):
    """The number of groups, which is the maximum of data_parallel."""
    nodes = contract.get("train.virtual_nodes", 4)
    return contract.get("train.reduction_groups", min(nodes, 8))


# By name, the change; a function if it depends on the contract.
VARIANTS = {
    "on two devices with a lane each": lambda contract: {
        "devices": [cpu(), cpu()], "train.data_parallel": min(2, fewest_lanes(contract))},
    "on four devices with as many lanes as pay": {
        "devices": [cpu(), cpu(), cpu(), cpu()], "train.data_parallel": "auto"},
    "beside a device that is ten times slower": lambda contract: {
        "devices": [cpu(), cpu(slowdown=10)],
        "train.data_parallel": min(2, fewest_lanes(contract))},
    "over a slow link": {"devices": [cpu(link="50MB/s")]},
    "where one of two lanes fails": lambda contract: {
        "devices": [cpu(), cpu(**fault("fail", 9))],
        "train.data_parallel": min(2, fewest_lanes(contract))},
    "where the device that computes fails": {
        "devices": [cpu(**fault("fail", 13)), cpu()]},
    "where the device that computes hangs": {
        "devices": [cpu(**fault("hang", 7)), cpu()], "scheduling.device_timeout": 1},
    "where a device's budget is halved": {
        "devices": [cpu(**fault("shrink", 11)), cpu()]},
    "with shares by weight and a rule for lanes": lambda contract: {
        "devices": [cpu(), cpu()], "scheduling.sharing": "wfs", "train.priority": 7,
        "train.max_data_parallel": min(2, fewest_lanes(contract)),
        "train.autoscale": {"rule": "throughput"}},
    "where every device is filled": {
        "devices": [cpu(), cpu(), cpu()], "scheduling.sharing": "fill", 
        "train.data_parallel": "auto"},
    "with dedicated activations": {"activation_share": 0.5},
    "with homes in files": {"offload_path": "."},
    "shard by shard": {"scheduling.order": "shard_major"},
    "virtual node by virtual node, without loading ahead": {
        "scheduling.order": "vn_major", "scheduling.double_buffer": False},
    "with a checkpoint after every step": {"checkpoint.every_steps": 1, "checkpoint.keep": 1},
    "with little host memory and the policy fifo": {
        "host_memory": "4MiB", "scheduling.policy": "fifo"},
}

# What the log must show; otherwise the variant had no effect.
EVIDENCE = {
    "where the device that computes fails": '"event":"lost"',
    "where the device that computes hangs": '"event":"lost"',
    "where a device's budget is halved": '"event":"left"',
    "with a checkpoint after every step": '"event":"saved"',
}


def variant_of(name, contract):
    found = VARIANTS[name]
    return found(contract) if callable(found) else found


def random_contract(chance):
    """Any family, with random settings that determine the bits."""
    nodes = chance.choice([1, 2, 4, 8])
    groups = chance.choice([g for g in (1, 2, 4, 8) if nodes % g == 0])
    contract = dict(chance.choice([{}, {}, MLP, RESNET]))
    contract.update({
        "seed": chance.randrange(2**64), "train.virtual_nodes": nodes,
        "train.reduction_groups": groups, "train.dtype": chance.choice(["fp32", "bf16"]),
        "train.gradient_dtype": chance.choice(["fp32", "fp32", "bf16"]),
        "train.max_steps": chance.randint(1, 12), "train.eval_steps": chance.randint(0, 4),
        "train.max_grad_norm": chance.choice([0, 0.1, 1]),
        "model.dropout": chance.choice([0, 0.1, 0.5]),
        "train.lr_scheduler_type": chance.choice(["cosine", "linear", "constant"]),
        "train.warmup_ratio": chance.choice([0, 0.25, 0.5])})
    if chance.random() < 0.3:
        contract.update(SGD)
    if "data" in contract:
        contract["data.augment"] = chance.choice(["none", "shift"])
    else:
        contract["model.num_hidden_layers"] = chance.randint(1, 5)
        contract["model.hidden_size"] = chance.choice([8, 24, 40])
    return contract


def smallest_budget(document):
    """Of a plan."""
    found = document["trials"][0].get("smallest_budget_bytes")
    if not found:
        raise Surprise("the plan names no smallest budget")
    return found
