#!/usr/bin/env python3
"""What resume refuses, why and with which remedy. Nothing of the run is changed by it.
Usage: resume_refused_test.py SPILLWAY TEXT"""

import contextlib
import ctypes
import ctypes.util
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support/run"))
import small_run  # noqa: E402

PROGRAM, TEXT = (os.path.abspath(argument) for argument in sys.argv[1:3])
# Change when they are opened: what lies in the log moves to the database.
OF_SQLITE = ("journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm", "lock")


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def xxh3(data):
    """As docs/formats.md has it; None without the library."""
    name = ctypes.util.find_library("xxhash")
    if name is None:
        return None
    hash_of = ctypes.CDLL(name).XXH3_128bits
    hash_of.argtypes, hash_of.restype = [ctypes.c_char_p, ctypes.c_size_t], Hash128
    found = hash_of(data, len(data))
    return f"{found.high:016x}{found.low:016x}".encode()


def rows_of(journal):
    """What a journal says, as SQL; it is left as it is."""
    with tempfile.TemporaryDirectory() as folder:
        for file in journal.parent.glob(journal.name + "*"):
            shutil.copy(file, folder)
        with contextlib.closing(sqlite3.connect(pathlib.Path(folder) / journal.name)) as copy:
            return list(copy.iterdump())


class ResumeRefused(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """A run that was killed after some checkpoints."""
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.data = pathlib.Path(folder.name) / "data.txt"
        shutil.copy(TEXT, cls.data)
        whole = small_run.SmallRun(PROGRAM, cls.data, folder.name + "/whole")
        small_run.finish(whole.train_command("checkpoint.every_steps=0"))
        cls.weights = whole.weights()
        cls.killed = small_run.SmallRun(PROGRAM, cls.data, folder.name + "/killed")
        process = small_run.start(cls.killed.train_command(small_run.SLOW))
        small_run.wait_for(process, lambda: len(cls.killed.generations()) >= 2)
        process.kill()
        process.communicate()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_ = small_run.SmallRun(PROGRAM, self.data, folder.name + "/run")
        shutil.copytree(self.killed.folder, self.run_.folder)

    def content(self):
        files = {str(file): file.read_bytes() for file in self.run_.folder.rglob("*")
                 if file.is_file() and file.name not in OF_SQLITE}
        return files, rows_of(self.run_.folder / "journal.sqlite")

    def refused(self, *overrides):
        """What is said; exit code 2, and nothing is changed."""
        before = self.content()
        done = subprocess.run(self.run_.resume_command(*overrides), capture_output=True, text=True,
                              check=False, timeout=100)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertEqual(self.content(), before)
        self.assertEqual(done.stdout, "")
        self.code = done.returncode
        return done.stderr

    def test_data_that_changed_since_until_they_are_put_back(self):
        original = self.data.read_bytes()
        self.addCleanup(self.data.write_bytes, original)
        for changed in (original[:1000] + bytes([original[1000] ^ 1]) + original[1001:],
                        original + b"more" * 100, original[:-400]):
            self.data.write_bytes(changed)
            said = self.refused()
            self.assertEqual(self.code, 2)
            self.assertRegex(said, "has another contract:\n +data: was [0-9a-f]{32}, is [0-9a-f]")
            self.assertIn("the files of data.path, or how they are read, changed since; put them "
                          "back as they were, or choose another output_dir", said)
        self.data.write_bytes(original)
        said = small_run.finish(self.run_.resume_command(small_run.FAST))
        self.assertIn("resumed after step", said)
        self.assertEqual(self.run_.weights(), self.weights)

    def test_another_contract_by_its_fields(self):
        said = self.refused("train.learning_rate=0.5", "train.virtual_nodes=8")
        self.assertEqual(self.code, 2)
        for line in ("train.learning_rate: was 0.001, is 0.5", "train.virtual_nodes: was 4, is 8",
                     "go on with what it was, or choose another output_dir"):
            self.assertIn(line, said)
        self.assertNotIn("data: ", said)

    def test_another_model(self):
        said = self.refused("model.hidden_size=16")
        self.assertEqual(self.code, 2)
        self.assertIn("model.hidden_size: was 32, is 16", said)
        self.assertRegex(said, "  model: was [0-9a-f]{32}, is [0-9a-f]{32}")

    def test_a_checkpoint_of_another_run(self):
        """It has the names of the right one and verifies; only what it says of itself differs."""
        other = small_run.SmallRun(PROGRAM, self.data, str(self.run_.folder) + "-other")
        small_run.finish(other.train_command("model.hidden_size=16", "train.max_steps=4"))
        shutil.rmtree(self.run_.checkpoints)
        shutil.copytree(other.checkpoints, self.run_.checkpoints)
        self.assertIn("model.hidden_size: was 16, is 32", self.refused())
        self.assertEqual(self.code, 2)

    def test_what_is_no_run(self):
        (self.run_.folder / ".spillway").unlink()
        self.assertIn("holds no run; start one with", self.refused())
        self.assertEqual(self.code, 2)

    def test_a_log_of_a_newer_format(self):
        log = self.run_.folder / "events.jsonl"
        first, rest = log.read_text().replace('"format":3', '"format":9', 1).split("\n", 1)
        log.write_text(first[:first.rindex(',"xxh3"')] + "}\n" + rest)
        self.assertIn("the log has format version 9, this program knows versions up to 3",
                      self.refused())

    def test_a_checkpoint_of_a_newer_format(self):
        manifest = self.run_.checkpoints / self.run_.generations()[-1] / "MANIFEST"
        text = manifest.read_bytes().replace(b"spillway-checkpoint 1\n", b"spillway-checkpoint 7\n")
        text = text[:text.rindex(b"xxh3 ")]
        hashed = xxh3(text)
        if hashed is None:
            self.skipTest("no library to hash with")
        manifest.write_bytes(text + b"xxh3 " + hashed + b"\n")
        self.assertIn("has format version 7, this program knows versions up to 1; use the newer "
                      "Spillway that wrote it", self.refused())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
