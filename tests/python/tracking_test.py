"""The package `spillway`: events for W&B and trackio.

Usage: tracking_test.py [FOLDER MODULE]
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

FOLDER = tempfile.TemporaryDirectory()
os.environ.update(TRACKIO_DIR=FOLDER.name, WANDB_MODE="offline", WANDB_SILENT="true",
                  WANDB_ERROR_REPORTING="false", HF_HUB_OFFLINE="1")
try:
    import trackio
    import wandb
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore
except ImportError:
    print("skipped: W&B or trackio is not installed; run scripts/python.sh")
    sys.exit(77)
