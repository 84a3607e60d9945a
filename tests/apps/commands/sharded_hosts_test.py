#!/usr/bin/env python3
"""Hosts of which each has the moments of the weights that it updates alone (hosts.state: sharded).
Usage: sharded_hosts_test.py SPILLWAY TEXT"""

import json
import pathlib
import random
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support/run"))
from hosts_case import FAST, GPT, LONG, RESNET, TWO_SMALL, Hosts  # noqa: E402
from small_run import wait_for  # noqa: E402

SHARDED = "hosts.state=sharded"
SAVES = {**LONG, "checkpoint": {"every_steps": 4}}


class Bits(Hosts):
    def test_are_those_of_one_host(self):
        expected = self.alone(GPT)
        own = [["devices=[{memory: 16MiB}]"], [TWO_SMALL, "train.data_parallel=2"],
               ["devices=[{memory: 500KiB}]"], ["scheduling.order=shard_major"]]
        for size in (2, 3, 4):
            hosts = self.begin(GPT, size, SHARDED, own=own, out=f"run{size}")
            self.assertEqual(self.results(hosts), expected, f"{size} hosts")
        self.assertNotEqual(self.alone(GPT, "train.reduction_groups=2"), expected)

    def test_of_other_optimizers_types_and_adapters(self):
        for number, changes in enumerate((
                ["train.dtype=bf16", "train.gradient_dtype=bf16"],
                ["train.optimizer=sgd"],
                ["train.max_grad_norm=1e-3"],
                ["model.pieces={attention: 2, mlp: 2, vocabulary: 2}"])):
            expected = self.alone(GPT, *changes)
            hosts = self.begin(GPT, 3, SHARDED, *changes, out=f"run{number}")
            self.assertEqual(self.results(hosts), expected, changes)

    def test_with_batch_normalization(self):
        pixels = random.Random(1)
        lines = [",".join(str(pixels.randrange(17)) for _ in range(64)) + f",{i % 10}\n"
                 for i in range(120)]
        (self.folder / "digits.csv").write_text("".join(lines))
        config = {**RESNET, "data": {"format": "digits", "path": str(self.folder / "digits.csv"),
                                     "augment": "shift"}}
        self.assertEqual(self.results(self.begin(config, 2, SHARDED)), self.alone(config))

    def test_of_several_trials(self):
        config = {**GPT, "sweep": {"method": "grid",
                                   "parameters": {"train.learning_rate": {"values": [1e-3, 1e-4]}}}}
        self.assertEqual(self.results(self.begin(config, 2, SHARDED)), self.alone(config))


class Memory(Hosts):
    def plan(self, *overrides):
        done = self.end([self.start("plan", self.write(GPT), "--json", "model.hidden_size=128", FAST,
                                    *overrides)])[0]
        self.assertEqual(done[0], 0, done)
        return json.loads(done[1])["trials"][0]

    def test_of_moments_is_divided(self):
        whole = self.plan()["offload_moments_bytes"]
        replicated = self.plan("hosts.size=4")
        self.assertEqual(replicated["offload_moments_bytes"], whole)
        parts = [self.plan("hosts.size=4", f"hosts.number={number}", SHARDED)
                 for number in range(4)]
        for part in parts:
            self.assertLess(part["offload_moments_bytes"], 0.4 * whole)
            self.assertLess(part["offload_bytes"], replicated["offload_bytes"])
        self.assertLess(sum(part["offload_moments_bytes"] for part in parts), 1.1 * whole)


class Checkpoints(Hosts):
    def test_are_resumed_by_any_number_of_hosts(self):
        expected = self.alone(LONG, FAST)
        hosts = self.begin(LONG, 3, SHARDED)
        for resumed_by in (2, 3):
            self.wait_for_steps(hosts)
            hosts[0].send_signal(signal.SIGINT)
            ends = self.end(hosts)
            self.assertEqual([code for code, _, _ in ends], [130] + [1] * (len(hosts) - 1), ends)
            saved = self.steps("run", "saved")[-1]
            self.assertGreater(saved, 2, "stopping saves what was trained")
            hosts = self.begin(LONG, resumed_by, SHARDED, "resume=auto")
        self.wait_for_steps(hosts)
        hosts[0].send_signal(signal.SIGINT)
        self.end(hosts)
        self.assertEqual(self.results([self.start("resume", self.folder / "run", "hosts.size=1",
                                                  "--json", FAST)]), expected)

    def test_are_the_files_of_one_host(self):
        self.alone(GPT)
        self.results(self.begin(GPT, 3, SHARDED))
        files = [sorted((self.folder / out).glob("**/checkpoint*/**/*.safetensors"))
                 for out in ("alone", "run")]
        self.assertGreaterEqual(len(files[0]), 2)
        self.assertEqual([path.name for path in files[0]], [path.name for path in files[1]])
        for one, other in zip(*files):
            self.assertEqual(one.read_bytes(), other.read_bytes(), other)


class Failures(Hosts):
    def test_a_lost_host_costs_the_steps_since_the_checkpoint(self):
        expected = self.alone(SAVES, FAST)
        for lost, sent in (([1], signal.SIGKILL), ([2], signal.SIGTERM), ([0], signal.SIGKILL),
                           ([0, 1], signal.SIGKILL)):
            out = f"run{lost}{sent}"
            hosts = self.begin(SAVES, 3, SHARDED, own=[[], ["--json"], ["--json"]], out=out)
            wait_for(hosts[2], lambda: '"event":"saved"' in self.events(out))
            self.wait_for_steps(hosts[2:], out)
            for host in lost:
                hosts[host].send_signal(sent)
            left = [host for number, host in enumerate(hosts) if number not in lost]
            ends = self.end(left)
            self.assertEqual([code for code, _, _ in ends], [0] * len(left), ends)
            report = self.start("resume", self.folder / out, "hosts.size=1", "--json")
            self.assertEqual(self.results([report]), expected)
            self.assertGreater(min(self.steps(out, "resumed")), 3)

    def test_before_the_first_checkpoint_it_costs_all(self):
        expected = self.alone(LONG, FAST)
        hosts = self.begin(LONG, 3, SHARDED)
        self.wait_for_steps(hosts)
        hosts[1].kill()
        self.assertEqual(self.results([hosts[0], hosts[2]]), expected)

    def test_a_host_may_be_lost_while_others_save(self):
        """Each step is saved, so there is always a checkpoint on its way."""
        config = {**LONG, "checkpoint": {"every_steps": 1}}
        expected = self.alone(config, FAST)
        for lost in (1, 0):
            hosts = self.begin(config, 3, SHARDED, own=[[], ["--json"], []], out=f"run{lost}")
            wait_for(hosts[2], lambda: '"event":"saved"' in self.events(f"run{lost}"))
            self.wait_for_steps(hosts[2:], f"run{lost}")
            hosts[lost].kill()
            self.assertEqual(self.results(hosts[:lost] + hosts[lost + 1:]), expected)

    def test_stopping_while_a_checkpoint_is_written_saves_the_next_step(self):
        config = {**LONG, "checkpoint": {"every_steps": 1}}
        expected = self.alone(config, FAST)
        hosts = self.begin(config, 2, SHARDED)
        self.wait_for_steps(hosts)
        hosts[0].send_signal(signal.SIGINT)
        self.end(hosts)
        self.assertGreaterEqual(self.steps("run", "saved")[-1] + 2, self.steps("run")[-1])
        report = self.start("resume", self.folder / "run", "hosts.size=1", "--json", FAST)
        self.assertEqual(self.results([report]), expected)

    def test_all_hosts_fail_together_at_a_commit_that_follows_a_checkpoint(self):
        """The other trial goes on."""
        config = {**GPT, "checkpoint": {"every_steps": 1},
                  "sweep": {"parameters": {"train.learning_rate": {"values": [999999, 1e-3]}}}}
        ends = self.end(self.begin(config, 2, SHARDED))
        self.assertEqual([code for code, _, _ in ends], [1, 1], ends)
        bad, good = json.loads(ends[0][1])["trials"]
        self.assertEqual((bad["state"], good["state"]), ("failed", "done"))
        self.assertGreater(bad["steps"], 0)

    def test_trials_cannot_be_paused(self):
        hosts = self.begin(LONG, 2, SHARDED)
        self.wait_for_steps(hosts)
        [log] = self.logs_of_failed([self.start("pause", self.folder / "run", "small")])
        self.assertIn("cannot be paused while they shard its state", log)
        hosts[0].kill()

    def test_a_host_can_join(self):
        expected = self.alone(LONG, FAST)
        first, join = self.begin_to_invite(LONG, 2, SHARDED)
        hosts = [first, self.start(*join)]
        for joined in range(2):
            self.wait_for_steps(hosts)
            hosts.append(self.start(*join))
            wait_for(first, lambda: self.events().count('"event":"resumed"') > joined)
        self.assertGreater(min(self.steps("run", "resumed")), 2)
        self.assertEqual(self.results(hosts), expected)

    def test_a_lost_device_does_not_end_the_step_of_the_others(self):
        expected = self.alone(LONG, FAST)
        two = ("devices=[{memory: 16MiB, imitate: {fault: {kind: fail, after_ops: 40}}}, "
               "{memory: 16MiB}]")
        hosts = self.begin(LONG, 2, SHARDED, own=[[], [two]])
        self.assertEqual(self.results(hosts), expected)
        self.assertIn('"event":"redone"', self.events())

    def test_hosts_begin_without_those_that_do_not_come(self):
        hosts = self.begin(GPT, 4, "hosts.timeout_s=3", "hosts.start_size=2", SHARDED,
                           own=[[], ["hosts.endpoint=127.0.0.1:1"], [], []])
        self.assertEqual(self.results([hosts[0], *hosts[2:]]), self.alone(GPT))

    def test_all_hosts_have_the_same_state(self):
        for own in ([[SHARDED], []], [[], [SHARDED]]):
            for log in self.logs_of_failed(self.begin(GPT, 2, own=own)):
                self.assertIn("hosts.state: is ", log)
                self.assertIn("write the same on all hosts", log)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
