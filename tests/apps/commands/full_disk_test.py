#!/usr/bin/env python3
"""A run on a real, full disk: it continues without a checkpoint or stops, reports it, and ends with
the same bits once there is space.

Usage: full_disk_test.py SPILLWAY TEXT
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support/run"))
import small_run  # noqa: E402

PROGRAM, TEXT = (os.path.abspath(argument) for argument in sys.argv[1:3])
INSIDE = sys.argv[3:]  # the folder for a disk that only this process sees
OPTIONS = "size=64m,nr_inodes=256"
NOT_WRITTEN = re.compile(r"NOT WRITTEN after step \d+, older ones stay: (.*)")


def in_own_mounts(*command):
    """A process with private mounts; also for root without user namespaces."""
    for who in (["--map-root-user"], []):
        if subprocess.run(["unshare", *who, "--mount", "mount", "-t", "tmpfs", "-o", OPTIONS,
                           "none", "/tmp"], capture_output=True, check=False).returncode == 0:
            return ["unshare", *who, "--mount", *command]
    return None


class Disk:
    """A disk of limited bytes and files, which something else fills."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        subprocess.run(["mount", "-t", "tmpfs", "-o", OPTIONS, "none", folder], check=True)

    def fill_with_files(self):
        """Frees the bytes and files."""
        files = []
        for number in range(os.statvfs(self.folder).f_ffree):
            files.append(self.folder / f"other{number}")
            files[-1].touch()
        return files

    def fill_with_bytes(self, left):
        """Returns the file that takes them; it grows each time. Others may write meanwhile."""
        filler = self.folder / "filler"
        with open(filler, "ab") as file:
            while (free := self.free_bytes() - left) > 0:
                with contextlib.suppress(OSError):
                    os.posix_fallocate(file.fileno(), filler.stat().st_size, free)
        return filler

    def free_bytes(self):
        disk = os.statvfs(self.folder)
        return disk.f_bavail * disk.f_frsize


class FullDisk(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            whole = small_run.SmallRun(PROGRAM, TEXT, folder + "/whole")
            small_run.finish(whole.train_command("checkpoint.every_steps=0"))
            cls.weights = whole.weights()

    def setUp(self):
        self.disk = Disk(INSIDE[0])
        self.addCleanup(subprocess.run, ["umount", INSIDE[0]], check=True)
        self.run_ = small_run.SmallRun(PROGRAM, TEXT, self.disk.folder / "run")

    def start(self):
        """Has two checkpoints when it returns."""
        process = small_run.start(self.run_.train_command(small_run.SLOW))
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        small_run.wait_for(process, lambda: len(self.run_.generations()) >= 2)
        return process

    def next_reason(self, process, known):
        """Reasons why a checkpoint is not written, other than known ones."""
        for line in process.stdout:
            said = NOT_WRITTEN.search(line)
            reason = re.sub("/[0-9]{12}", "/NUMBER", said[1]) if said else ""
            if reason and reason not in known:
                return reason
        raise AssertionError("the run ended without another reason")

    def sound(self):
        """The bytes of the newest two generations."""
        return [[file.read_bytes() for file in sorted((self.run_.checkpoints / name).iterdir())]
                for name in self.run_.generations()[-2:]]

    def test_a_run_retries_a_checkpoint_without_space(self):
        process = self.start()
        others, reasons = self.disk.fill_with_files(), []
        reasons.append(self.next_reason(process, reasons))
        before = self.sound()
        # Each time one more name is free: the run gets one file further.
        for _ in range(4):
            others.pop().unlink()
            reasons.append(self.next_reason(process, reasons))
        filler = self.disk.fill_with_bytes(left=400 << 10)
        for file in others:
            file.unlink()
        too_few_bytes = self.next_reason(process, reasons)
        self.assertEqual(self.sound(), before)
        self.assertEqual(list(self.run_.checkpoints.glob("*.tmp")), [])
        filler.unlink()
        rest = process.stdout.read()
        self.assertEqual(process.wait(), 0, rest)
        self.assertIn("NUMBER.tmp", reasons[0])
        for reason in reasons:
            self.assertRegex(reason, "cannot create .*: No space left on device")
        self.assertRegex(too_few_bytes, "asked for .* but .* are left|No space left on device")
        saved = self.run_.events("saved")
        self.assertGreaterEqual(sum("reason" in event for event in saved), 6)
        self.assertNotIn("reason", saved[-1], "it did not try again")
        self.assertEqual(self.run_.weights(), self.weights)
        small_run.finish([PROGRAM, "verify", str(self.run_.folder)])

    def test_a_run_without_space_for_its_log_can_be_resumed(self):
        process = self.start()
        filler, said = self.disk.fill_with_bytes(left=0), ""
        for line in process.stdout:
            self.disk.fill_with_bytes(left=0)  # a last checkpoint may have replaced an older one
            said += line
        self.assertEqual(process.wait(), 1, said)
        self.assertRegex(said, "No space left on device|disk is full")
        # Space for one more checkpoint is enough: existing ones keep theirs.
        newest = self.run_.checkpoints / self.run_.generations()[-1]
        one = sum(file.stat().st_size for file in newest.iterdir())
        filler.unlink()
        filler = self.disk.fill_with_bytes(left=2 * one)
        process = small_run.start(self.run_.resume_command(small_run.SLOW))
        self.addCleanup(process.stdout.close)
        said = ""
        for line in process.stdout:
            said += line
            if "resumed after step" in line:
                filler.unlink()
        self.assertEqual(process.wait(), 0, said)
        self.assertFalse(filler.exists(), said)
        self.assertEqual(self.run_.weights(), self.weights)


def main():
    if INSIDE:
        unittest.main(argv=sys.argv[:1])
    with tempfile.TemporaryDirectory() as folder:
        command = shutil.which("unshare") and in_own_mounts(
            sys.executable, os.path.abspath(__file__), PROGRAM, TEXT, folder)
        if not command:
            print("skipped: no disk can be mounted here, not by unshare --mount either")
            sys.exit(77)
        sys.exit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main()
