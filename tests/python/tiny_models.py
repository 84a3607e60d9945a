"""What the tests with models of Hugging Face share. Whoever imports it is skipped without them."""

import os
import pathlib
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

try:
    import peft
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "experiments/architectures"))
import matrix
from models import ARCHITECTURES, TOKENS, VOCABULARY

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def architecture(name):
    return next(each for each in ARCHITECTURES if each.name == name)
