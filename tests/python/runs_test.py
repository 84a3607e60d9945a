"""The package `spillway`: runs in folders, and the command beside it."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import torch

import spillway as sp

COMMAND = [str(pathlib.Path(sys.executable).parent / "spillway")]
STEPS = 12
LONG = 800  # of runs that are interrupted


def config(folder, **train):
    text = pathlib.Path(folder) / "text"
    text.write_bytes(bytes(range(256)) * 40)
    return {
        "name": "tiny",
        "output_dir": f"{folder}/run",
        "devices": [{"memory": "64MiB"}],
        "model": {"family": "gpt", "hidden_size": 16, "num_hidden_layers": 1,
                  "num_attention_heads": 2, "max_position_embeddings": 16},
        "data": {"path": str(text)},
        "train": {"batch_size": 8, "max_steps": STEPS, **train},
        "checkpoint": {"every_steps": 10},
    }


def command(*arguments):
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False,
                          timeout=300)


def bytes_read():
    return int(pathlib.Path("/proc/self/io").read_text().split()[1])


def hashes(run):
    return [trial["weights_xxh3"] for trial in run.trials]


class RunsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_trains_a_sweep_as_the_command_does(self):
        document = config(self.folder)
        document["sweep"] = {"parameters": {"train.learning_rate": {"values": [0.01, 0.001]}}}
        run = sp.train(document, progress=False)
        self.assertEqual((run.state, len(run.trials)), ("ended", 2))
        file = pathlib.Path(self.folder) / "config.yaml"
        file.write_text(json.dumps({**document, "output_dir": f"{self.folder}/other"}))
        self.assertEqual(command("train", str(file)).returncode, 0)
        self.assertEqual(hashes(run), hashes(sp.open(f"{self.folder}/other")))
        self.assertEqual(run.best["name"], sp.open(f"{self.folder}/other").best["name"])

    def test_overrides_values(self):
        run = sp.train(config(self.folder), {"train.max_steps": 3}, output_dir=f"{self.folder}/b",
                       progress=False)
        self.assertEqual((run.folder.name, run.trials[0]["steps"]), ("b", 3))

    def test_goes_on_where_a_killed_command_was(self):
        long = config(self.folder, max_steps=LONG)
        expected = hashes(sp.train(long, output_dir=f"{self.folder}/whole", progress=False))
        file = pathlib.Path(self.folder) / "config.yaml"
        file.write_text(json.dumps(long))
        with subprocess.Popen([*COMMAND, "train", str(file)], stdout=subprocess.DEVNULL) as killed:
            self._wait_for_steps(3)
            killed.kill()
        self.assertEqual(sp.open(f"{self.folder}/run").state, "unfinished")
        run = sp.resume(f"{self.folder}/run", progress=False)
        self.assertEqual(hashes(run), expected)

    def test_stops_at_ctrl_c_and_the_command_goes_on(self):
        long = config(self.folder, max_steps=LONG)
        expected = hashes(sp.train(long, output_dir=f"{self.folder}/whole", progress=False))

        def interrupt():
            self._wait_for_steps(2)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with self.assertRaises(KeyboardInterrupt):
            sp.train(long, progress=False)
        thread.join()
        self.assertEqual(sp.open(f"{self.folder}/run").trials[0]["state"], "stopped")
        self.assertEqual(command("resume", f"{self.folder}/run").returncode, 0)
        self.assertEqual(hashes(sp.open(f"{self.folder}/run")), expected)

    def test_reads_the_file_of_a_model_once_to_check_it(self):
        """And the tensors of it to make the model, also when there is nothing to do."""
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding, self.head = torch.nn.Embedding(256, 8), torch.nn.Linear(8, 256)
                self.register_buffer("table", torch.ones(1 << 20))

            def forward(self, tokens):
                return self.head(self.embedding(tokens)) + self.table.mean()

        path = pathlib.Path(self.folder) / "net.spw"
        sp.from_torch(Model(), torch.zeros(4, 16, dtype=torch.int64), path=path,
                      targets="next_token")
        document = {**config(self.folder), "model": {"family": "torch", "path": str(path)},
                    "resume": "auto"}
        sp.train(document, progress=False)
        for again in (lambda: sp.resume(f"{self.folder}/run", progress=False),
                      lambda: sp.train(document, progress=False)):
            before = bytes_read()
            again()
            self.assertLess((bytes_read() - before) / path.stat().st_size, 2)

    def test_goes_on_when_a_host_joins(self):
        long = config(self.folder, max_steps=LONG)
        expected = hashes(sp.train(long, output_dir=f"{self.folder}/whole", progress=False))
        with socket.create_server(("127.0.0.1", 0)) as free:
            endpoint = f"127.0.0.1:{free.getsockname()[1]}"
        joined = []

        def join():
            self._wait_for_steps(3)
            joined.append(command("join", endpoint))

        thread = threading.Thread(target=join)
        thread.start()
        run = sp.train(long, {"hosts.start_size": 1, "hosts.endpoint": endpoint}, progress=False)
        thread.join()
        self.assertEqual([end.returncode for end in joined], [0], joined)
        self.assertEqual(hashes(run), expected)
        events = pathlib.Path(self.folder, "run/events.jsonl").read_text(encoding="utf-8")
        self.assertIn('"event":"resumed"', events)

    def test_refuses_what_it_cannot_train(self):
        with self.assertRaises(sp.ConfigError) as raised:
            sp.train(config(self.folder, batch_size=0), progress=False)
        self.assertEqual(raised.exception.field, "train.batch_size")
        with self.assertRaises(sp.ConfigError):
            sp.open(f"{self.folder}/nothing")
        with self.assertRaises(sp.DoesNotFit):
            sp.train(config(self.folder), {"devices[0].memory": "8KiB"}, progress=False)
        self.assertFalse(pathlib.Path(f"{self.folder}/run").exists())

    def _wait_for_steps(self, steps):
        log = pathlib.Path(self.folder) / "run" / "events.jsonl"
        until = time.monotonic() + 120
        while time.monotonic() < until:
            if log.exists() and log.read_text().count('"event":"step"') >= steps:
                return
            time.sleep(0.01)
        self.fail("the run did not begin")


if __name__ == "__main__":
    unittest.main()
