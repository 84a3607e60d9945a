#!/usr/bin/env bash
# Prints the tables of experiments/architectures; `bash experiments/run.sh architectures` calls it.
set -euo pipefail
python="$(bash scripts/python.sh)"
exec "$python" experiments/architectures/table.py "$@"
