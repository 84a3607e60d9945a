"""Sweeps that are divided among machines: each trains a share, then the shares become one run."""

from __future__ import annotations

import ctypes
import os
import pathlib
import re
import signal
import subprocess
import time
from collections.abc import Sequence

from .errors import ConfigError, Error, InUse
from .runs import Path, Run, open, resume

__all__ = ["merge", "train_share"]

_SHARE = re.compile(r"^  share: (\d+)/(\d+)\n", re.MULTILINE)
_PR_SET_PDEATHSIG = 1


def train_share(
    config: Path, output_dir: Path, number: int, of: int, overrides: Sequence[str] = (), *,
    cwd: Path | None = None, wait_s: float = 60,
) -> None:
    """Trains trials `number`, `number` + `of`, ... of a sweep, `number` from 1, in
    `output_dir`/shares/`number`, and goes on where an earlier process stopped there.

    The process that trains is a child with the working directory `cwd`, and is killed with its
    parent. While another process trains this share, it waits, up to `wait_s` seconds. Raises InUse,
    and Error with what the program wrote if it failed.
    """
    program = pathlib.Path(__file__).parent / "bin" / "spillway"
    command = [os.fspath(program), "train", os.fspath(config), *overrides,
               f"sweep.share={number}/{of}", "resume=auto",
               f"output_dir={_folder_of(output_dir, number)}"]
    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl  # looked up here: the child may not load anything

    def die_with_parent() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it has died already
            os.kill(os.getpid(), signal.SIGKILL)

    end = time.monotonic() + wait_s
    while True:
        done = subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True, preexec_fn=die_with_parent, check=False)
        if done.returncode == 0:
            return
        message = done.stderr.strip().removeprefix("spillway: ")
        if "is in use" not in message:
            raise Error(f"share {number} of {of}: {message}")
        if time.monotonic() > end:
            raise InUse(f"share {number} of {of}: {message}")
        time.sleep(1)


def merge(output_dir: Path, overrides: Sequence[str] = (), *, progress: bool = True) -> Run:
    """Makes one run of the shares in `output_dir`/shares: that of a sweep that one machine trained.

    Moves the trials' folders to `output_dir`/trials and resumes the run there with `overrides`,
    such as other devices; that trains what the shares have not finished. After a kill, a second
    call goes on. Raises ConfigError if a share is missing or there are no checkpoints, InUse if a
    share still trains, and like `resume`.
    """
    folder = pathlib.Path(output_dir)
    shares = _shares_in(folder)
    for share in shares:
        for trial in sorted((share / "trials").iterdir()):
            (folder / "trials").mkdir(exist_ok=True)
            trial.rename(folder / "trials" / trial.name)
    if not (folder / "config.yaml").exists():
        (folder / ".spillway").write_bytes((shares[0] / ".spillway").read_bytes())
        text = _SHARE.sub("", (shares[0] / "config.yaml").read_text(encoding="utf-8"))
        part = folder / "config.yaml.part"
        part.write_text(text, encoding="utf-8")
        part.rename(folder / "config.yaml")
    return resume(folder, overrides, progress=progress)


def _folder_of(output_dir: Path, number: int) -> pathlib.Path:
    return pathlib.Path(output_dir) / "shares" / str(number)


def _shares_in(folder: pathlib.Path) -> list[pathlib.Path]:
    """The folders of all shares of a sweep, in order."""
    first = _folder_of(folder, 1)
    if not (first / "config.yaml").exists():
        raise ConfigError(f"{first}: is no share of a sweep; train it with sweep.share=1/N and "
                          f"output_dir={first}", "output_dir")
    text = (first / "config.yaml").read_text(encoding="utf-8")
    share = _SHARE.search(text)
    of = int(share[2]) if share else 1
    if re.search(r"^  keep: 0$", text, re.MULTILINE):
        raise ConfigError("checkpoint.keep: is 0, but shares are merged by their checkpoints; "
                          "train them with at least 1", "checkpoint.keep")
    shares = [_folder_of(folder, number) for number in range(1, of + 1)]
    for number, share_folder in enumerate(shares, 1):
        if not (share_folder / "config.yaml").exists():
            raise ConfigError(f"{share_folder}: share {number} of {of} is missing; train it with "
                              f"sweep.share={number}/{of}", "output_dir")
        if open(share_folder).state == "running":
            raise InUse(f"{share_folder}: still trains; wait until it has ended")
    return shares

