#!/usr/bin/env bash
# Prints the tables of ray_sweep.py, by the Python package.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bash scripts/build.sh build -- spillway >/dev/null
python="$(bash scripts/python.sh)"
exec "$python" experiments/ray_sweep/ray_sweep.py build/bin "$(bash scripts/data.sh)" "$@"
