#!/usr/bin/env python3
"""Hosts that shard the state of a trial, each part on two of them (hosts.state: shadowed).
Usage: shadowed_hosts_test.py SPILLWAY TEXT"""

import json
import pathlib
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support/run"))
from hosts_case import FAST, GPT, LONG, LONGER, ONE_FAILS, Hosts  # noqa: E402
from small_run import wait_for  # noqa: E402

SHADOWED = "hosts.state=shadowed"
BF16 = ["train.dtype=bf16"]
PIECES = "model.pieces={attention: 2, mlp: 2, vocabulary: 2}"


class Bits(Hosts):
    def test_are_those_of_one_host(self):
        for number, changes in enumerate(([], BF16, [*BF16, "train.optimizer=sgd", PIECES],
                                          ["train.max_grad_norm=1e-3", "model.freeze=[h.0.*]"])):
            expected = self.alone(GPT, *changes)
            for size in (2, 3, 4) if number < 2 else (3,):
                hosts = self.begin(GPT, size, SHADOWED, *changes, out=f"run{number}-{size}")
                self.assertEqual(self.results(hosts), expected, (size, changes))

    def test_with_batch_normalization(self):
        config = self.resnet_on_random_digits()
        for number, changes in enumerate(([], BF16)):
            hosts = self.begin(config, 3, SHADOWED, *changes, out=f"run{number}")
            self.assertEqual(self.results(hosts), self.alone(config, *changes), changes)

    def test_each_moment_is_on_two_hosts(self):
        sizes = ["model.hidden_size=128", "model.num_hidden_layers=8", FAST]
        whole = self.plan(*sizes)["offload_moments_bytes"]
        parts = [self.plan(*sizes, "hosts.size=4", f"hosts.number={number}", SHADOWED)
                 for number in range(4)]
        moments = [part["offload_moments_bytes"] for part in parts]
        self.assertLess(abs(sum(moments) / (2 * whole) - 1), 0.05)
        self.assertLess(max(moments), 0.65 * whole)


class Losses(Hosts):
    def begin_and_lose(self, lost, sent=signal.SIGKILL, changes=(), size=3, out="run"):
        """No checkpoint is due before the loss. Returns the hosts that are left, and the steps that
        had been trained."""
        hosts = self.begin(LONG, size, SHADOWED, *changes, own=[["--json"]] * size, out=out)
        self.wait_for_steps(hosts[size - 1:], out)
        trained = self.steps(out)[-1]
        for host in lost:
            hosts[host].send_signal(sent)
        return [host for number, host in enumerate(hosts) if number not in lost], trained

    def require_no_lost_step(self, left, out, trained, expected):
        ends = self.end(left)
        self.assertEqual([code for code, _, _ in ends], [0] * len(left), ends)
        self.assertGreaterEqual(self.steps(out, "resumed")[0], trained)
        report = self.start("resume", self.folder / out, "hosts.size=1", "--json")
        self.assertEqual(self.results([report]), expected)
        steps = self.steps(out)
        self.assertEqual(steps, sorted(set(steps)), "no step is trained twice")

    def test_of_a_host_cost_no_step(self):
        for number, (size, lost, changes) in enumerate((
                (3, [1], []), (3, [2], BF16), (3, [0], []), (3, [0], BF16), (2, [1], []),
                (2, [0], BF16), (4, [3], [PIECES]))):
            out = f"run{number}"
            left, trained = self.begin_and_lose(lost, changes=changes, size=size, out=out)
            self.require_no_lost_step(left, out, trained, self.alone(LONG, FAST, *changes))

    def test_of_a_host_that_is_frozen_cost_no_step(self):
        hosts = self.begin(LONG, 3, SHADOWED, "hosts.timeout_s=3", own=[["--json"]] * 3)
        self.wait_for_steps(hosts)
        trained = self.steps("run")[-1]
        hosts[1].send_signal(signal.SIGSTOP)
        wait_for(hosts[0], lambda: '"event":"resumed"' in self.events())
        hosts[1].kill()
        self.require_no_lost_step([hosts[0], hosts[2]], "run", trained, self.alone(LONG, FAST))

    def test_one_after_the_other_cost_no_step(self):
        hosts = self.begin(LONGER, 4, SHADOWED, own=[["--json"]] * 4)
        for number, lost in enumerate((1, 0)):
            self.wait_for_steps(hosts[3:])
            hosts[lost].kill()
            wait_for(hosts[3], lambda: self.events().count('"event":"resumed"') > number)
        self.require_no_lost_step(hosts[2:], "run", 0, self.alone(LONGER, FAST))

    def test_of_both_that_have_a_part_cost_the_steps_since_the_checkpoint(self):
        """The control: of three hosts any two have a part that the third lacks."""
        left, trained = self.begin_and_lose([1, 2])
        self.assertEqual(self.results(left), self.alone(LONG, FAST))
        self.assertEqual(self.steps("run").count(trained), 2, "it is trained again")

    def test_while_others_save_cost_no_step(self):
        """Each step is saved, so there is always a checkpoint on its way."""
        config = {**LONG, "checkpoint": {"every_steps": 1}}
        expected = self.alone(config, FAST, *BF16)
        for lost in (1, 0):
            out = f"run{lost}"
            hosts = self.begin(config, 3, SHADOWED, *BF16, own=[["--json"]] * 3, out=out)
            wait_for(hosts[2], lambda: '"event":"saved"' in self.events(out))
            self.wait_for_steps(hosts[2:], out)
            trained = self.steps(out)[-1]
            hosts[lost].kill()
            self.require_no_lost_step(hosts[:lost] + hosts[lost + 1:], out, trained, expected)

    def test_of_a_device_are_repaired_in_place(self):
        hosts = self.begin(LONG, 2, SHADOWED, own=[[], [ONE_FAILS]])
        self.assertEqual(self.results(hosts), self.alone(LONG, FAST))
        self.assertIn('"event":"redone"', self.events())
        self.assertNotIn('"event":"resumed"', self.events())


class Guests(Hosts):
    def test_join_one_that_began_alone(self):
        self.join_one_that_began_alone(SHADOWED)

    def test_can_join(self):
        expected = self.alone(LONGER, FAST)
        first, join = self.begin_to_invite(LONGER, 2, SHADOWED)
        hosts = [first, self.start(*join)]
        self.wait_for_steps(hosts)
        hosts.append(self.start(*join))
        wait_for(first, lambda: '"event":"resumed"' in self.events())
        self.assertEqual(self.results(hosts), expected)
        steps = self.steps("run")
        self.assertEqual(steps, sorted(set(steps)), "no step is trained twice")

    def test_checkpoints_are_the_files_of_one_host(self):
        self.train_alone(GPT, *BF16)
        self.results(self.begin(GPT, 3, SHADOWED, *BF16))
        newest = [sorted((self.folder / out / "trials/small/checkpoints").iterdir())[-1]
                  for out in ("alone", "run")]
        for name in ("weights.safetensors", "moments.safetensors"):
            one, other = ((folder / name).read_bytes() for folder in newest)
            self.assertEqual(one, other, name)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
