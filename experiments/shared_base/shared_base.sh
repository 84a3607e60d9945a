#!/usr/bin/env bash
# Prints the table of sweep.py, by the Python package. SPILLWAY_MODEL: the folder of a model.
set -euo pipefail
python="$(bash scripts/python.sh)"
exec "$python" experiments/shared_base/sweep.py "${@:-${SPILLWAY_MODEL:?is the folder of a model of Hugging Face}}"
