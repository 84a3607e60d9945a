"""Hosts as processes of the program, which is the first argument of the test; the second is a text."""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

from small_run import CONFIG, free_endpoint, wait_for

PROGRAM, TEXT = (os.path.abspath(argument) for argument in sys.argv[1:3])
GPT = {**CONFIG, "data": {"path": TEXT},
       "train": {"batch_size": 12, "virtual_nodes": 6, "reduction_groups": 6, "max_steps": 6,
                 "eval_steps": 3, "eval_batches": 2}}
RESNET = {"name": "small", "devices": [{"memory": "16MiB"}],
          "model": {"family": "resnet", "hidden_sizes": [8, 16], "depths": [1, 1]},
          "data": {"format": "digits"},
          "train": {"optimizer": "sgd", "batch_size": 12, "virtual_nodes": 6, "max_steps": 4}}
TWO_SMALL = "devices=[{memory: 600KiB}, {memory: 600KiB}]"
FAST = "devices=[{memory: 16MiB}]"
NEVER_COMES = ["hosts.endpoint=127.0.0.1:1", "hosts.timeout_s=1"]  # a host
ONE_FAILS = ("devices=[{memory: 16MiB, imitate: {fault: {kind: fail, after_ops: 40}}}, "
             "{memory: 16MiB}]")
LONG = {**GPT, "train": {**GPT["train"], "max_steps": 60, "eval_steps": 0},
        "devices": [{"memory": "16MiB", "imitate": {"link": "20MiB/s"}}],
        "checkpoint": {"every_steps": 1000}}
# Long enough for other processes to start meanwhile.
LONGER = {**LONG, "train": {**LONG["train"], "max_steps": 160},
          "devices": [{"memory": "16MiB", "imitate": {"link": "5MiB/s"}}]}


class Hosts(unittest.TestCase):
    known = {}  # results of one host

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.processes = []
        self.addCleanup(self.end_all)

    def end_all(self):
        for process in self.processes:
            process.kill()
            process.communicate()

    def write(self, config, name="config"):
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps(config))
        return path

    def start(self, *arguments, **environment):
        self.processes.append(subprocess.Popen(
            [PROGRAM, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, cwd=self.folder, env={**os.environ, **environment}))
        return self.processes[-1]

    def begin(self, config, size, *overrides, own=(), out="run", environments=()):
        """Hosts 0 to size - 1. `own`: further overrides of each host."""
        path, endpoint = self.write(config), free_endpoint()
        return [self.start("train", path, f"output_dir={self.folder / out}", f"hosts.size={size}",
                           f"hosts.number={number}", f"hosts.endpoint={endpoint}",
                           *(["--json"] if number == 0 else []), *overrides,
                           *(own[number] if own else []),
                           **(environments[number] if environments else {}))
                for number in range(size)]

    def end(self, hosts):
        """(exit code, stdout, stderr) of each."""
        ends = []
        for host in hosts:
            out, log = host.communicate(timeout=200)
            ends.append((host.returncode, out, log))
        return ends

    def results(self, hosts):
        """By trial, what every bit of a run shows in."""
        ends = self.end(hosts)
        self.assertEqual([code for code, _, _ in ends], [0] * len(hosts), ends)
        return {trial["name"]: (trial["weights_xxh3"], trial["final_loss"], trial["eval_loss"])
                for trial in json.loads(ends[0][1])["trials"]}

    def train_alone(self, config, *overrides):
        """One host, in the folder `alone`."""
        return self.results([self.start("train", self.write(config), "--json", "--overwrite",
                                        f"output_dir={self.folder / 'alone'}", *overrides)])

    def alone(self, config, *overrides):
        """The results of one host, which trains once for all tests."""
        key = json.dumps([config, overrides])
        if key not in self.known:
            self.known[key] = self.train_alone(config, *overrides)
        return self.known[key]

    def plans(self, *overrides):
        """Of the trials of GPT."""
        done = self.end([self.start("plan", self.write(GPT), "--json", *overrides)])[0]
        self.assertEqual(done[0], 0, done)
        return json.loads(done[1])["trials"]

    def plan(self, *overrides):
        return self.plans(*overrides)[0]

    def resnet_on_random_digits(self):
        pixels = random.Random(1)
        lines = [",".join(str(pixels.randrange(17)) for _ in range(64)) + f",{i % 10}\n"
                 for i in range(120)]
        (self.folder / "digits.csv").write_text("".join(lines))
        return {**RESNET, "data": {"format": "digits", "path": str(self.folder / "digits.csv"),
                                   "augment": "shift"}}

    def token(self, name, secret="0123456789abcdef" * 4):
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(secret + "\n")
        return f"hosts.token_file={path}"

    def logs_of_failed(self, hosts):
        ends = self.end(hosts)
        for code, _, log in ends:
            self.assertNotEqual(code, 0, log)
        return [log for _, _, log in ends]

    def events(self, out="run"):
        log = self.folder / out / "events.jsonl"
        return log.read_text() if log.exists() else ""

    def num_steps(self, out):
        return self.events(out).count('"event":"step"')

    def wait_for_steps(self, hosts, out="run"):
        begin = self.num_steps(out)
        wait_for(hosts[0], lambda: self.num_steps(out) > begin + 3)

    def steps(self, out, kind="step"):
        events = [json.loads(line) for line in self.events(out).splitlines()]
        return [event["step"] for event in events if event["event"] == kind]

    def begin_to_invite(self, config, size, *overrides):
        """Host 0, and the command of hosts that join."""
        endpoint = free_endpoint()
        first = self.start("train", self.write(config), "--json", f"hosts.size={size}",
                           f"output_dir={self.folder / 'run'}", f"hosts.endpoint={endpoint}",
                           *overrides)
        return first, ["join", endpoint, FAST]

    def join_one_that_began_alone(self, *overrides):
        """Two hosts, one after the other; then the first of them is killed."""
        expected = self.alone(LONGER, FAST)
        first, join = self.begin_to_invite(LONGER, 1, "hosts.start_size=1", *overrides)
        hosts = [first]
        self.wait_for_steps(hosts)
        for joined in (1, 2):
            hosts.append(self.start(*join))
            wait_for(first, lambda: self.events().count('"event":"resumed"') == joined)
            self.wait_for_steps(hosts)
        hosts.pop(1).kill()
        self.assertEqual(self.results(hosts), expected)
        self.assertGreater(min(self.steps("run", "resumed")), 2)  # no step was lost
