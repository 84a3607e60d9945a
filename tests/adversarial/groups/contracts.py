"""Configurations that determine the bits."""

from scene import Surprise

MLP = {"model": {"family": "mlp", "num_hidden_layers": 2, "hidden_size": 24, "dropout": 0.1},
       "data": {"format": "digits", "path": "digits.csv", "eval_fraction": 0.2}}
RESNET = {"model": {"family": "resnet", "hidden_sizes": [4, 8], "depths": [1, 1]},
          "data": {"format": "digits", "path": "digits.csv", "eval_fraction": 0.2}}
CNN = {"model": {"family": "cnn", "num_channels": 1, "image_size": 8, "num_classes": 10,
                 "input_scale": 1 / 16, "pieces": {"channels": 2}, "layers": [
                     {"type": "conv", "name": "conv", "out_channels": 4, "kernel_size": 3,
                      "batch_norm": True, "activation": "relu"},
                     {"type": "max_pool", "inputs": "conv", "kernel_size": 2},
                     {"type": "avg_pool", "inputs": "conv", "kernel_size": 2},
                     {"type": "concat", "inputs": ["1", "2"]},
                     {"type": "linear", "out_features": 10}]},
       "data": {"format": "digits", "path": "digits.csv", "eval_fraction": 0.2}}
RNN = {"model": {"family": "rnn", "preset": "nmt", "hidden_size": 16, "num_hidden_layers": 1,
                 "max_position_embeddings": 16, "chunk_steps": 3, "pieces": {"vocabulary": 2}}}
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
    "a graph of convolutions in pieces": CNN,
    "a graph of convolutions in bf16": {**CNN, "train.dtype": "bf16", "model.pieces": {}},
    "a translation by LSTMs in pieces": RNN,
    "a language model of LSTMs in bf16": {**RNN, "model.preset": "rnnlm", "train.dtype": "bf16"},
}


def smallest_budget(document):
    """Of a plan."""
    found = document["trials"][0].get("smallest_budget_bytes")
    if not found:
        raise Surprise("the plan names no smallest budget")
    return found
