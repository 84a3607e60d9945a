#!/usr/bin/env bash
# Prints the table of twins.py, by the Python package.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec "$(bash scripts/python.sh)" experiments/exported_twins/twins.py "$@"
