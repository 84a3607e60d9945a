#!/usr/bin/env python3
"""Double starts, interruptions and damaged files lose no work and are reported.

Usage: broken_run_test.py SPILLWAY TEXT
"""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM, TEXT = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))

CONFIG = {
    "devices": [{"memory": "16MiB"}],
    "model": {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2,
              "max_position_embeddings": 16},
    "data": {"path": TEXT},
    "train": {"batch_size": 4, "virtual_nodes": 2, "max_steps": 40},
    "checkpoint": {"every_steps": 5},
    "sweep": {"parameters": {"seed": {"values": [1, 2]}}},
}
LONG = "train.max_steps=1000000"


class BrokenRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.root.cleanup)
        folder = pathlib.Path(cls.root.name)
        (folder / "config.yaml").write_text(json.dumps(CONFIG))
        whole = subprocess.run([PROGRAM, "train", "config.yaml", "output_dir=whole", "--json"],
                               cwd=folder, capture_output=True, text=True, check=True)
        cls.whole_text = whole.stdout
        cls.whole_bits = cls.bits(whole.stdout)

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=self.root.name))
        shutil.copy(pathlib.Path(self.root.name) / "config.yaml", self.folder)

    @staticmethod
    def bits(document):
        return [(trial["weights_xxh3"], trial["final_loss"], trial["eval_loss"])
                for trial in json.loads(document)["trials"]]

    def copy_whole(self):
        shutil.copytree(pathlib.Path(self.root.name) / "whole", self.folder / "run")
        return self.folder / "run"

    def spillway(self, *arguments):
        return subprocess.run([PROGRAM, *arguments], cwd=self.folder, timeout=100,
                              capture_output=True, text=True, check=False)

    def start(self, *arguments):
        return subprocess.Popen([PROGRAM, *arguments], cwd=self.folder, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def trial(self, seed):
        return self.folder / "run" / "trials" / f"seed={seed}"

    def newest_checkpoint(self, seed):
        return max((self.trial(seed) / "checkpoints").iterdir())

    @staticmethod
    def catches(pid, number):
        status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
        return int(caught, 16) >> (number - 1) & 1

    # Several starts of one run.

    def test_one_of_several_starts_wins_without_losses(self):
        chance = random.Random(1)
        campaign = int(os.environ.get("SPILLWAY_CAMPAIGN", "1"))
        for round_, more in enumerate([[], ["resume=auto"], ["--overwrite"]] * campaign):
            output = f"output_dir=run{round_}"
            starts = []
            for _ in range(chance.choice([2, 3])):
                starts.append(self.start("train", "config.yaml", output, "train.max_steps=400",
                                         "--json", *more))
                time.sleep(chance.uniform(0, 0.6))
            ends = [(*start.communicate(timeout=100), start.returncode) for start in starts]
            winners = [out for out, _, code in ends if code == 0]
            # Starts that come after the end of the first may continue its run or replace it.
            self.assertGreaterEqual(len(winners), 1, (more, ends))
            self.assertLessEqual(len(winners), 3 if more else 1, (more, ends))
            for out, err, code in ends:
                if code != 0:
                    self.assertEqual(code, 2, err)
                    self.assertRegex(err, "is in use by process [0-9]+|holds an earlier run")
            shown = self.spillway("results", f"run{round_}", "--json")
            self.assertEqual(self.bits(shown.stdout), self.bits(winners[0]))
            self.assertEqual(self.spillway("verify", f"run{round_}").returncode, 0)

    def test_writing_commands_refuse_a_folder_in_use(self):
        running = self.start("train", "config.yaml", LONG, "output_dir=run")
        self.addCleanup(running.communicate)
        self.addCleanup(running.kill)
        self.assertIn("running", running.stdout.readline())
        before = sorted(path for path in (self.folder / "run").rglob("*") if path.is_dir())
        for command in (["train", "config.yaml", "output_dir=run"],
                        ["train", "config.yaml", "output_dir=run", "--overwrite"],
                        ["train", "config.yaml", "output_dir=run", "resume=auto"],
                        ["resume", "run"]):
            refused = self.spillway(*command)
            self.assertEqual(refused.returncode, 2, refused.stderr)
            self.assertIn(f"'run' is in use by process {running.pid}", refused.stderr)
        for path in before:
            self.assertTrue(path.exists() or path.name.isdigit() or path.suffix == ".tmp", path)

    # Locations of outputs.

    def test_a_run_does_not_train_on_its_own_files(self):
        (self.folder / "corpus").mkdir()
        shutil.copy(TEXT, self.folder / "corpus" / "text")
        for path, output in (("corpus", "corpus/run"), (".", "runs/x")):
            refused = self.spillway("train", "config.yaml", f"data.path={path}",
                                    f"output_dir={output}")
            self.assertEqual(refused.returncode, 2, refused.stderr)
            self.assertIn(f"output_dir: '{output}' lies inside data.path '{path}'", refused.stderr)
            self.assertFalse((self.folder / output).exists())

    def test_data_in_the_run_folder_is_not_overwritten(self):
        run = self.copy_whole()
        shutil.copy(TEXT, run / "trials" / "a.txt")
        refused = self.spillway("train", "config.yaml", "data.path=run/trials/a.txt",
                                "output_dir=run", "--overwrite")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("data.path: 'run/trials/a.txt' lies inside output_dir 'run'", refused.stderr)
        self.assertTrue((run / "trials" / "a.txt").exists())

    def test_a_name_like_yaml_is_accepted(self):
        self.copy_whole().rename(self.folder / "[y]")
        resumed = self.spillway("resume", "[y]", "--json")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertEqual(self.bits(resumed.stdout), self.whole_bits)

    # All kinds of ends.

    def test_a_closed_terminal_saves_the_run(self):
        running = self.start("train", "config.yaml", LONG, "output_dir=run",
                             "checkpoint.every_steps=0")
        self.assertIn("running", running.stdout.readline())
        running.send_signal(signal.SIGHUP)
        _, err = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 130)
        self.assertIn("Continue with: spillway resume 'run'", err)
        self.assertTrue(self.newest_checkpoint(1).exists())

    def test_nohup_is_respected(self):
        running = subprocess.Popen(["nohup", PROGRAM, "train", "config.yaml", "output_dir=run",
                                    "train.max_steps=300"], cwd=self.folder, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertIn("running", running.stdout.readline())
        running.send_signal(signal.SIGHUP)
        running.communicate(timeout=60)
        self.assertEqual(running.returncode, 0)

    def test_closed_output_does_not_stop_the_run(self):
        for stream, stays in (("stdout", "stderr"), ("stderr", "stdout")):
            output = f"output_dir={stream}"
            running = self.start("train", "config.yaml", output, *(["--json"] * (stream == "stderr")))
            getattr(running, stream).readline()
            getattr(running, stream).close()
            getattr(running, stays).read()
            getattr(running, stays).close()
            running.wait(timeout=60)
            self.assertEqual(running.returncode, 0 if stream == "stderr" else 1)
            shown = self.spillway("results", stream, "--json")
            self.assertEqual(self.bits(shown.stdout), self.whole_bits)
            self.assertTrue((self.folder / stream / "results.csv").exists())

    def test_interrupted_planning_leaves_nothing(self):
        planning = self.start("train", "config.yaml", "output_dir=run",
                              "model.num_hidden_layers=1000", "model.hidden_size=64", "--json")
        while not self.catches(planning.pid, signal.SIGINT):
            time.sleep(0.01)
        time.sleep(0.3)
        begin = time.monotonic()
        planning.send_signal(signal.SIGINT)
        out, err = planning.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, 5)
        self.assertEqual(planning.returncode, 130, err)
        self.assertIn("interrupted before training", err)
        self.assertEqual(json.loads(out)["error"]["exit_code"], 130)
        self.assertFalse((self.folder / "run").exists())

    def test_a_removed_log_stops_the_run(self):
        running = self.start("train", "config.yaml", LONG, "output_dir=run")
        self.assertIn("running", running.stdout.readline())
        (self.folder / "run" / "events.jsonl").unlink()
        _, err = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 1)
        self.assertIn("events.jsonl was removed or replaced", err)
        resumed = self.start("resume", "run")
        self.assertRegex(resumed.stdout.readline(), "resumed after step [1-9]")
        resumed.kill()
        resumed.communicate()

    def test_leftovers_of_a_killed_start_are_ignored(self):
        (self.folder / "run").mkdir()
        (self.folder / "run" / ".spillway.tmp").write_text("This folder")
        (self.folder / "run" / "lock").write_text("4711\n")
        resumed = self.spillway("resume", "run")
        self.assertEqual(resumed.returncode, 2)
        self.assertIn("was killed before it started; start it with 'spillway train'", resumed.stderr)
        trained = self.spillway("train", "config.yaml", "output_dir=run", "--json")
        self.assertEqual(trained.returncode, 0, trained.stderr)
        self.assertEqual(self.bits(trained.stdout), self.whole_bits)

    def test_an_unwritable_trace_affects_nothing_else(self):
        run = self.folder / "run"
        running = self.start("train", "config.yaml", "output_dir=run", "--json",
                             "train.max_steps=300")
        while "running" not in running.stderr.readline():
            pass
        (run / "trace.json").mkdir()
        out, err = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 0, err)
        self.assertEqual(len(json.loads(out)["trials"]), 2)
        self.assertIn("cannot write the trace", err)

    def test_outputs_that_cannot_be_written_leave_the_report(self):
        run = self.folder / "run"
        running = self.start("train", "config.yaml", "output_dir=run", "--json",
                             "train.max_steps=300")
        while "running" not in running.stderr.readline():
            pass
        (run / "results.csv").mkdir()
        out, err = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 1, err)
        self.assertEqual(len(json.loads(out)["trials"]), 2)
        self.assertIn("cannot write results.csv", err)
        self.assertTrue((run / "plan.json").is_file())

    # Damage.

    def assert_restored(self, expected):
        """Damage is found, reported, and repaired by a resume, which ends with the same bits."""
        found = self.spillway("verify", "run")
        self.assertEqual(found.returncode, 1, found.stdout)
        resumed = self.spillway("resume", "run", "--json")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertRegex(resumed.stderr, expected)
        self.assertEqual(self.bits(resumed.stdout), self.whole_bits)
        again = self.spillway("verify", "run")
        self.assertEqual(again.returncode, 0, again.stdout)

    def test_damaged_log_line(self):
        log = self.copy_whole() / "events.jsonl"
        for number in (1, 5, -2):
            lines = log.read_bytes().split(b"\n")
            lines[number - 1 if number > 0 else number] = b"?" + lines[number][1:]
            log.write_bytes(b"\n".join(lines))
            self.assert_restored("line [0-9]+ does not match its hash")

    def test_missing_log(self):
        (self.copy_whole() / "events.jsonl").unlink()
        self.assert_restored("events.jsonl is missing; starting a new log")

    def test_damaged_weights(self):
        self.copy_whole()
        weights = self.trial(1) / "weights.safetensors"
        right = weights.read_bytes()
        weights.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
        self.assert_restored("do not match their hash in the log; restoring them from its last checkpoint")
        weights.unlink()
        self.assert_restored("are missing; restoring them from its last checkpoint")
        self.assertEqual(weights.read_bytes(), right)

    def test_damaged_journal(self):
        journal = self.copy_whole() / "journal.sqlite"
        journal.write_bytes(b"x" * journal.stat().st_size)
        self.assertEqual(self.spillway("verify", "run").returncode, 1)
        resumed = self.spillway("resume", "run", "--json")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertIn("renaming it to run/journal.sqlite.damaged", resumed.stderr)
        self.assertEqual(self.bits(resumed.stdout), self.whole_bits)

    def kill_in_the_middle(self):
        running = self.start("train", "config.yaml", "output_dir=run", "train.max_steps=40",
                             "devices=[{memory: 16MiB, imitate: {slowdown: 40}}]")
        while not all(len(list((self.trial(seed) / "checkpoints").glob("*[0-9]"))) > 1 for seed in (1, 2)):
            time.sleep(0.01)
        running.kill()
        running.communicate()

    def test_damaged_checkpoints_of_one_trial(self):
        self.kill_in_the_middle()
        for checkpoint in (self.trial(1) / "checkpoints").iterdir():
            for file in checkpoint.iterdir():
                file.write_bytes(file.read_bytes()[:-1] + b"?")
        resumed = self.spillway("resume", "run", "--json", "devices=[{memory: 16MiB}]")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertIn("DAMAGED", resumed.stderr)
        self.assertRegex(resumed.stderr, "trial seed=1: .*it resumes from the beginning")
        self.assertEqual(self.bits(resumed.stdout), self.whole_bits)

    def test_a_missing_checkpoint_is_reported(self):
        self.kill_in_the_middle()
        shutil.rmtree(self.trial(2) / "checkpoints")
        found = self.spillway("verify", "run")
        self.assertEqual(found.returncode, 1)
        self.assertIn("is missing", found.stdout)
        resumed = self.spillway("resume", "run", "--json", "devices=[{memory: 16MiB}]")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertRegex(resumed.stderr, "trial seed=2: its checkpoint after step [0-9]+ .*missing")
        self.assertEqual(self.bits(resumed.stdout), self.whole_bits)

    def test_special_files(self):
        run = self.copy_whole()
        for name in ("config.yaml", "events.jsonl", "lock"):
            (run / name).rename(run / "kept")
            os.mkfifo(run / name)
            resumed = self.spillway("resume", "run")
            self.assertNotEqual(resumed.returncode, 0)
            self.assertIn(name, resumed.stderr)
            (run / "kept").replace(run / name)
        self.assertEqual(self.spillway("resume", "run").returncode, 0)


if __name__ == "__main__":
    unittest.main()
