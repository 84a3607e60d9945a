#!/usr/bin/env python3
"""Hosts under torchrun, of which one is lost or joins, with the bits of one host.
Usage: torchrun_test.py SPILLWAY TEXT TORCH, TORCH: folder of the PyTorch whose torchrun is used.
Skipped if this Python cannot import it.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support/run"))
import small_run  # noqa: E402

PROGRAM, TEXT = (os.path.abspath(argument) for argument in sys.argv[1:3])
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(pathlib.Path(sys.argv[3]).resolve().parent)}
STEPS = "train.max_steps=400"
SKIPPED = 77


def descendants(pid):
    """Process numbers, parents first."""
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:  # it has ended
        return []
    return [pid, *(found for child in children for found in descendants(int(child)))]


def write_token(folder):
    """The override that names it. torchrun's hosts listen at the address of this machine."""
    path = pathlib.Path(folder) / "token"
    path.touch(mode=0o600)
    path.write_text("0123456789abcdef" * 4)
    return f"hosts.token_file={path}"


class Machine:
    """A machine of a group: an agent of torchrun and the host that it starts."""

    def __init__(self, endpoint, run, most, *overrides, keeps_store):
        self.agent = subprocess.Popen(
            [*TORCHRUN, f"--nnodes=1:{most}", "--nproc-per-node=1", "--rdzv-backend=c10d",
             f"--rdzv-endpoint={endpoint}", "--max-restarts=3",
             "--rdzv-conf=last_call_timeout=12,keep_alive_interval=1", "--monitor-interval=0.2",
             "--no-python", *run.train_command("resume=auto", STEPS, small_run.SLOW, *overrides)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**ENVIRONMENT,
                 "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "0" if keeps_store else "1"})
        # The agent that is started first has torchrun's store.
        small_run.wait_for(self.agent, lambda: small_run.is_open(endpoint))

    def kill(self):
        if self.agent.poll() is None:
            for pid in descendants(self.agent.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.agent.communicate()

    def end(self):
        """What it printed. It must succeed."""
        out = self.agent.communicate(timeout=200)[0]
        if self.agent.returncode != 0:
            raise AssertionError(out)
        return out


class UnderTorchrun(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_folder = small_run.SmallRun(PROGRAM, TEXT, pathlib.Path(folder.name) / "run")
        alone = small_run.SmallRun(PROGRAM, TEXT, pathlib.Path(folder.name) / "alone")
        small_run.finish(alone.train_command(STEPS))
        self.expected = alone.weights()
        self.machines = []
        self.token = write_token(folder.name)
        self.addCleanup(lambda: [machine.kill() for machine in self.machines])
        self.endpoint = small_run.free_endpoint()

    def start(self, most, *overrides, keeps_store):
        self.machines.append(Machine(self.endpoint, self.run_folder, most, self.token, *overrides,
                                     keeps_store=keeps_store))
        return self.machines[-1]

    def wait_for_steps(self, machine, number):
        small_run.wait_for(machine.agent, lambda: (self.run_folder.folder / "events.jsonl").exists() and
                           len(self.run_folder.events("step")) >= number)

    @staticmethod
    def ends(machines):
        """What they print together."""
        return "".join(machine.end() for machine in machines)

    def test_the_others_go_on_without_a_lost_host(self):
        """Afterwards, torchrun waits five minutes for the lost machine."""
        machines = [self.start(3, keeps_store=True) for _ in range(3)]
        self.wait_for_steps(machines[0], 10)
        machines[2].kill()
        small_run.wait_for(machines[0].agent, lambda: self.run_folder.events("end"))
        self.assertEqual(len(self.run_folder.events("lost")), 1)
        self.assertEqual(self.run_folder.events("restart"), [])
        self.assertEqual(self.run_folder.weights(), self.expected)

    def test_too_few_hosts_are_started_again(self):
        machines = [self.start(3, "hosts.min_size=3", keeps_store=True) for _ in range(3)]
        self.wait_for_steps(machines[0], 10)
        machines.pop().kill()
        printed = self.ends(machines)
        self.assertRegex(printed, "host [12] is lost or has stopped")
        self.assertIn(" of 2; host 0 writes", printed)
        self.assertEqual(len(self.run_folder.events("restart")), 1)
        self.assertEqual(self.run_folder.weights(), self.expected)

    def test_a_host_may_join_later(self):
        machines = [self.start(2, keeps_store=False)]
        self.wait_for_steps(machines[0], 10)
        machines.append(self.start(2, keeps_store=False))
        self.assertIn(" of 2; host 0 writes", self.ends(machines))
        self.assertEqual(len(self.run_folder.events("restart")), 1)
        self.assertEqual(self.run_folder.weights(), self.expected)


if __name__ == "__main__":
    if subprocess.run([*TORCHRUN, "--help"], capture_output=True, env=ENVIRONMENT,
                      check=False).returncode != 0:
        print("this Python cannot run torchrun")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
