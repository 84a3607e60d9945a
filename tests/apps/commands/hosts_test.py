#!/usr/bin/env python3
"""Several hosts train together, each a process of the program, with the bits of one.
Usage: hosts_test.py SPILLWAY TEXT"""

import json
import pathlib
import signal
import socket
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support/run"))
from hosts_case import (FAST, GPT, LONG, LONGER, NEVER_COMES, ONE_FAILS, PROGRAM,  # noqa: E402
                        TEXT, TWO_SMALL, Hosts)
from small_run import free_endpoint, handles, is_open, wait_for  # noqa: E402


SLOW_NETWORK = "hosts.network_rate=100kB/s"  # for plans: models are cut for exchanges


class Bits(Hosts):
    def test_are_those_of_one_host(self):
        expected = self.alone(GPT)
        own = [["devices=[{memory: 16MiB}]"], [TWO_SMALL, "train.data_parallel=2"],
               ["devices=[{memory: 500KiB}]"], ["scheduling.order=shard_major"]]
        for size in (2, 3, 4):
            hosts = self.begin(GPT, size, own=own, out=f"run{size}")
            # Host 3 of four has one group, which is one lane.
            self.assertEqual(self.results(hosts), expected, f"{size} hosts")
        self.assertNotEqual(self.alone(GPT, "train.reduction_groups=2"), expected)

    def test_with_exchanges_under_compute(self):
        of_two = ["hosts.size=2", SLOW_NETWORK]
        self.assertGreater(self.plan(*of_two)["num_shards"], 2)
        self.assertEqual(self.plan(*of_two)["order"], "shard_major")
        roomy = [*of_two, "devices=[{memory: 1GiB}]"]
        self.assertGreater(self.plan(*roomy)["num_shards"], 2)
        # The last one has boundaries that need more than a quarter of the home.
        for whole in ([SLOW_NETWORK], ["hosts.size=2"], [*of_two, "scheduling.order=vn_major"],
                      [*of_two, "devices=[{memory: 1MiB}]"], [*roomy, "train.batch_size=768"]):
            self.assertEqual(self.plan(*whole)["num_shards"], 1, whole)
        expected = self.alone(GPT)
        self.assertGreater(self.plan("hosts.size=3", SLOW_NETWORK)["num_shards"], 2)
        self.assertEqual([trial["shards_stay"] for trial in self.plans(
            *of_two, "sweep={parameters: {train.learning_rate: {values: [1e-3, 2e-3]}}}")],
            [True, False])
        for state in ("replicated", "sharded", "shadowed"):
            hosts = self.begin(GPT, 3, SLOW_NETWORK, f"hosts.state={state}", out=f"run {state}")
            self.assertEqual(self.results(hosts), expected, state)

    def test_in_bf16(self):
        changes = ["train.dtype=bf16", "train.gradient_dtype=bf16"]
        expected = self.alone(GPT, *changes)
        self.assertEqual(self.results(self.begin(GPT, 3, *changes)), expected)

    def test_with_batch_normalization(self):
        config = self.resnet_on_random_digits()
        self.assertEqual(self.results(self.begin(config, 2)), self.alone(config))

    def test_of_several_trials(self):
        config = {**GPT, "sweep": {"method": "grid",
                                   "parameters": {"train.learning_rate": {"values": [1e-3, 1e-4]}}}}
        expected = self.alone(config)
        self.assertEqual(len(expected), 2)
        self.assertEqual(self.results(self.begin(config, 2)), expected)


class Starts(Hosts):
    def test_by_torchrun(self):
        endpoint, path = free_endpoint(), self.write(GPT)
        name, port = endpoint.split(":")
        hosts = [self.start("train", path, "--json", f"output_dir={self.folder / 'run'}",
                            WORLD_SIZE="2", RANK=str(rank), MASTER_ADDR=name, MASTER_PORT=port)
                 for rank in range(2)]
        self.assertEqual(self.results(hosts), self.alone(GPT))

    def test_alone_by_torchrun(self):
        host = self.start("train", self.write(GPT), "--json", f"output_dir={self.folder / 'run'}",
                          "hosts.start_size=1", WORLD_SIZE="1", RANK="0", MASTER_ADDR="127.0.0.1",
                          MASTER_PORT="29400")
        self.assertEqual(self.results([host]), self.alone(GPT))

    def test_by_srun(self):
        endpoint, path = free_endpoint(), self.write(GPT)
        hosts = [self.start("train", path, "--json", f"output_dir={self.folder / 'run'}",
                            f"hosts.endpoint={endpoint}", SLURM_NTASKS="2", SLURM_PROCID=str(number),
                            SLURM_LAUNCH_NODE_IPADDR="127.0.0.1")
                 for number in range(2)]
        self.assertEqual(self.results(hosts), self.alone(GPT))

    def test_by_hand(self):
        endpoint = free_endpoint()
        first = self.start("train", self.write(GPT), "--json", f"output_dir={self.folder / 'run'}",
                           "hosts.size=3", f"hosts.endpoint={endpoint}")
        joined = [self.start("join", endpoint, "devices=[{memory: 8MiB}]") for _ in range(2)]
        self.assertEqual(self.results([first, *joined]), self.alone(GPT))
        outputs = [path.name for path in self.folder.iterdir() if path.is_dir()]
        self.assertEqual(set(outputs) - {"alone"}, {"run"})  # of host 0


class Plans(Hosts):
    def test_need_no_other_host(self):
        alone = self.plan()
        self.assertEqual(alone["sent_bytes_per_step"], 0)
        own = [self.plan("hosts.size=2", f"hosts.number={number}") for number in range(2)]
        self.assertEqual([sum(trial["groups"]) for trial in own], [3, 3])
        for trial in own:  # half of its sums to the owner of that half, and its half of the whole
            self.assertGreater(trial["sent_bytes_per_step"], 4 * trial["parameters"])

    def test_find_no_strategies(self):
        log = self.logs_of_failed([self.start(
            "plan", self.write(GPT), "hosts.size=2", "--search", self.folder / "strategy.yaml")])[0]
        self.assertIn("train.strategy: cannot be used with several hosts", log)

    def test_are_of_known_hosts(self):
        for overrides in (["hosts.size=2", "hosts.number=2"], ["hosts.size=0"]):
            self.logs_of_failed([self.start("plan", self.write(GPT), *overrides)])

    def test_without_an_endpoint_do_not_train(self):
        log = self.logs_of_failed([self.start("train", self.write(GPT), "hosts.size=2")])[0]
        self.assertIn("hosts.endpoint: is missing, but there are 2 hosts", log)
        self.assertFalse((self.folder / "runs").exists())


class Tokens(Hosts):
    def test_change_no_bit(self):
        # Each host has a copy.
        own = [[self.token(f"token{number}")] for number in range(3)]
        self.assertEqual(self.results(self.begin(GPT, 3, own=own)), self.alone(GPT))

    def test_are_needed_to_join(self):
        endpoint, token = free_endpoint(), self.token("token")
        first = self.start("train", self.write(GPT), "--json", f"output_dir={self.folder / 'run'}",
                           "hosts.size=2", f"hosts.endpoint={endpoint}", token)
        for own, reason in (([], "has a token, and this one has none"),
                            ([self.token("other", "x" * 64)], "has another token")):
            log = self.logs_of_failed([self.start("join", endpoint, *own)])[0]
            self.assertIn(f"hosts.token_file: differs: a host at {endpoint} {reason}; give all hosts the same "
                          "file", log)
        # Host 0 waits for the right one.
        joined = self.start("join", endpoint, self.token("copy"))
        self.assertEqual(self.results([first, joined]), self.alone(GPT))

    def test_are_the_same_on_all_hosts(self):
        token, other = self.token("token"), self.token("other", "x" * 64)
        for own, reason in (([[token], []], "has a token, and this one has none"),
                            ([[token], [other]], "has another token"),
                            ([[], [token]], "has no token")):
            hosts = self.begin(GPT, 2, own=own)
            self.assertIn(reason, self.logs_of_failed(hosts[1:])[0])
            hosts[0].kill()

    def test_must_be_secret(self):
        token = self.folder / "token"
        token.write_text("x" * 64)
        token.chmod(0o644)
        log = self.logs_of_failed([self.start("train", self.write(GPT), "hosts.size=2",
                                              "hosts.endpoint=127.0.0.1:1",
                                              f"hosts.token_file={token}")])[0]
        self.assertIn(f"hosts.token_file: is {token}, which other users may open; run: chmod 600",
                      log)

    def test_are_required_in_a_network(self):
        endpoint = free_endpoint().replace("127.0.0.1", "0.0.0.0")
        for command in (["train", self.write(GPT), "hosts.size=2", f"hosts.endpoint={endpoint}"],
                        ["join", endpoint]):
            log = self.logs_of_failed([self.start(*command)])[0]
            self.assertIn("hosts.token_file: is empty, and whoever reaches 0.0.0.0 could read the "
                          "training and change it", log)
        first = self.start("train", self.write(GPT), "--json", f"output_dir={self.folder / 'run'}",
                           "hosts.size=2", f"hosts.endpoint={endpoint}", "hosts.trust_network=true")
        joined = self.start("join", endpoint, "hosts.trust_network=true")
        self.assertEqual(self.results([first, joined]), self.alone(GPT))


class Failures(Hosts):
    def test_the_others_go_on_without_a_host_that_is_killed_or_leaves(self):
        expected = self.alone(LONG, FAST)
        for lost, sent in (([1], signal.SIGKILL), ([2], signal.SIGTERM), ([1, 2], signal.SIGKILL)):
            out = f"run{len(lost)}{sent}"
            hosts = self.begin(LONG, 3, SLOW_NETWORK, out=out)
            for host in lost:
                self.wait_for_steps(hosts, out)
                hosts[host].send_signal(sent)
            left = [host for number, host in enumerate(hosts) if number not in lost]
            self.assertEqual(self.results(left), expected)
            for host, (code, _, _) in zip(lost, self.end([hosts[host] for host in lost])):
                self.assertNotEqual(code, 0)
                self.assertIn(f'"host":{host}', self.events(out))

    def test_another_host_takes_the_place_of_host_0(self):
        expected = self.alone(LONG, FAST)
        for lost, at_once in (([0], True), ([0, 1], True), ([0, 1], False)):
            out = f"run{len(lost)}{at_once}"
            hosts = self.begin(LONG, 3, own=[[], ["--json"], ["--json"]], out=out)
            for number in lost:
                if number == 0 or not at_once:
                    begin = self.num_steps(out)
                    wait_for(hosts[2], lambda: self.num_steps(out) > begin + 3)
                hosts[number].kill()
            self.assertEqual(self.results(hosts[len(lost):]), expected)
            steps = self.steps(out)
            # Host 0 may be killed between a step and its event; the next one resumes from there.
            self.assertEqual(set(steps) | set(self.steps(out, "resumed")), set(range(1, 61)))
            self.assertLessEqual(len(steps), 60 + len(lost), "more than the open step was repeated")
            rows = (self.folder / out / "trials/small/metrics.csv").read_text().splitlines()
            self.assertEqual([int(row.split(",")[0]) for row in rows[1:]], list(range(1, 61)))

    def test_the_next_host_0_measures_and_simulates_nothing(self):
        cache = self.folder / "cache"
        hosts = self.begin(LONG, 2, own=[[], ["--json"]],
                           environments=[{"XDG_CACHE_HOME": str(cache)}] * 2)
        self.wait_for_steps(hosts)
        measured = (cache / "spillway/pilot.json").read_bytes()
        hosts[0].kill()
        self.assertEqual(self.results(hosts[1:]), self.alone(LONG, FAST))
        self.assertEqual((cache / "spillway/pilot.json").read_bytes(), measured)
        [restart] = [json.loads(line) for line in self.events().splitlines()
                     if '"event":"restart"' in line]
        self.assertIsNone(restart["planned"])

    def test_a_host_that_joined_takes_the_place_of_host_0(self):
        expected = self.alone(LONG, FAST)
        token = self.token("token")
        first, join = self.begin_to_invite(LONG, 3, token)
        joined = [self.start(*join, token) for _ in range(2)]
        wait_for(joined[0], lambda: self.num_steps("run") > 3)
        first.kill()
        for code, _, log in self.end(joined):
            self.assertEqual(code, 0, log)
            self.assertIn("this host goes on as host ", log)
        self.assertEqual(set(self.steps("run")) | set(self.steps("run", "resumed")),
                         set(range(1, 61)))
        report = self.start("resume", self.folder / "run", "hosts.size=1", "--json")
        self.assertEqual(self.results([report]), expected)

    def test_hosts_join_while_others_train(self):
        expected = self.alone(LONGER, FAST)
        token = self.token("token")
        first, join = self.begin_to_invite(LONGER, 2, token)
        hosts = [first]
        for joined in range(5):
            hosts.append(self.start(*join, token))
            wait_for(first, lambda: self.events().count('"event":"resumed"') == joined)
            self.wait_for_steps(hosts)
        [log] = self.logs_of_failed([self.start(*join, token)])
        self.assertIn("train.reduction_groups allows no more", log)
        hosts.pop(1).kill()
        self.assertEqual(self.results(hosts), expected)

    def test_hosts_join_one_that_began_alone(self):
        self.join_one_that_began_alone()

    def test_a_host_that_is_left_alone_can_be_joined(self):
        expected = self.alone(LONGER, FAST)
        hosts = self.begin(LONGER, 2, own=[[], ["--json"]])
        self.wait_for_steps(hosts)
        hosts[0].kill()
        line = next(line for line in hosts[1].stderr if "hosts meet again at " in line)
        endpoint = line.split("hosts meet again at ")[1].split(";")[0]
        joined = self.start("join", endpoint, FAST)
        self.assertEqual(self.results([hosts[1], joined]), expected)

    def test_what_hosts_cannot_share_is_refused_where_others_may_join(self):
        [log] = self.logs_of_failed(
            self.begin(GPT, 1, "hosts.start_size=1", "scheduling.sharing=fill"))
        self.assertIn("scheduling.sharing: must be none with several hosts", log)
        [log] = self.logs_of_failed(self.begin(GPT, 1, "hosts.start_size=1", "checkpoint.keep=0"))
        self.assertIn("hosts.start_size: lets others join, which needs checkpoints", log)

    def test_one_trial_of_a_host_that_others_may_join_can_be_stopped(self):
        sweep = {"parameters": {"train.learning_rate": {"values": [1e-3, 1e-4]}}}
        [host] = self.begin({**LONG, "sweep": sweep}, 1, "hosts.start_size=1")
        self.wait_for_steps([host])
        subprocess.run([PROGRAM, "stop", self.folder / "run", "learning_rate=0.001"], check=True)
        [(code, out, log)] = self.end([host])
        states = {trial["name"]: trial["state"] for trial in json.loads(out)["trials"]}
        self.assertEqual(states, {"learning_rate=0.001": "stopped", "learning_rate=0.0001": "done"}, log)

    def test_a_host_that_dies_while_it_joins_is_left_out(self):
        expected = self.alone(LONG, FAST)
        first, join = self.begin_to_invite(LONG, 2, "hosts.timeout_s=10")
        hosts = [first, self.start(*join)]
        self.wait_for_steps(hosts)
        joins = self.start(*join)
        wait_for(hosts[0], lambda: '"event":"saved"' in self.events())
        joins.kill()
        self.assertEqual(self.results(hosts), expected)

    def test_the_next_host_0_may_be_killed_before_all_have_met(self):
        expected = self.alone(LONG, FAST)
        hosts = self.begin(LONG, 4, "hosts.timeout_s=10", own=[[], [], ["--json"], []])
        self.wait_for_steps(hosts)
        hosts[0].kill()
        while "hosts meet again" not in (line := hosts[1].stderr.readline()):
            self.assertNotEqual(line, "", "host 1 has ended")
        hosts[1].kill()
        self.assertEqual(self.results(hosts[2:]), expected)

    def test_hosts_begin_without_those_that_do_not_come(self):
        hosts = self.begin(GPT, 4, "hosts.start_size=2",
                           own=[["hosts.timeout_s=15"], NEVER_COMES, [], []])
        self.assertEqual(self.results([hosts[0], *hosts[2:]]), self.alone(GPT))
        self.assertIn("nobody answered", self.logs_of_failed(hosts[1:2])[0])

    def test_no_host_takes_the_place_of_one_that_is_stopped_twice(self):
        hosts = self.begin(LONG, 3)
        self.wait_for_steps(hosts)
        hosts[0].send_signal(signal.SIGINT)
        wait_for(hosts[1], lambda: not (self.folder / "run/lock").read_text())
        hosts[0].send_signal(signal.SIGINT)
        for log in self.logs_of_failed(hosts)[1:]:
            self.assertIn("host 0 has stopped; its own output says why", log)

    def test_no_host_takes_the_place_of_one_that_lives(self):
        expected = self.alone(LONG, FAST)
        hosts = self.begin(LONG, 3, "hosts.timeout_s=10")
        self.wait_for_steps(hosts)
        hosts[0].send_signal(signal.SIGSTOP)
        for log in self.logs_of_failed(hosts[1:]):
            self.assertIn("no other can take its place", log)
            self.assertIn("is in use by process", log)
        hosts[0].send_signal(signal.SIGCONT)
        self.assertEqual(self.results(hosts[:1]), expected)

    def test_no_host_takes_the_place_of_one_that_keeps_no_checkpoints(self):
        hosts = self.begin(LONG, 2, "checkpoint.keep=0")
        self.wait_for_steps(hosts)
        hosts[0].kill()
        [log] = self.logs_of_failed(hosts[1:])
        self.assertIn("host 0 is lost or has stopped", log)

    def test_too_few_hosts_stop_and_resume_exactly(self):
        expected = self.alone(LONG, FAST)
        for lost, sent in ((1, signal.SIGKILL), (0, signal.SIGKILL), (2, signal.SIGTERM)):
            hosts = self.begin(LONG, 3, "resume=auto", "hosts.min_size=3")
            self.wait_for_steps(hosts)
            hosts[lost].send_signal(sent)
            logs = self.logs_of_failed(hosts)
            for other, log in enumerate(logs):
                if other != lost:
                    self.assertIn("is lost or has stopped", log)
                    self.assertIn("start all hosts again with resume: auto", log)
        self.assertEqual(self.results(self.begin(LONG, 2, "resume=auto", FAST)), expected)

    def test_a_host_that_loses_a_device_repeats_the_step_with_the_others(self):
        expected = self.alone(LONG, FAST)
        hosts = self.begin(LONG, 2, SLOW_NETWORK, own=[[], [ONE_FAILS]])
        self.assertEqual(self.results(hosts), expected)
        self.assertIn('"event":"redone"', self.events())

    def test_a_device_that_shrinks_repeats_the_step_with_the_others(self):
        expected = self.alone(LONG, FAST)
        shrinks = "devices=[{memory: 16MiB, imitate: {fault: {kind: shrink, after_ops: 40}}}]"
        hosts = self.begin(LONG, 2, own=[[], [shrinks]])
        self.assertEqual(self.results(hosts), expected)

    def test_one_host_resumes_what_several_began(self):
        expected = self.alone(LONG, "devices=[{memory: 16MiB}]")
        hosts = self.begin(LONG, 2)
        self.wait_for_steps(hosts)
        hosts[0].send_signal(signal.SIGINT)
        self.assertEqual([code for code, _, _ in self.end(hosts)], [130, 1])
        self.assertEqual(self.results([self.start("resume", self.folder / "run", "hosts.size=1",
                                                  "devices=[{memory: 16MiB}]", "--json")]),
                         expected)

    def test_hosts_with_other_trials_are_refused(self):
        logs = self.logs_of_failed(self.begin(GPT, 2, own=[[], ["seed=5"]]))
        for log in logs:
            self.assertIn("seed: is 5 on host 1 and 1 on host 0", log)
        self.assertFalse((self.folder / "run").exists())
        text = self.folder / "other.txt"
        text.write_text("other text " * 2000)
        logs = self.logs_of_failed(self.begin(GPT, 2, own=[[], [f"data.path={text}"]]))
        for log in logs:
            self.assertIn("data: is ", log)

    def test_a_host_that_does_not_fit_is_named(self):
        config = {**GPT, "sweep": {"parameters": {"train.learning_rate": {"values": [1e-3, 1e-4]}}}}
        for small in range(2):
            own = [[], []]
            own[small] = ["devices=[{memory: 20KiB}]"]
            logs = self.logs_of_failed(self.begin(config, 2, own=own, out=f"run{small}"))
            self.assertIn("does not fit", logs[small])
            self.assertIn(f"host {small} is lost or has stopped", logs[1 - small])

    def test_all_hosts_fail_together_at_a_commit(self):
        """The other trial goes on."""
        config = {**GPT, "sweep": {"parameters": {
            "model.initializer_range": {"values": [1e30, 0.02]}}}}
        ends = self.end(self.begin(config, 2))
        self.assertEqual([code for code, _, _ in ends], [1, 1], ends)
        bad, good = json.loads(ends[0][1])["trials"]
        self.assertIn("are not finite", bad["reason"])
        self.assertEqual((bad["state"], good["state"]), ("failed", "done"))
        self.assertIn("are not finite", ends[1][2])

    def test_a_host_whose_op_fails_says_why(self):
        """The data changes on one host only."""
        text = self.folder / "text.txt"
        text.write_bytes(pathlib.Path(TEXT).read_bytes())
        hosts = self.begin(LONG, 2, own=[[], [f"data.path={text}"]])
        self.wait_for_steps(hosts)
        text.write_text("something else " * 10000)
        ends = self.end(hosts)
        self.assertEqual([code for code, _, _ in ends], [0, 1])
        self.assertIn("changed", ends[1][2])
        self.assertIn("host 1 is lost or has stopped; its own output says why", ends[0][2])

    def test_a_host_that_is_silent_is_not_waited_for_longer_than_the_limit(self):
        hosts = self.begin(LONG, 2, "hosts.timeout_s=10")
        self.wait_for_steps(hosts)
        hosts[1].send_signal(signal.SIGSTOP)
        code, _, log = self.end(hosts[:1])[0]
        self.assertEqual(code, 0)
        self.assertIn("host 1 has been silent for 10 s", log)
        hosts[1].send_signal(signal.SIGCONT)
        code, _, log = self.end(hosts[1:])[0]
        self.assertEqual(code, 1)
        self.assertIn("host 0 has stopped; its own output says why; start all hosts again", log)

    def test_more_hosts_than_groups_are_refused(self):
        hosts = self.begin(GPT, 2, "train.reduction_groups=1")
        for log in self.logs_of_failed(hosts):
            self.assertIn("train.reduction_groups: is 1, but each of the 2 hosts takes at least one",
                          log)

    def test_what_hosts_cannot_share_is_refused(self):
        for change, key in (("train.autoscale={rule: throughput}", "train.autoscale"),
                            ("train.lane_groups=[6]", "train.lane_groups"),
                            ("scheduling.sharing=fill", "scheduling.sharing")):
            for log in self.logs_of_failed(self.begin(GPT, 2, change)):
                self.assertIn(f"{key}: ", log)

    def test_a_host_that_does_not_come_is_not_waited_for_longer_than_the_limit(self):
        hosts = self.begin(GPT, 2, "hosts.timeout_s=2")
        hosts[1].kill()
        log = self.logs_of_failed(hosts)[0]
        self.assertIn("host 1 has not arrived at 127.0.0.1:", log)
        self.assertIn("within 2 s", log)

    def test_a_host_0_that_is_silent_while_hosts_meet_is_not_waited_for(self):
        """Its system accepts connections for it."""
        first, join = self.begin_to_invite(GPT, 3)
        waits = self.start(*join, "hosts.timeout_s=4")
        wait_for(first, lambda: is_open(join[1]))
        time.sleep(1)  # in which the other arrives
        first.send_signal(signal.SIGSTOP)
        comes = self.start(*join, "hosts.timeout_s=1")
        self.assertIn("within 1 s", self.logs_of_failed([comes])[0])
        self.assertIn("within 4 s", self.logs_of_failed([waits])[0])

    def test_a_host_that_waits_for_others_can_be_stopped(self):
        first, join = self.begin_to_invite(GPT, 4)
        second = self.start("train", self.write(GPT), "hosts.size=4", "hosts.number=2",
                            f"hosts.endpoint={join[1]}")
        joins = self.start(*join)
        wait_for(first, lambda: is_open(join[1]))
        for host in (second, joins, first):
            wait_for(host, lambda host=host: handles(host, signal.SIGTERM))
            host.send_signal(signal.SIGTERM)
            [(code, _, log)] = self.end([host])
            self.assertEqual(code, 130, log)
            self.assertIn("interrupted before training", log)

    def test_a_host_with_other_kernels_is_refused(self):
        hosts = self.begin(GPT, 2, environments=[{"ATEN_CPU_CAPABILITY": "avx2"},
                                                 {"ATEN_CPU_CAPABILITY": "default"}])
        for log in self.logs_of_failed(hosts):
            self.assertRegex(log, "device: is .*DEFAULT.* on host 1 and .*AVX2.* on host 0")

    def test_a_port_in_use_is_named(self):
        with socket.socket() as used:
            used.bind(("127.0.0.1", 0))
            used.listen()
            endpoint = f"127.0.0.1:{used.getsockname()[1]}"
            log = self.logs_of_failed([self.start("train", self.write(GPT), "hosts.size=2",
                                                  f"hosts.endpoint={endpoint}")])[0]
            self.assertIn(f"hosts cannot meet at {endpoint}", log)

    def test_an_endpoint_must_be_a_host_and_a_port(self):
        for endpoint in ("nowhere", "host:port", "host:70000", ":80"):
            log = self.logs_of_failed([self.start("join", endpoint)])[0]
            self.assertIn(f"hosts.endpoint: is '{endpoint}', must be HOST:PORT", log)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
