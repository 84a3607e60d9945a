"""A control group that limits the memory of its processes together and kills them beyond it."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys

# A process that takes twice the memory must be killed; otherwise the group is not effective.
TAKE = "import sys; bytearray(b'x') * int(sys.argv[1])"


def mount_points():
    """Control groups with memory: the folder of this process, and the root folder."""
    mounts = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    own = pathlib.Path("/proc/self/cgroup").read_text().splitlines()
    for mount in mounts:
        place, _, kind = mount.partition(" - ")
        root, is_old = pathlib.Path(place.split()[4]), kind.startswith("cgroup ")
        if not kind.startswith("cgroup") or (is_old and "memory" not in kind):
            continue
        for line in own:
            _, controllers, path = line.split(":", 2)
            if ("memory" in controllers.split(",")) if is_old else not controllers:
                yield root, root / path.lstrip("/")


def folders():
    """The folder for a new group: below that of this process, or nearer to the root."""
    for root, own in mount_points():
        folder = own
        while folder != root.parent:
            if folder.is_dir():
                yield folder
            folder = folder.parent


def limit(group, limit_bytes):
    """Throws OSError if the group cannot limit memory. Swap is disabled."""
    old = (group / "memory.limit_in_bytes").exists()
    (group / ("memory.limit_in_bytes" if old else "memory.max")).write_text(str(limit_bytes))
    swap = group / ("memory.memsw.limit_in_bytes" if old else "memory.swap.max")
    with contextlib.suppress(OSError):
        if swap.exists():
            swap.write_text(str(limit_bytes) if old else "0")


def can_limit(group, limit_bytes):
    try:
        limit(group, limit_bytes)
    except OSError:
        return False
    return kills(prefix_into(group), limit_bytes)


def prefix_into(group):
    return ["sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh"]


def kills(prefix, limit_bytes):
    done = subprocess.run([*prefix, sys.executable, "-c", TAKE, str(2 * limit_bytes)],
                          capture_output=True, check=False)
    small = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    return done.returncode != 0 and small.returncode == 0


@contextlib.contextmanager
def prefix_of(limit_bytes):
    """The command prefix that runs a command in such a group; empty if this machine has none."""
    for folder in folders():
        group = folder / f"spillway-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if can_limit(group, limit_bytes):
                yield prefix_into(group)
                return
        finally:
            group.rmdir()
    prefix = ["systemd-run", "--user", "--scope", "--quiet", "-p", f"MemoryMax={limit_bytes}", "-p",
              "MemorySwapMax=0"]
    yield prefix if shutil.which(prefix[0]) and kills(prefix, limit_bytes) else None
