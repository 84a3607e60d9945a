#!/usr/bin/env python3
"""Writes the valid models of corpus/exported, which are small enough for the fuzzer.

Usage: corpus_exported.py [FOLDER]
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support/run"))
from exported_model import layer, node, value, write_model  # noqa: E402

FOLDER = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE / "corpus/exported")


def document(graph, parameters, loss, **more):
    return {"version": 1, "name": "Net", "batch_size": 4, "dtype": "float32",
            "row": {"dtype": "float32", "elements": 3},
            "inputs": [{"name": "x", "begin": 0, "shape": [2], "dtype": "float32"},
                       {"name": "y", "begin": 2, "shape": [], "dtype": "int64", "limit": 2}],
            "parameters": parameters, "constants": [], "graphs": [graph],
            "layers": [layer("l", ["x"], list(range(len(parameters))), 0, 0, 2)],
            "loss": loss, "metrics": ["accuracy"], **more}


def trained(name):
    return {"name": name, "trainable": True, "decay": True}


CLASSES = {"type": "cross_entropy", "inputs": ["l", "y"], "ignore_index": -100,
           "label_smoothing": 0.1}
WEIGHT = {"w": ("F32", [2, 2], [1.0, 0.0, 0.0, 1.0])}
FOLDER.mkdir(parents=True, exist_ok=True)
linear = {"nodes": [node("aten::linear", "", value(0), value(1), None),
                    node("spillway::dropout", "", value(2), 0.5)], "result": 3}
write_model(FOLDER / "linear", document(linear, [trained("w")], CLASSES), WEIGHT)

arguments = {"nodes": [
    {**node("aten::split", "Tensor", value(0), 1, 1), "outputs": 2},
    node("aten::cat", "", [value(5), value(6)], -1),
    node("aten::to", "dtype", value(7), {"dtype": "float32"}, False, False,
         {"memory_format": "contiguous_format"}),
    node("aten::clamp", "", value(8), {"float": "-inf"}, {"float": "inf"}),
    node("spillway::batch_norm", "", value(9), value(1), None, value(2), value(3), 1e-5)],
    "result": 10}
statistic = {"statistic": {"kind": "average", "momentum": 0.1}}
norm = [trained("w"), *({"name": name, "trainable": False, "decay": False, **statistic}
                        for name in ("mean", "variance"))]
made = document(arguments, norm, CLASSES, constants=["c"])
made["layers"][0]["constants"] = [0]
write_model(FOLDER / "norm", made,
            {name: ("F32", [2], [0.0, 1.0]) for name in ("w", "mean", "variance", "c")})
