#!/usr/bin/env python3
"""Hosts whose GPUs are connected by NCCL train to the same bits as one host.
Usage: nccl_hosts_test.py SPILLWAY TEXT [TEST]; skipped with fewer than two GPUs."""

import json
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support/run"))
import small_run  # noqa: E402
from hosts_case import GPT, PROGRAM, Hosts  # noqa: E402

SKIPPED = 77
NUM_GPUS = len(re.findall("^GPU [0-9]", small_run.finish([PROGRAM, "doctor"]), re.MULTILINE))
# Its sums are large enough for NCCL.
CONFIG = {**GPT, "model": {**GPT["model"], "hidden_size": 128},
          "devices": [{"kind": "cuda", "index": 0, "memory": "32MiB"}]}
NCCL = ("hosts.backend=nccl", "hosts.trust_network=true")
IS_STAND_IN = "fake" in pathlib.Path(PROGRAM).name


def on_gpu(index):
    return f"devices=[{{kind: cuda, index: {index}, memory: 32MiB}}]"


class NcclHosts(Hosts):
    def two(self, config, *overrides, out="run"):
        """A host on each of two GPUs. A stand-in of NCCL writes a report, if it is used."""
        path, endpoint = self.write(config), small_run.free_endpoint()
        return [self.start("train", path, f"output_dir={self.folder / out}", "hosts.size=2",
                           f"hosts.number={number}", f"hosts.endpoint={endpoint}", on_gpu(number),
                           *(["--json"] if number == 0 else []), *overrides,
                           NCCL_DEBUG="INFO", NCCL_DEBUG_FILE=str(self.folder / f"{out}.log{number}"),
                           SPILLWAY_FAKE_NCCL_REPORT=str(self.folder / f"{out}.nccl{number}"))
                for number in range(2)]

    def num_with_nccl(self, out="run"):
        """Hosts that have used it."""
        return len([*self.folder.glob(f"{out}.{'nccl' if IS_STAND_IN else 'log'}*")])

    def reports(self, out="run"):
        """Of the stand-in, by host: bytes sent over NCCL, and calls that it does not allow."""
        return [tuple(map(int, path.read_text().split()))
                for path in sorted(self.folder.glob(f"{out}.nccl*"))]

    def test_train_to_the_same_bits(self):
        alone = self.alone(CONFIG)
        self.assertEqual(self.results(self.two(CONFIG, *NCCL)), alone)
        self.assertEqual(self.num_with_nccl(), 2)
        self.assertEqual(self.results(self.two(CONFIG, "hosts.trust_network=true", out="gloo")), alone)
        self.assertEqual(self.num_with_nccl("gloo"), 0)
        other = self.results(self.two(CONFIG, *NCCL, "seed=5", out="other"))
        self.assertNotEqual(other, alone)

    @unittest.skipUnless(IS_STAND_IN, "NCCL counts nothing")
    def test_send_what_is_planned(self):
        plan = json.loads(small_run.finish(
            [PROGRAM, "plan", str(self.write(CONFIG)), "--json", "hosts.size=2"]))
        planned = plan["trials"][0]["sent_bytes_per_step"] * CONFIG["train"]["max_steps"]
        self.results(self.two(CONFIG, *NCCL))
        for sent, misused in self.reports():
            self.assertEqual(misused, 0)
            self.assertGreater(sent, 0.9 * planned)
            self.assertLess(sent, planned)  # small parts take the other way

    def test_may_have_a_token(self):
        own = self.token("token")
        self.assertEqual(self.results(self.two(CONFIG, *NCCL, own)), self.alone(CONFIG))

    def test_go_on_without_one_that_is_killed(self):
        config = {**CONFIG, "train": {**CONFIG["train"], "max_steps": 150, "eval_steps": 0}}
        hosts = self.two(config, *NCCL)
        log = self.folder / "run/events.jsonl"
        small_run.wait_for(hosts[0], lambda: log.exists() and '"event":"step"' in log.read_text())
        hosts[1].kill()
        hosts[1].communicate()
        self.assertEqual(self.results(hosts[:1]), self.alone(config))
        self.assertIn('"event":"lost"', log.read_text())

    def test_wait_for_one_with_the_same_backend(self):
        path, endpoint = self.write(CONFIG), small_run.free_endpoint()

        def start(number, backend):
            return self.start("train", path, f"output_dir={self.folder / 'run'}", "hosts.size=2",
                              f"hosts.number={number}", f"hosts.endpoint={endpoint}", on_gpu(number),
                              "--json", "hosts.trust_network=true", f"hosts.backend={backend}")
        first = start(0, "nccl")
        self.assertIn("hosts.backend: is gloo, and host 0 has nccl; write the same on all hosts",
                      self.logs_of_failed([start(1, "gloo")])[0])
        second = start(1, "nccl")
        self.assertEqual(self.results([first]), self.alone(CONFIG))
        self.assertEqual(second.wait(100), 0)

    def test_refuse_one_that_does_not_trust_the_network_before_they_wait_for_it(self):
        endpoint = small_run.free_endpoint()
        first = self.start("train", self.write(CONFIG), "--json", f"output_dir={self.folder / 'run'}",
                           "hosts.size=2", f"hosts.endpoint={endpoint}", *NCCL)
        log = self.logs_of_failed([self.start("join", endpoint, on_gpu(1))])[0]
        self.assertIn("hosts.backend: is nccl, which neither authenticates nor encrypts", log)
        joined = self.start("join", endpoint, on_gpu(1), "hosts.trust_network=true")
        self.assertEqual(self.results([first, joined]), self.alone(CONFIG))

    def test_trust_their_network_and_have_gpus(self):
        for overrides, expected in (
                (["hosts.backend=nccl"], "hosts.backend: is nccl, which neither authenticates nor encrypts"),
                ([*NCCL, "devices=[{memory: 16MiB}]"], "hosts.backend: is nccl, but no device is a GPU")):
            for command in ("train", "plan"):
                log = self.logs_of_failed([self.start(command, self.write(CONFIG), "hosts.size=2",
                                                      "hosts.endpoint=127.0.0.1:1", *overrides)])[0]
                self.assertIn(expected, log)


if __name__ == "__main__":
    if NUM_GPUS < 2:
        print("fewer than two GPUs; spillway doctor lists them")
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
