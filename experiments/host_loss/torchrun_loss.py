"""How fast PyTorch's DDP goes on under torchrun when a process or a machine is lost."""

import contextlib
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import host_processes
import spillway_run

SCRIPT = pathlib.Path(__file__).resolve().parent / "torchrun_gpt.py"
SHAPE = {"blocks": 2, "width": 32, "heads": 2, "positions": 16, "batch": 12, "dropout": 0.1,
         "steps": 50}
# Otherwise, workers that are started again find the addresses of the lost ones in torchrun's store.
ENVIRONMENT = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
SIZE = 3  # processes
BEFORE = 20  # steps


class Agents:
    """Of torchrun, each with its options. Their workers write into the folder."""

    def __init__(self, text, folder, of_agents):
        self.steps = pathlib.Path(folder) / "steps"
        self.agents = [subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--max-restarts=3", *options,
             str(SCRIPT), json.dumps(SHAPE), text, folder],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
            for options in of_agents]

    @staticmethod
    def workers(agent):
        """Their process numbers."""
        path = pathlib.Path(f"/proc/{agent.pid}/task/{agent.pid}/children")
        return [int(child) for child in path.read_text().split()] if path.exists() else []

    def ends(self):
        """Of the steps: (process number of rank 0, seconds)."""
        lines = self.steps.read_text().splitlines() if self.steps.exists() else []
        return [(int(pid), float(end_s)) for pid, end_s in map(str.split, lines)]

    def wait_for(self, condition, limit_s=300):
        end = time.monotonic() + limit_s
        while not condition(self.ends()):
            if time.monotonic() > end:
                raise spillway_run.Failed("torchrun does not train")
            time.sleep(0.05)

    def kill(self):
        """Stopped first: agents do not start other workers meanwhile."""
        for agent in self.agents:
            agent.send_signal(signal.SIGSTOP)
        for agent in self.agents:
            for pid in self.workers(agent):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            agent.kill()
            agent.communicate()


def processes(text, folder):
    return Agents(text, folder, [["--standalone", f"--nproc-per-node={SIZE}"]])


def machines(text, folder):
    """An agent and a worker each. They go on with one less."""
    endpoint = f"127.0.0.1:{host_processes.free_port()}"
    return Agents(text, folder, [[f"--nnodes={SIZE - 1}:{SIZE}", "--nproc-per-node=1",
                                  "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}",
                                  f"--rdzv-conf=is_host={int(number == 0)}"]
                                 for number in range(SIZE)])


def lose_a_process(group, first):
    """`first`: rank 0, which is spared."""
    os.kill(next(pid for pid in group.workers(group.agents[0]) if pid != first), signal.SIGKILL)


def lose_a_machine(group, first):
    """Not the first, which has torchrun's store."""
    agent = next(each for each in group.agents[1:] if first not in group.workers(each))
    for pid in [agent.pid, *group.workers(agent)]:
        os.kill(pid, signal.SIGKILL)


KINDS = {"a worker": (processes, lose_a_process),
         "an agent and its worker": (machines, lose_a_machine)}


def next_step_s(kind, text):
    """From the loss to the next step that is trained after it, less a step."""
    start, lose = KINDS[kind]
    with tempfile.TemporaryDirectory() as folder:
        group = start(text, folder)
        try:
            group.wait_for(lambda ends: len(ends) >= BEFORE)
            first = group.ends()[-1][0]
            lost_s = time.monotonic()
            lose(group, first)
            group.wait_for(lambda ends: ends[-1][0] != first)
        finally:
            group.kill()
        ends = group.ends()
    before = [end_s for pid, end_s in ends if pid == first]
    after = next(end_s for pid, end_s in ends if pid != first)
    step_s = statistics.median(b - a for a, b in zip(before, before[1:]))
    return after - lost_s - step_s
