#!/usr/bin/env python3
"""The program as a process: exit codes, streams, signals. Usage: program_test.py PROGRAM"""

import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support/run"))
import small_run  # noqa: E402

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else "build/bin/spillway"

CONFIG = """
devices: [{memory: 1MiB}]
model: {num_hidden_layers: 2, hidden_size: 16, max_position_embeddings: 16}
data: {path: text.txt}
train: {batch_size: 4, virtual_nodes: 2, max_steps: 3}
"""


class Program(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.write("text.txt", "To be, or not to be, that is the question.\n" * 200)
        self.write("config.yaml", CONFIG)

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    def run_program(self, *arguments):
        return subprocess.run([os.path.abspath(PROGRAM), *arguments], cwd=self.folder, timeout=100,
                              capture_output=True, text=True, check=False)

    def test_success_is_0_and_stdout_has_only_json(self):
        result = self.run_program("train", "config.yaml", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(report["trials"][0]["state"], "done")
        self.assertIn("done", result.stderr)

    def test_a_failed_trial_is_1(self):
        result = self.run_program("train", "config.yaml", "train.learning_rate=9e5",
                                  "train.max_grad_norm=0", "train.max_steps=20")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("not finite", result.stdout)

    def run_on_terminal(self, kind, *arguments):
        """The program's output to a terminal of a kind, as one text."""
        terminal, other_end = pty.openpty()
        process = subprocess.Popen([os.path.abspath(PROGRAM), *arguments], cwd=self.folder,
                                   stdin=other_end, stdout=other_end, stderr=other_end,
                                   env={**os.environ, "TERM": kind})
        os.close(other_end)
        text = b""
        try:
            while part := os.read(terminal, 4096):
                text += part
        except OSError:  # how the end of a terminal reads
            pass
        os.close(terminal)
        self.assertEqual(process.wait(timeout=60), 0, text)
        return text.decode()

    def test_progress_is_drawn_in_place_on_a_terminal(self):
        text = self.run_on_terminal("xterm", "train", "config.yaml", "train.max_steps=300")
        self.assertIn("trials ended, ", text)
        self.assertIn("\x1b[J", text)
        self.assertIn("Outputs: runs/run", text.split("\x1b[J")[-1])

    def test_progress_and_tables_fit_the_terminal(self):
        sweep = ("sweep={method: random, run_cap: 3, parameters: {"
                 "train.learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform_values}, "
                 "model.dropout: {min: 0, max: 0.3}, train.weight_decay: {min: 0, max: 0.1}}}")
        text = self.run_on_terminal("xterm", "train", "config.yaml", "train.max_steps=200", sweep)
        lines = re.sub("\x1b\\[[0-9]*[A-Z]", "\n", text).replace("\r", "").split("\n")
        titles = [line for line in lines if line.startswith("  trial ")]
        self.assertIn("tokens/s", titles[0])
        self.assertIn("eval loss", titles[-1])
        rows = [line for line in lines if re.match("  (trial|t[012]|memory|cpu:0|host) ", line)]
        self.assertGreater(len(rows), 8)
        for line in rows:
            self.assertLessEqual(len(line), 80, line)
        piped = self.run_program("results", "runs/run").stdout
        self.assertIn("  learning_rate=", piped)  # the long name, in the last column
        top = self.run_program("results", "runs/run", "--top", "1").stdout
        self.assertIn("  and 2 more\n", top)

    def test_no_escapes_on_simple_terminals(self):
        on_dumb = self.run_on_terminal("dumb", "train", "config.yaml")
        piped = self.run_program("train", "config.yaml", "--overwrite").stdout
        for text in (on_dumb, piped):
            self.assertNotIn("\x1b", text)
            self.assertIn("running", text)

    def complete(self, *words):
        """The words that bash offers for the last word."""
        script = self.run_program("completion", "bash").stdout
        self.write("completion.bash", script)
        quoted = " ".join(f"'{word}'" for word in words)
        shell = (f"source completion.bash; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; "
                 "_spillway; printf '%s\\n' \"${COMPREPLY[@]}\"")
        result = subprocess.run(["bash", "-c", shell], cwd=self.folder, timeout=60,
                                capture_output=True, text=True, check=True)
        self.assertEqual(result.stderr, "")
        return result.stdout.split()

    def test_bash_completion(self):
        script = self.run_program("completion", "bash").stdout
        subprocess.run(["bash", "-n"], input=script, text=True, timeout=60, check=True)
        os.mkdir(os.path.join(self.folder, "configs"))
        self.assertEqual(self.complete("spillway", "tr"), ["train"])
        self.assertIn("results", self.complete("spillway", ""))
        self.assertEqual(self.complete("spillway", "train", "--o"), ["--overwrite"])
        self.assertEqual(self.complete("spillway", "train", "con"), ["config.yaml", "configs"])
        self.assertEqual(self.complete("spillway", "train", "config.yaml", "train.data_p"),
                         ["train.data_parallel="])
        for start, key in (("model.hidden_", ["model.hidden_act=", "model.hidden_size=",
                                              "model.hidden_sizes="]),
                           ("data.a", ["data.augment="]), ("data.d", ["data.dtype="])):
            self.assertEqual(sorted(self.complete("spillway", "train", "config.yaml", start)), key)
        self.assertEqual(self.complete("spillway", "train", "config.yaml", "train.data_parallel", "=", "2"),
                         [])
        self.assertEqual(self.complete("spillway", "results", "con"), ["configs"])
        self.assertEqual(self.complete("spillway", "completion", ""), ["bash", "zsh"])

    def test_zsh_script_has_no_errors(self):
        script = self.run_program("completion", "zsh").stdout
        self.assertTrue(script.startswith("#compdef spillway\n"))
        self.assertIn("train.learning_rate=", script)
        if shutil.which("zsh") is None:
            self.skipTest("zsh is not there to check the syntax")
        subprocess.run(["zsh", "-n", "/dev/stdin"], input=script, text=True, timeout=60, check=True)

    def test_help_is_0(self):
        top = self.run_program("--help")
        for text in ("Examples:", "Outputs", "Exit codes:", "train", "plan", "results",
                     "completion"):
            self.assertIn(text, top.stdout)
        for command in ("train", "plan", "results", "completion"):
            result = self.run_program(command, "--help")
            self.assertEqual(result.returncode, 0)
            self.assertIn(f"Usage: spillway {command}", result.stdout)
            self.assertIn("Examples:\n  ", result.stdout)

    def test_version_equals_that_of_doctor(self):
        version = json.loads(self.run_program("doctor", "--json").stdout)["spillway_version"]
        self.assertEqual(self.run_program("--version").stdout, f"spillway {version}\n")

    def test_state_signal_works_before_libtorch_starts(self):
        process = subprocess.Popen([os.path.abspath(PROGRAM), "--help"], cwd=self.folder,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, "LD_DEBUG": "libs"})
        self.addCleanup(process.stderr.close)
        line = ""
        while "calling init: " not in line:  # of the first library
            line = process.stderr.readline()
            self.assertNotEqual(line, "", "no library starts")
        self.assertTrue(small_run.handles(process, signal.SIGUSR1))
        process.send_signal(signal.SIGUSR1)
        self.assertIn("libtorch", process.stderr.read())
        self.assertEqual(process.wait(timeout=60), 0)

    def test_state_signal_changes_nothing_else(self):
        arguments = ("train", "config.yaml", "--json", "--overwrite", "train.max_steps=400",
                     "train.eval_steps=0", "sweep={parameters: {seed: {values: [1, 2]}}}")
        quiet = json.loads(self.run_program(*arguments).stdout)
        with open(os.path.join(self.folder, "out.json"), "w", encoding="utf-8") as out:
            process = subprocess.Popen([os.path.abspath(PROGRAM), *arguments], cwd=self.folder,
                                       stdout=out, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        self.addCleanup(process.stderr.close)
        while not small_run.handles(process, signal.SIGUSR1):
            pass
        process.send_signal(signal.SIGUSR1)  # before there is a run
        text = line = ""
        while not line.startswith("  in flight "):
            line = process.stderr.readline()
            text += line
            self.assertNotEqual(line, "", text)
            if line == "  nothing is in flight\n":
                process.send_signal(signal.SIGUSR1)
        text += process.stderr.read()
        self.assertEqual(process.wait(timeout=60), 0, text)
        self.assertRegex(text, r"\n  0 +cpu +present +\S+ \S+ +1.00 MiB\n")
        for trial in ("seed=1", "seed=2"):
            self.assertRegex(text, rf"\n  {trial} +(running|waiting) +\d+/400 ")
        self.assertRegex(text, r" +(device 0|host) +seed=[12] +\d+ .* \d+\.\d{3} s\n")
        with open(os.path.join(self.folder, "out.json"), encoding="utf-8") as out:
            asked = json.load(out)
        self.assertEqual(*([(trial["weights_xxh3"], trial["final_loss"]) for trial in run["trials"]]
                           for run in (quiet, asked)))

    def test_interrupted_is_130_with_results(self):
        log = pathlib.Path(self.folder, "runs/run/events.jsonl")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process = subprocess.Popen(
                [os.path.abspath(PROGRAM), "train", "config.yaml", "train.max_steps=1000000000",
                 "--json", "--overwrite"],
                cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.addCleanup(process.kill)
            self.assertIn("running", process.stderr.readline())
            small_run.wait_for(process, lambda: '"event":"step"' in log.read_text())
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 130)
            self.assertIn("stopping: ", err)
            self.assertRegex(err, r"checkpoint written after step \d+\n")
            self.assertIn("Continue with: spillway resume 'runs/run'\n", err)
            self.assertEqual(json.loads(out)["trials"][0]["state"], "stopped")
            self.assertTrue(os.path.exists(os.path.join(self.folder, "runs/run/results.csv")))


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup's choice must not reach the program
    unittest.main()
