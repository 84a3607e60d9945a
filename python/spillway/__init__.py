"""Trains many models, each possibly larger than the device, on shared devices.

A `Session` trains the trials that you submit, while your program goes on. `train`, `resume` and
`open` work with the folders that the command `spillway` writes.
"""

import torch

if not torch.__version__.startswith("2.11."):
    raise ImportError(
        f"spillway was built for torch 2.11, but torch {torch.__version__} is installed; "
        "run: python -m pip install 'torch==2.11.*'"
    )

from .data import Data, bytes_data, data, dataset, token_data
from .documents import Documents, tokenize
from .errors import (
    ConfigError,
    CorruptData,
    DoesNotFit,
    Error,
    InUse,
    IoError,
    NewerFormat,
    OutOfMemory,
)
from .export import ExportError, ExportedModel, from_torch, load
from .fit import fit
from .hugging_face import from_pretrained, save_pretrained
from .models import Model, cnn, gpt, mlp, resnet, rnn
from .results import Evaluation, Results, TrialPlan, TrialResult
from .runs import Run, open, resume, train
from .samples import Samples, pack, pad
from .session import Event, Session
from .strategies import SearchResult, search_strategy

__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "CorruptData",
    "Data",
    "Documents",
    "DoesNotFit",
    "Error",
    "Evaluation",
    "Event",
    "ExportError",
    "ExportedModel",
    "InUse",
    "IoError",
    "Model",
    "NewerFormat",
    "OutOfMemory",
    "Results",
    "Run",
    "Samples",
    "SearchResult",
    "Session",
    "TrialPlan",
    "TrialResult",
    "bytes_data",
    "cnn",
    "data",
    "dataset",
    "fit",
    "from_pretrained",
    "from_torch",
    "gpt",
    "load",
    "mlp",
    "open",
    "pack",
    "pad",
    "resnet",
    "resume",
    "rnn",
    "save_pretrained",
    "search_strategy",
    "token_data",
    "tokenize",
    "train",
]
