"""Unusual environments, limits and disks."""

import re

from campaign import LONG, SLOW_DEVICE
from run import Run, checkpoints
from scene import Attempt, Surprise
from steps import (both, furnish, given, is_absent, is_unchanged, made_folder, remember, same_bits)

KILLED = "a run that was killed"
# Variables that select kernels. A run that started without one either has the same bits with it, or
# is refused with the difference.
KERNELS = [("MKL_CBWR", "COMPATIBLE"), ("MKL_CBWR", "AVX2"), ("MKL_CBWR", "AUTO"),
           ("MKL_CBWR", "SSE4_2"), ("MKL_ENABLE_INSTRUCTIONS", "AVX2"),
           ("MKL_ENABLE_INSTRUCTIONS", "SSE4_2"), ("ONEDNN_MAX_CPU_ISA", "AVX2"),
           ("DNNL_MAX_CPU_ISA", "SSE41"), ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE"),
           ("ATEN_CPU_CAPABILITY", "default"), ("ATEN_CPU_CAPABILITY", "avx2"),
           ("ONEDNN_DEFAULT_FPMATH_MODE", "BF16"), ("OMP_NUM_THREADS", "1"),
           ("OMP_NUM_THREADS", "7"), ("MKL_NUM_THREADS", "5"), ("MKL_DYNAMIC", "FALSE"),
           ("OMP_SCHEDULE", "dynamic"), ("KMP_AFFINITY", "compact"), ("MALLOC_ARENA_MAX", "1"),
           ("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX512F,-AVX2"), ("MKL_DEBUG_CPU_TYPE", "5"),
           ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1"), ("OMP_DYNAMIC", "true"),
           ("OPENBLAS_CORETYPE", "Nehalem"), ("LD_BIND_NOW", "1")]
OF_BITS = ["a GPT", "a GPT in bf16", "a perceptron", "a residual network"]
LOCALES = ["C", "POSIX", "C.UTF-8", "de_DE.UTF-8", "tr_TR.UTF-8", "nonsense", ""]
ODD_ENVIRONMENTS = [
    ("no HOME", {"HOME": None, "XDG_CACHE_HOME": None}),
    ("a HOME that is not there", {"HOME": "/proc/nowhere", "XDG_CACHE_HOME": None}),
    ("a HOME that is a file", {"HOME": "HERE/text.txt", "XDG_CACHE_HOME": None}),
    ("a TMPDIR that is not there", {"TMPDIR": "/proc/nowhere"}),
    ("an empty TMPDIR", {"TMPDIR": ""}), ("no PATH", {"PATH": None}),
    ("a relative cache folder", {"XDG_CACHE_HOME": "cache"}),
    ("a cache folder that is a file", {"XDG_CACHE_HOME": "HERE/text.txt"}),
    ("a cache folder in /proc", {"XDG_CACHE_HOME": "/proc"}),
    ("a cache folder that is /dev/null", {"XDG_CACHE_HOME": "/dev/null"}),
    ("an empty cache folder's name", {"XDG_CACHE_HOME": ""}),
    ("a terminal of one column", {"COLUMNS": "1", "LINES": "1"}),
    ("a terminal of no kind", {"TERM": ""}), ("a time zone that is none", {"TZ": "Nowhere/Land"}),
    ("a variable of a megabyte", {"LARGE": "x" * 100_000}),
]
LIMITS = [
    ("twelve descriptors", "ulimit -n 12; exec {}", (0, 1, 2)),
    ("no core dumps", "ulimit -c 0; exec {}", 0),
    ("files of at most 100 kB", "ulimit -f 100; exec {}", (0, 1)),
    ("files of at most 10 kB", "ulimit -f 10; exec {}", (0, 1, 2)),
    ("files of at most 1 kB", "ulimit -f 1; exec {}", (1, 2)),
    ("a small stack", "ulimit -s 1024; exec {}", (0, 1, 3)),
    ("800 MB of addresses", "ulimit -v 800000; exec {}", (0, 1, 3)),
    ("one core", "exec taskset -c 0 {}", 0),
    ("the lowest priority", "exec nice -n 19 {}", 0),
    ("a umask that takes all", "umask 777; exec {}", (0, 1, 2)),
    ("a umask that takes nothing", "umask 0; exec {}", 0),
    ("SIGINT ignored", "trap '' INT; exec {}", 0),
    ("SIGHUP ignored", "exec nohup {}", 0),
    ("SIGCHLD ignored", "trap '' CHLD; exec {}", 0),
    ("an own process group", "exec setsid --wait {}", 0),
]
IN_OWN_MOUNTS = ("unshare --map-root-user --mount true 2>/dev/null || "
                 "{{ echo 'no disk can be mounted here' >&2; exit 77; }}; "
                 "exec unshare --map-root-user --mount "
                 "bash -c '{mount} && exec \"$0\" \"$@\"' {{}}")
# The options of the disk with the run's folder, and the valid exit codes.
DISKS = [
    ("of 64 KiB", "mount -t tmpfs -o size=64k none disk", (1, 2, 3)),
    ("of 1 MiB", "mount -t tmpfs -o size=1m none disk", (0, 1, 2, 3)),
    ("of 3 MiB", "mount -t tmpfs -o size=3m none disk", (0, 1)),
    ("of eight names", "mount -t tmpfs -o size=64m,nr_inodes=8 none disk", (1, 2, 3)),
    ("that can only be read", "mount -t tmpfs -o ro none disk", 2),
    ("that is ample", "mount -t tmpfs -o size=64m none disk", 0),
]


def in_own_mounts(mount):
    return IN_OWN_MOUNTS.format(mount=mount)


def same_or_refused(words):
    """Resumes with a variable: the right bits, or a refusal that reports different numbers."""
    def step(scene):
        Run("resume r", env=words, code=(0, 2))(scene)
        if list(scene.folder.glob("r/trials/base/weights.safetensors")):
            same_bits(only_weights=True)(scene)
            return
        text = (scene.folder.parent / f"{scene.folder.name}.err{len(scene.commands)}").read_text()
        if not re.search(r"numerics|kernels|device: was", text):
            raise Surprise("refused, but not for its numerics: " + text)
        Run("resume r")(scene)
        same_bits()(scene)
    return step


def of_kernels():
    from groups.contracts import CONTRACTS  # noqa: PLC0415
    for number, (name, value) in enumerate(KERNELS):
        contract = CONTRACTS[OF_BITS[number % len(OF_BITS)]]
        yield Attempt(f"A run that goes on with {name}={value} has the same bits or is refused",
                      [furnish({**LONG, **contract, "train.max_steps": 40}),
                       Run(f"train base.yaml {SLOW_DEVICE}", code=-9,
                           during=[(checkpoints(1), 9)]), same_or_refused({name: value})])
    yield Attempt("A run with LD_PRELOAD of nothing has the same bits",
                  [furnish(), Run("train base.yaml", env={"LD_PRELOAD": ""}), same_bits()])


def attempts():
    yield from of_kernels()
    for locale in LOCALES:
        yield Attempt(f"The locale '{locale}' changes no bit and no number",
                      [furnish(), Run("train base.yaml --json", env={"LC_ALL": locale,
                                                                     "LANG": locale}),
                       same_bits()])
    for name, environment in ODD_ENVIRONMENTS:
        yield Attempt(f"{name} does no harm",
                      [furnish(), Run("train base.yaml", env=environment), same_bits()])
    yield from of_limits()
    yield from of_disks()


def of_limits():
    for name, shell, code in LIMITS:
        steps = [furnish(), Run("train base.yaml", shell=shell, code=code, within_s=60)]
        yield Attempt(f"With {name} it trains or says what is missing",
                      steps + ([same_bits()] if code == 0 else []))
    yield Attempt("A resume after a limit on files ended a run has the same bits",
                  [furnish(LONG), Run("train base.yaml", shell="ulimit -f 100; exec {}",
                                      code=(0, 1)),
                   Run("resume r --retry-failed"), same_bits()])
    yield Attempt("A folder that is deleted while one stands in it is told",
                  [furnish(), Run("train HERE/base.yaml output_dir=HERE/r "
                                  "data.path=HERE/text.txt", code=(0, 1, 2),
                                  shell="mkdir gone; cd gone; rmdir ../gone; exec {}",
                                  is_loose=True)])
    yield Attempt("A folder with odd letters as the place to stand in does no harm",
                  [furnish(), made_folder("a b'\"ü"),
                   Run("train HERE/base.yaml output_dir=HERE/r data.path=HERE/text.txt",
                       shell="cd \"a b'\\\"ü\"; exec {}"), same_bits()])


def of_disks():
    for name, mount, code in DISKS:
        words = "train base.yaml output_dir=disk/r"
        yield Attempt(f"On a disk {name} it trains or says what is missing",
                      [furnish(), made_folder("disk"),
                       Run(words, code=code, shell=in_own_mounts(mount))])
        yield Attempt(f"With homes on a disk {name} it trains or says what is missing",
                      [furnish(), made_folder("disk"),
                       Run("train base.yaml offload_path=disk", shell=in_own_mounts(mount),
                           code=(0, 2, 3)), is_absent("disk/r")])
    homes = "train base.yaml offload_path=disk"
    refused = ["offloaded training state in 'disk' does not fit: it needs ", "free some there"]
    yield Attempt("A home that has no room on its disk is refused before training",
                  [furnish(), made_folder("disk"),
                   Run(homes, code=3, err=refused, shell=in_own_mounts(DISKS[0][1])),
                   is_absent("r")], is_basic=True)
    yield Attempt("Homes take turns on a disk that holds what host_memory allows",
                  [furnish({"sweep": {"parameters": {"seed": {"values": [1, 2, 3, 4]}}}}),
                   made_folder("disk"),
                   Run(homes, code=3, err=refused, shell=in_own_mounts(DISKS[1][1])),
                   is_absent("r"),
                   Run(f"{homes} host_memory=700KiB", shell=in_own_mounts(DISKS[1][1])),
                   same_bits()], is_basic=True)
    yield Attempt("A run on a disk that became read-only is refused with 2 and stays",
                  [given(KILLED), remember("r"),
                   Run("resume r", code=2,
                       shell=in_own_mounts("mount --bind r r && mount -o remount,bind,ro r")),
                   is_unchanged("r"), Run("resume r"), same_bits()])
    yield Attempt("results and verify read a run on a disk that is read-only",
                  [given(KILLED), both(*[
                      Run(words, shell=in_own_mounts("mount --bind r r && "
                                                     "mount -o remount,bind,ro r"))
                      for words in ("results r", "verify r")])])
    yield Attempt("Too little disk for checkpoints names what helps",
                  [furnish(LONG), made_folder("disk"),
                   Run("train base.yaml output_dir=disk/r checkpoint.keep=9", code=3,
                       err="checkpoint",
                       shell=in_own_mounts("mount -t tmpfs -o size=500k none disk"))])
