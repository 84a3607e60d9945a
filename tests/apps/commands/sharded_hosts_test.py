#!/usr/bin/env python3
"""Hosts of which each has only the moments of the weights that it updates, in bf16 also only their
float32 values (hosts.state: sharded).
Usage: sharded_hosts_test.py SPILLWAY TEXT"""

import json
import pathlib
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support/run"))
from hosts_case import (FAST, GPT, LONG, LONGER, NEVER_COMES, ONE_FAILS,  # noqa: E402
                        TWO_SMALL, Hosts)
from small_run import free_endpoint, wait_for  # noqa: E402

SHARDED = "hosts.state=sharded"
BF16 = ["train.dtype=bf16"]
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

    def test_of_other_optimizers_types_and_frozen_layers(self):
        for number, changes in enumerate((
                [*BF16, "train.gradient_dtype=bf16"],
                [*BF16, "train.optimizer=sgd", "checkpoint.keep=0"],
                [*BF16, "model.freeze=[wte.*, h.0.*]"],
                [*BF16, "model.pieces={attention: 2, mlp: 2, vocabulary: 2}"],
                ["train.optimizer=sgd"],
                ["train.max_grad_norm=1e-3"],
                ["model.freeze=[wte.*, h.0.*]"],
                ["model.pieces={attention: 2, mlp: 2, vocabulary: 2}"])):
            expected = self.alone(GPT, *changes)
            hosts = self.begin(GPT, 3, SHARDED, *changes, out=f"run{number}")
            self.assertEqual(self.results(hosts), expected, changes)

    def test_with_batch_normalization(self):
        config = self.resnet_on_random_digits()
        for number, changes in enumerate(([], BF16)):
            hosts = self.begin(config, 2, SHARDED, *changes, out=f"run{number}")
            self.assertEqual(self.results(hosts), self.alone(config, *changes), changes)

    def test_of_several_trials(self):
        config = {**GPT, "sweep": {"method": "grid",
                                   "parameters": {"train.learning_rate": {"values": [1e-3, 1e-4]}}}}
        self.assertEqual(self.results(self.begin(config, 2, SHARDED)), self.alone(config))


class Memory(Hosts):
    def plan(self, *overrides):
        return super().plan("model.hidden_size=128", FAST, *overrides)

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

    def test_of_masters_is_divided_if_devices_read_copies(self):
        whole = self.plan(*BF16)["offload_weights_bytes"]
        self.assertEqual(self.plan("hosts.size=4", *BF16)["offload_weights_bytes"], whole)
        parts = [self.plan("hosts.size=4", f"hosts.number={number}", SHARDED, *BF16)
                 for number in range(4)]
        copy = self.plan()["offload_weights_bytes"] / 2
        masters = sum(part["offload_weights_bytes"] - copy for part in parts)
        self.assertLess(abs(masters / (whole - copy) - 1), 0.1)


class Checkpoints(Hosts):
    def saved(self, out="run"):
        """Steps of checkpoints that were written."""
        events = [json.loads(line) for line in self.events(out).splitlines()]
        return [event["step"] for event in events
                if event["event"] == "saved" and not event.get("reason")]

    def test_are_resumed_by_any_number_of_hosts(self):
        expected = self.alone(LONG, FAST, *BF16)
        saved = 0
        for number, size in enumerate((3, 2, 4)):
            hosts = self.begin(LONG, size, SHARDED, *BF16, *(["resume=auto"] if number else []))
            self.wait_for_steps(hosts)
            trained = self.steps("run")[-1]
            hosts[0].send_signal(signal.SIGINT)
            ends = self.end(hosts)
            self.assertEqual([code for code, _, _ in ends], [130] + [1] * (size - 1), ends)
            self.assertGreaterEqual(self.saved()[-1], trained, "stopping saves what was trained")
            self.assertGreater(self.saved()[-1], saved)
            saved = self.saved()[-1]
        self.assertEqual(self.results([self.start("resume", self.folder / "run", "hosts.size=1",
                                                  "--json", FAST)]), expected)

    def test_are_written_if_all_hosts_are_stopped_at_once(self):
        """As by torchrun and srun."""
        for sent in (signal.SIGTERM, signal.SIGINT):
            hosts = self.begin(LONG, 3, SHARDED, out=f"run{sent}")
            self.wait_for_steps(hosts, f"run{sent}")
            trained = self.steps(f"run{sent}")[-1]
            for host in reversed(hosts):
                host.send_signal(sent)
            self.logs_of_failed(hosts)
            self.assertGreaterEqual(self.saved(f"run{sent}")[-1], trained)

    def test_are_the_files_of_one_host(self):
        for out, changes in (("run", []), ("run16", BF16)):
            self.train_alone(GPT, *changes)
            self.results(self.begin(GPT, 3, SHARDED, *changes, out=out))
            trials = [self.folder / each / "trials/small" for each in ("alone", out)]
            newest = [sorted((trial / "checkpoints").iterdir())[-1] for trial in trials]
            for name in ("weights.safetensors", "moments.safetensors"):
                one, other = ((folder / name).read_bytes() for folder in newest)
                self.assertEqual(one, other, name)
            one, other = ((trial / "weights.safetensors").read_bytes() for trial in trials)
            self.assertEqual(one, other)


class Failures(Hosts):
    def test_a_lost_host_costs_the_steps_since_the_checkpoint(self):
        alone = [self.alone(SAVES, FAST), self.alone(SAVES, FAST, *BF16)]
        for lost, sent, changes in (([1], signal.SIGKILL, []), ([2], signal.SIGTERM, BF16),
                                    ([0], signal.SIGKILL, BF16), ([0, 1], signal.SIGKILL, [])):
            out, expected = f"run{lost}{sent}", alone[len(changes)]
            hosts = self.begin(SAVES, 3, SHARDED, *changes,
                               own=[[], ["--json"], ["--json"]], out=out)
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
        expected = self.alone(config, FAST, *BF16)
        for lost in (1, 0):
            hosts = self.begin(config, 3, SHARDED, *BF16, own=[[], ["--json"], []],
                               out=f"run{lost}")
            wait_for(hosts[2], lambda: '"event":"saved"' in self.events(f"run{lost}"))
            self.wait_for_steps(hosts[2:], f"run{lost}")
            hosts[lost].kill()
            self.assertEqual(self.results(hosts[:lost] + hosts[lost + 1:]), expected)

    def test_a_host_that_leaves_costs_no_step_that_was_trained(self):
        expected = self.alone(LONG, FAST)
        hosts = self.begin(LONG, 3, SHARDED)
        self.wait_for_steps(hosts)
        trained = self.steps("run")[-1]
        hosts[2].send_signal(signal.SIGTERM)
        self.assertEqual(self.results(hosts[:2]), expected)
        self.assertGreaterEqual(self.steps("run", "resumed")[0], trained)

    def test_no_host_takes_the_place_of_one_that_is_stopped_twice(self):
        slow = {**LONG, "devices": [{"memory": "16MiB", "imitate": {"link": "1MiB/s"}}]}
        hosts = self.begin(slow, 3, SHARDED)
        wait_for(hosts[1], lambda: self.num_steps("run") > 1)
        hosts[0].send_signal(signal.SIGINT)
        wait_for(hosts[1], lambda: not (self.folder / "run/lock").read_text())
        hosts[0].send_signal(signal.SIGINT)
        for log in self.logs_of_failed(hosts)[1:]:
            self.assertIn("host 0 has stopped; its own output says why", log)

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
        hosts = self.begin(LONGER, 2, SHARDED)
        self.wait_for_steps(hosts)
        [log] = self.logs_of_failed([self.start("pause", self.folder / "run", "small")])
        self.assertIn("cannot be paused while they shard its state", log)
        hosts[0].kill()

    def test_a_host_can_join(self):
        expected = self.alone(LONGER, FAST)
        first, join = self.begin_to_invite(LONGER, 2, SHARDED)
        hosts = [first, self.start(*join)]
        for joined in range(2):
            self.wait_for_steps(hosts)
            hosts.append(self.start(*join))
            wait_for(first, lambda: self.events().count('"event":"resumed"') > joined)
        self.assertGreater(min(self.steps("run", "resumed")), 2)
        self.assertEqual(self.results(hosts), expected)

    def test_hosts_join_one_that_began_alone(self):
        self.join_one_that_began_alone(SHARDED)

    def test_a_host_that_loses_a_device_repeats_the_step_with_the_others(self):
        """Also while a checkpoint is written, which then fails."""
        for every, changes in ((1000, []), (1, BF16)):
            config, out = {**LONG, "checkpoint": {"every_steps": every}}, f"run{every}"
            hosts = self.begin(config, 2, SHARDED, *changes, own=[[], [ONE_FAILS]], out=out)
            self.assertEqual(self.results(hosts), self.alone(LONG, FAST, *changes))
            self.assertIn('"event":"redone"', self.events(out))
            self.assertNotIn('"event":"resumed"', self.events(out))

    def test_hosts_begin_without_those_that_do_not_come(self):
        hosts = self.begin(GPT, 4, "hosts.start_size=2", SHARDED,
                           own=[["hosts.timeout_s=15"], NEVER_COMES, [], []])
        self.assertEqual(self.results([hosts[0], *hosts[2:]]), self.alone(GPT))

    def test_final_weights_that_cannot_be_written_are_in_the_last_checkpoint(self):
        expected = self.alone(LONG, FAST, *BF16)
        weights = self.folder / "run/trials/small/weights.safetensors"
        hosts = self.begin(LONG, 3, SHARDED, *BF16)
        wait_for(hosts[0], weights.parent.exists)
        (weights / "in the way").mkdir(parents=True)
        code, _, log = self.end(hosts)[0]
        self.assertEqual(code, 1, log)
        self.assertIn("weights.safetensors: Is a directory", log)
        (weights / "in the way").rmdir()
        weights.rmdir()
        endpoint = free_endpoint()
        first = self.start("resume", self.folder / "run", "--retry-failed", "--json",
                           "hosts.size=2", f"hosts.endpoint={endpoint}")
        self.assertEqual(self.results([first, self.start("join", endpoint)]), expected)

    def test_all_hosts_have_the_same_state(self):
        for own in ([[SHARDED], []], [[], [SHARDED]]):
            for log in self.logs_of_failed(self.begin(GPT, 2, own=own)):
                self.assertIn("hosts.state: is ", log)
                self.assertIn("write the same on all hosts", log)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
