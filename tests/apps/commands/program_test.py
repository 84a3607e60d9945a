#!/usr/bin/env python3
"""The program as a process: exit codes, streams, signals. Usage: program_test.py PROGRAM"""

import glob
import json
import os
import pty
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

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

    def test_libraries_do_not_print_into_the_document(self):
        talkative = {**os.environ, "MKL_VERBOSE": "1", "DNNL_VERBOSE": "1"}
        result = subprocess.run([os.path.abspath(PROGRAM), "train", "config.yaml", "--json"],
                                cwd=self.folder, timeout=100, capture_output=True, text=True,
                                check=False, env=talkative)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads(result.stdout)["trials"][0]["state"], "done")
        if "VERBOSE" not in result.stderr:
            self.skipTest("this LibTorch has no library that prints")

    def test_failures_are_json_documents(self):
        for kind, code, arguments in (("usage", 2, ["train"]),
                                      ("configuration", 2, ["train", "config.yaml", "seed=x"]),
                                      ("configuration", 2, ["results", "nowhere"]),
                                      ("does_not_fit", 3, ["train", "config.yaml",
                                                           "devices=[{memory: 8KiB}]"])):
            with self.subTest(arguments):
                result = self.run_program(*arguments, "--json")
                self.assertEqual(result.returncode, code)
                error = json.loads(result.stdout)["error"]
                self.assertEqual((error["kind"], error["exit_code"]), (kind, code))
                self.assertIn("spillway: ", result.stderr)

    def run_in_shell(self, redirections, *arguments):
        words = " ".join(f"'{word}'" for word in (os.path.abspath(PROGRAM), *arguments))
        return subprocess.run(["bash", "-c", f"{words} {redirections}"], cwd=self.folder,
                              timeout=100, capture_output=True, text=True, check=False)

    def test_closed_descriptors_are_not_reused_for_files(self):
        for closed in (">&-", "<&- >&-", "<&- >&- 2>&-"):
            with self.subTest(closed):
                result = self.run_in_shell(closed, "train", "config.yaml", "--overwrite")
                self.assertEqual(result.returncode, 0, result.stderr)
                for name in ("lock", "journal.sqlite", "events.jsonl", "results.csv"):
                    with open(os.path.join(self.folder, "runs/run", name), "rb") as file:
                        self.assertNotIn(b"Best trial", file.read(), name)

    def test_two_runs_have_the_same_bits(self):
        runs = [self.run_program("train", "config.yaml", "--json", "--overwrite") for _ in range(2)]
        first, second = (json.loads(run.stdout)["trials"][0] for run in runs)
        for key in ("weights_xxh3", "final_loss", "eval_loss"):
            self.assertEqual(first[key], second[key])
        other = json.loads(self.run_program("train", "config.yaml", "--json", "--overwrite",
                                            "seed=2").stdout)["trials"][0]
        self.assertNotEqual(first["weights_xxh3"], other["weights_xxh3"])

    def test_a_failed_trial_is_1(self):
        result = self.run_program("train", "config.yaml", "train.learning_rate=9e5",
                                  "train.max_grad_norm=0", "train.max_steps=20")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("not finite", result.stdout)

    def test_a_killed_run_can_be_read(self):
        process = subprocess.Popen(
            [os.path.abspath(PROGRAM), "train", "config.yaml", "train.max_steps=1000000000"],
            cwd=self.folder, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.assertIn("running", process.stdout.readline())
        state = json.loads(self.run_program("results", "runs/run", "--json").stdout)["state"]
        again = self.run_program("train", "config.yaml", "--overwrite")
        process.kill()
        process.wait()
        self.assertEqual(state, "running")
        self.assertEqual(again.returncode, 2)
        self.assertIn(f"is in use by process {process.pid}", again.stderr)
        result = self.run_program("results", "runs/run")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("was interrupted or killed", result.stdout)
        self.assertIn("running", result.stdout)

    def test_a_run_killed_at_its_first_checkpoint_can_be_resumed(self):
        small = ("train.max_steps=200", "checkpoint.every_steps=1")
        whole = self.run_program("train", "config.yaml", "--json", "output_dir=whole", *small)
        process = subprocess.Popen([os.path.abspath(PROGRAM), "train", "config.yaml", *small],
                                   cwd=self.folder, stdout=subprocess.DEVNULL)
        checkpoints = os.path.join(self.folder, "runs/run/trials/run/checkpoints/*[0-9]")
        while not glob.glob(checkpoints) and process.poll() is None:
            pass
        process.kill()
        process.wait()
        resumed = subprocess.run(
            [os.path.abspath(PROGRAM), "resume", os.path.join(self.folder, "runs/run"), "--json"],
            cwd="/", timeout=100, capture_output=True, text=True, check=False)
        self.assertEqual(resumed.returncode, 0, resumed.stderr)  # from any working directory
        self.assertEqual(json.loads(resumed.stdout)["trials"][0]["weights_xxh3"],
                         json.loads(whole.stdout)["trials"][0]["weights_xxh3"])

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

    def test_waiting_uses_no_cpu(self):
        # Copies over a slow link dominate; there is next to nothing to compute.
        self.write("slow.yaml", """
devices: [{memory: 1MiB, imitate: {link: 1MiB/s}}]
model: {num_hidden_layers: 2, hidden_size: 96, num_attention_heads: 1, max_position_embeddings: 1}
data: {path: text.txt, eval_fraction: 0}
train: {batch_size: 1, virtual_nodes: 1, max_steps: 2}
""")
        process = subprocess.Popen([os.path.abspath(PROGRAM), "train", "slow.yaml"],
                                   cwd=self.folder, stdout=subprocess.PIPE, text=True)
        with process.stdout as out:
            self.assertIn("running", out.readline())
            begin, cpu = time.monotonic(), self.cpu_s(process.pid)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            self.assertIn("Outputs", out.read())
        process.wait()
        waited = time.monotonic() - begin
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime) - cpu
        self.assertGreater(waited, 1, "nothing was waited for")
        self.assertLess(used, 0.15 * waited)

    @staticmethod
    def cpu_s(pid):
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            ticks = file.read().rsplit(")", 1)[1].split()[11:13]
        return sum(int(tick) for tick in ticks) / os.sysconf("SC_CLK_TCK")

    def test_usage_and_configuration_are_2(self):
        for arguments in ([], ["train"], ["train", "nowhere.yaml"], ["trian", "config.yaml"],
                          ["train", "config.yaml", "--jsn"], ["train", "config.yaml", "train.data_parallel"],
                          ["train", "config.yaml", "train.data_parallel=0"]):
            with self.subTest(arguments):
                result = self.run_program(*arguments)
                self.assertEqual(result.returncode, 2)
                self.assertEqual(result.stdout, "")
                self.assertNotEqual(result.stderr, "")

    @unittest.skipUnless(os.path.exists("/dev/full"), "this system has no /dev/full")
    def test_lost_output_is_1(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([os.path.abspath(PROGRAM), "plan", "config.yaml", "--json"], cwd=self.folder,
                                    stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot write all of standard output", result.stderr)
        with open("/dev/full", "w") as full:
            result = subprocess.run([os.path.abspath(PROGRAM), "--help"], cwd=self.folder,
                                    stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(result.returncode, 1)

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

    def test_too_small_budget_is_3(self):
        result = self.run_program("train", "config.yaml", "devices=[{memory: 8KiB}]")
        self.assertEqual(result.returncode, 3)
        self.assertIn("does not fit", result.stderr)

    def run_on_small_disk(self, size, *arguments):
        """Runs the program with the folder `homes` on a disk of its own."""
        script = (f"mount -t tmpfs -o size={size} none homes && "
                  + " ".join(f"'{word}'" for word in (os.path.abspath(PROGRAM), *arguments)))
        return subprocess.run(["unshare", "--map-root-user", "--mount", "sh", "-c", script],
                              cwd=self.folder, timeout=100, capture_output=True, text=True,
                              check=False)

    def test_a_full_disk_is_reported_before_training(self):
        os.mkdir(os.path.join(self.folder, "homes"))
        arguments = ("train", "config.yaml", "offload_path=homes", "--json")
        ample = self.run_on_small_disk("8m", *arguments)
        if "unshare" in ample.stderr or "mount" in ample.stderr:
            self.skipTest("no disk can be mounted: " + ample.stderr)
        self.assertEqual(ample.returncode, 0, ample.stderr)
        in_memory = json.loads(self.run_program("train", "config.yaml", "--json",
                                                "--overwrite").stdout)
        self.assertEqual(json.loads(ample.stdout)["trials"][0]["weights_xxh3"],
                         in_memory["trials"][0]["weights_xxh3"])
        # First without memory for one home, then with memory for one, but not for all that
        # host_memory allows at once.
        sweep = "sweep={parameters: {seed: {values: [1, 2, 3, 4]}}}"
        for size, more in ((64, "name=one"), (768, sweep)):
            full = self.run_on_small_disk(f"{size}k", *arguments, "output_dir=new", more)
            self.assertEqual(full.returncode, 3, full.stdout)
            self.assertIn("offloaded training state in 'homes' does not fit: it needs ", full.stderr)
            self.assertIn(f" ({size << 10} bytes); free some there", full.stderr)
            self.assertFalse(os.path.exists(os.path.join(self.folder, "new")))
        waiting = self.run_on_small_disk("768k", *arguments, "--overwrite", sweep,
                                         "host_memory=512KiB")
        self.assertEqual(waiting.returncode, 0, waiting.stderr)

    @staticmethod
    def takes_state_signal(process):
        with open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
            caught = next(line.split()[1] for line in file if line.startswith("SigCgt"))
        return int(caught, 16) >> (signal.SIGUSR1 - 1) & 1

    def test_state_signal_works_before_libtorch_starts(self):
        begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        process = subprocess.Popen([os.path.abspath(PROGRAM), "--help"], cwd=self.folder,
                                   stdout=subprocess.DEVNULL)
        while process.poll() is None and not self.takes_state_signal(process):
            pass
        process.send_signal(signal.SIGSTOP)
        early = self.cpu_s(process.pid)
        process.send_signal(signal.SIGUSR1)
        process.send_signal(signal.SIGCONT)
        self.assertEqual(process.wait(timeout=60), 0)
        all_of_it = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begin
        self.assertLess(early, 0.5 * all_of_it)

    def test_state_signal_changes_nothing_else(self):
        arguments = ("train", "config.yaml", "--json", "--overwrite", "train.max_steps=400",
                     "train.eval_steps=0", "sweep={parameters: {seed: {values: [1, 2]}}}")
        quiet = json.loads(self.run_program(*arguments).stdout)
        with open(os.path.join(self.folder, "out.json"), "w", encoding="utf-8") as out:
            process = subprocess.Popen([os.path.abspath(PROGRAM), *arguments], cwd=self.folder,
                                       stdout=out, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        self.addCleanup(process.stderr.close)
        while not self.takes_state_signal(process):
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
        for number in (signal.SIGINT, signal.SIGTERM):
            process = subprocess.Popen(
                [os.path.abspath(PROGRAM), "train", "config.yaml", "train.max_steps=1000000000",
                 "--json", "--overwrite"],
                cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.addCleanup(process.kill)
            self.assertIn("running", process.stderr.readline())
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 130)
            self.assertIn("stopping: ", err)
            self.assertRegex(err, r"checkpoint written after step \d+\n")
            self.assertIn("Continue with: spillway resume 'runs/run'\n", err)
            self.assertEqual(json.loads(out)["trials"][0]["state"], "stopped")
            self.assertTrue(os.path.exists(os.path.join(self.folder, "runs/run/results.csv")))


if __name__ == "__main__":
    unittest.main()
