"""Files of exported models and of tensors, without PyTorch."""

import array
import json
import math
import struct

BATCH, INPUTS, WIDTH, CLASSES = 4, 8, 128, 3
TYPES = {"F32": "f", "I64": "q"}


def made_up(count, phase):
    """Not all the same, and the same every time."""
    return [0.3 * math.sin(1.7 * i + phase) for i in range(count)]


def write_safetensors(path, tensors, metadata=None):
    """`tensors`: (type, shape, values) by name."""
    header, data = {"__metadata__": metadata or {"format": "pt"}}, b""
    for name, (dtype, shape, values) in tensors.items():
        content = array.array(TYPES[dtype], values).tobytes()
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    """(type, shape, values) by name."""
    content = path.read_bytes()
    length, = struct.unpack_from("<Q", content)
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        values = array.array(TYPES[entry["dtype"]], content[begin:end])
        tensors[name] = (entry["dtype"], entry["shape"], list(values))
    return tensors


def value(number):
    return {"value": number}


def node(op, overload, *args):
    return {"op": op, "overload": overload, "args": list(args)}


def layer(name, inputs, parameters, train, evaluation, width):
    return {"name": name, "inputs": inputs, "parameters": parameters, "constants": [],
            "train": train, "eval": evaluation,
            "output": {"shape": [BATCH, width], "dtype": "float32", "differentiable": True}}


def classifier():
    """The document and the tensors of a classifier with two hidden layers and dropout."""
    shapes = {"first.weight": [WIDTH, INPUTS], "first.bias": [WIDTH],
              "second.weight": [WIDTH, WIDTH], "second.bias": [WIDTH],
              "head.weight": [CLASSES, WIDTH], "head.bias": [CLASSES]}
    tensors = {name: ("F32", shape, made_up(math.prod(shape), phase))
               for phase, (name, shape) in enumerate(shapes.items())}
    linear = node("aten::linear", "", value(0), value(1), value(2))
    hidden = [linear, node("aten::tanh", "", value(3))]
    document = {
        "version": 1, "name": "Classifier", "batch_size": BATCH, "dtype": "float32",
        "row": {"dtype": "float32", "elements": INPUTS + 1},
        "inputs": [{"name": "x", "begin": 0, "shape": [INPUTS], "dtype": "float32"},
                   {"name": "labels", "begin": INPUTS, "shape": [], "dtype": "int64",
                    "limit": CLASSES}],
        "parameters": [{"name": name, "trainable": True, "decay": name.endswith("weight")}
                       for name in shapes],
        "constants": [],
        "graphs": [{"nodes": hidden + [node("spillway::dropout", "", value(4), 0.2)], "result": 5},
                   {"nodes": hidden, "result": 4}, {"nodes": [linear], "result": 3}],
        "layers": [layer("first", ["x"], [0, 1], 0, 1, WIDTH),
                   layer("second", ["first"], [2, 3], 0, 1, WIDTH),
                   layer("head", ["second"], [4, 5], 2, 2, CLASSES)],
        "loss": {"type": "cross_entropy", "inputs": ["head", "labels"], "ignore_index": -100,
                 "label_smoothing": 0.0},
        "metrics": ["accuracy", "perplexity"],
    }
    return document, tensors


def write_model(path, document, tensors):
    write_safetensors(path, tensors, {"format": "pt", "spillway": json.dumps(document)})


def write_samples(path, count=400):
    """Samples whose class depends on the sum of their values."""
    values = made_up(count * INPUTS, 0.5)
    sums = [sum(values[i * INPUTS:(i + 1) * INPUTS]) for i in range(count)]
    write_safetensors(path, {"x": ("F32", [count, INPUTS], values),
                             "labels": ("I64", [count], [int(9 * abs(s)) % CLASSES for s in sums])})
