#!/usr/bin/env bash
# Installs what Spillway needs and this machine lacks: Debian packages and LibTorch 2.11.
#   bash scripts/setup.sh     does it and says where LibTorch lies
#   source scripts/setup.sh   the same, and exports SPILLWAY_TORCH_DIR and SPILLWAY_CLANG, the
#                             version of clang to use (the other scripts do this)
# SPILLWAY_TORCH_DIR, if set, names the LibTorch 2.11 to use instead of the cached one.
set -euo pipefail
shopt -s inherit_errexit

readonly torch_version=2.11.0
# The C++ libraries are the same in the wheel of every Python, so one is pinned.
readonly torch_wheel_python=3.11
# Several names: the first that is installed, or else the first that can be installed.
readonly packages=(
  git g++ cmake ninja-build ccache mold python3 python3-venv python3-pip
  libtbb-dev 'libboost1.81-dev|libboost1.83-dev|libboost1.88-dev|libboost1.90-dev'
  libfmt-dev libyaml-cpp-dev libcli11-dev nlohmann-json3-dev libsqlite3-dev libxxhash-dev libsodium-dev
  libgtest-dev libbenchmark-dev 'clang-format-14|clang-format'
  'clang-19|clang-18' 'clang-tidy-19|clang-tidy-18' 'libclang-rt-19-dev|libclang-rt-18-dev'
  strace doxygen qemu-user
)
spillway_cache="${XDG_CACHE_HOME:-$HOME/.cache}/spillway"
readonly spillway_cache

say() { printf 'spillway: %s\n' "$*" >&2; }
die() {
  say "error: $*"
  exit 1
}

retry() {
  local attempt
  for attempt in 1 2 3; do
    if "$@"; then return 0; fi
    say "attempt $attempt of 3 failed: $*"
    if ((attempt < 3)); then sleep $((attempt * 5)); fi
  done
  return 1
}

as_root() {
  if ((EUID == 0)); then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "root or sudo is needed to install packages. As root: apt-get install ${packages[*]}"
  fi
}

apt_get() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 \
    -o DPkg::Lock::Timeout=300 "$@" </dev/null >/dev/null
}

any_installed() {
  local name
  for name in "$@"; do
    if [[ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" == installed ]]; then
      return 0
    fi
  done
  return 1
}

first_available() {
  local name
  for name in "$@"; do
    if [[ -n "$(apt-cache madison "$name" 2>/dev/null)" ]]; then
      printf '%s\n' "$name"
      return 0
    fi
  done
  die "no package source has any of: $*"
}

install_packages() {
  local wanted missing=() chosen=() names
  for wanted in "${packages[@]}"; do
    IFS='|' read -ra names <<<"$wanted"
    if ! any_installed "${names[@]}"; then missing+=("$wanted"); fi
  done
  if ((${#missing[@]} == 0)); then return 0; fi
  say "installing Debian packages: ${missing[*]}"
  retry apt_get update || die "apt-get update failed; its messages are above"
  for wanted in "${missing[@]}"; do
    IFS='|' read -ra names <<<"$wanted"
    chosen+=("$(first_available "${names[@]}")")
  done
  # --no-remove: never remove a package of the user, such as another Boost.
  retry apt_get install -y --no-install-recommends --no-remove "${chosen[@]}" ||
    die "apt-get could not install: ${chosen[*]}"
}

# Prints "2.11.0" for a folder with LibTorch, nothing for any other.
version_of_torch() {
  local header="$1/include/torch/headeronly/version.h"
  if [[ -f "$header" && -f "$1/lib/libtorch_cpu.so" && -f "$1/lib/libc10.so" ]]; then
    sed -nE 's/^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ([0-9]+).*/\2/p' "$header" | paste -sd.
  fi
}

# A temporary environment, because the system's pip may be externally managed.
make_venv() {
  /usr/bin/python3 -m venv "$1" || die "python3 -m venv failed; is python3-venv installed?"
}

# Fills `$1` through `$1.part`, so that `$1` is complete whenever it exists. pip's temporary files
# lie there too: they are as large as LibTorch, and /tmp may be small.
install_torch_into() {
  local target="$1" part="$1.part"
  say "installing LibTorch $torch_version (3 GB to download) into $target"
  rm -rf "$part" "$target"
  mkdir -p "$part/tmp"
  make_venv "$part/venv"
  TMPDIR="$part/tmp" retry "$part/venv/bin/python" -m pip --quiet install --upgrade \
    --no-cache-dir --no-compile --progress-bar off --target "$part/site" --only-binary=:all: \
    --implementation cp --python-version "$torch_wheel_python" "torch==$torch_version" >&2 ||
    die "pip could not install torch==$torch_version; its messages are above"
  [[ "$(version_of_torch "$part/site/torch")" == "$torch_version" ]] ||
    die "the wheel of torch $torch_version holds no LibTorch"
  mv "$part/site" "$target"
  rm -rf "$part"
}

use_given_torch() {
  local found
  found="$(version_of_torch "$SPILLWAY_TORCH_DIR")"
  [[ "$found" == "${torch_version%.*}".* ]] ||
    die "SPILLWAY_TORCH_DIR='$SPILLWAY_TORCH_DIR' must be a folder of LibTorch" \
      "${torch_version%.*} (with include/ and lib/), found: ${found:-no LibTorch}." \
      "Unset it to have one installed."
  SPILLWAY_TORCH_DIR="$(cd "$SPILLWAY_TORCH_DIR" && pwd)"
  export SPILLWAY_TORCH_DIR
}

use_cached_torch() {
  local target="$spillway_cache/torch-$torch_version-wheel" lock
  mkdir -p "$spillway_cache"
  exec {lock}>"$target.lock"
  flock "$lock"
  if [[ "$(version_of_torch "$target/torch")" != "$torch_version" ]]; then
    install_torch_into "$target"
  fi
  exec {lock}>&-
  export SPILLWAY_TORCH_DIR="$target/torch"
}

# Prints the newest version that is installed. Older ones cannot compile libstdc++'s ranges.
newest_clang() {
  local version
  for version in 19 18 17 16; do
    if command -v "clang++-$version" >/dev/null; then
      echo "$version"
      return 0
    fi
  done
}

command -v dpkg-query >/dev/null || die "this set-up is for Debian 12 and Ubuntu 24.04"
install_packages
if [[ -n "${SPILLWAY_TORCH_DIR:-}" ]]; then use_given_torch; else use_cached_torch; fi
SPILLWAY_CLANG="$(newest_clang)"
export SPILLWAY_CLANG
if [[ "${BASH_SOURCE[0]}" == "$0" ]]; then say "ready; LibTorch: $SPILLWAY_TORCH_DIR"; fi
