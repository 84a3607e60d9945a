#!/usr/bin/env bash
# Installs the Python package as a user does, into an environment of its own that has LibTorch's torch,
# and prints its Python. Fails where LibTorch's torch is for another Python.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/setup.sh
source scripts/setup.sh

readonly venv=build-python-venv
package_python="$(bash scripts/data.sh python)"
if [[ ! -x "$venv/bin/python" ]]; then
  rm -rf "$venv"
  make_venv "$venv"
  site="$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  # The wheel of torch, with what it needs, is installed by links.
  for entry in "$(dirname "$SPILLWAY_TORCH_DIR")"/*; do
    if [[ ! -e "$site/$(basename "$entry")" ]]; then ln -s "$entry" "$site/"; fi
  done
  # So are the packages that the tests use, some of which cannot be had everywhere.
  for python in "$package_python" "$(bash scripts/data.sh libraries || true)"; do
    if [[ -n "$python" ]]; then
      "$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >>"$site/packages.pth"
    fi
  done
fi
# The compiler of the other builds, whose files ccache has.
export CXX="${CXX:-c++}"
retry "$venv/bin/python" -m pip --quiet install --no-deps . >&2
printf '%s\n' "$PWD/$venv/bin/python"
