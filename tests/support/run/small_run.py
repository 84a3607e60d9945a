"""A small run of the program, for tests that disturb it."""

import json
import pathlib
import re
import socket
import subprocess
import time

CONFIG = {
    "name": "small",
    "devices": [{"memory": "16MiB"}],
    "model": {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2,
              "max_position_embeddings": 16, "dropout": 0.1},
    "train": {"batch_size": 8, "virtual_nodes": 4, "max_steps": 200},
    "checkpoint": {"every_steps": 2},
}
FAST = "devices=[{memory: 16MiB}]"
# Fixes the duration of steps on any machine, so that a test can act before the last one.
SLOW = "devices=[{memory: 16MiB, imitate: {link: 20MiB/s}}]"


class SmallRun:
    """A run in `folder`, from a configuration beside it."""

    def __init__(self, program, text, folder):
        self.program, self.folder = program, pathlib.Path(folder)
        self.config = self.folder.with_suffix(".yaml")
        self.config.write_text(json.dumps({**CONFIG, "data": {"path": str(text)}}))
        self.checkpoints = self.folder / "trials/small/checkpoints"

    def train_command(self, *overrides):
        return [self.program, "train", str(self.config), f"output_dir={self.folder}", *overrides]

    def resume_command(self, *overrides):
        return [self.program, "resume", str(self.folder), *overrides]

    def weights(self, trial="small"):
        return (self.folder / f"trials/{trial}/weights.safetensors").read_bytes()

    def events(self, kind):
        """Those that are written; the last line may be only begun."""
        *log, _ = (self.folder / "events.jsonl").read_text().split("\n")
        return [event for event in map(json.loads, log) if event["event"] == kind]

    def generations(self):
        """The names, ascending."""
        if not self.checkpoints.exists():
            return []
        return sorted(path.name for path in self.checkpoints.iterdir()
                      if re.fullmatch("[0-9]{12}", path.name))


def free_endpoint():
    """HOST:PORT of this machine, where nothing listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


def handles(process, number):
    """Whether it has installed a handler of the signal, as it does when it starts."""
    [caught] = re.findall(r"SigCgt:\s*(\w+)", pathlib.Path(f"/proc/{process.pid}/status").read_text())
    return bool(int(caught, 16) >> (number - 1) & 1)


def is_open(endpoint):
    name, port = endpoint.split(":")
    with socket.socket() as connection:
        return connection.connect_ex((name, int(port))) == 0


def start(command):
    """A process whose output lines can be read while it runs."""
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(command):
    """The output of a command, which must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    if done.returncode != 0:
        raise AssertionError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def wait_for(process, condition):
    """Waits for the condition; fails if the process ends before it holds."""
    while not condition():
        if process.poll() is not None:
            raise AssertionError("ended too early: " + process.stdout.read())
        time.sleep(0.01)
