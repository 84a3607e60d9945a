#!/usr/bin/env python3
"""Hosts as processes that are killed: the others notice and go on.
Usage: peers_processes_test.py PEERS_PROCESS"""

import os
import subprocess
import sys
import time
import unittest

PROGRAM = sys.argv[1]
MANY = 1_000_000  # rounds: until the process is killed
PATIENT_S = 100  # for all hosts to start on a busy machine


def start(*arguments):
    return subprocess.Popen([PROGRAM, *map(str, arguments)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def lines_until(process, last):
    """Its lines, up to the one that begins with `last`."""
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith(last):
            return lines
    raise AssertionError(f"'{last}' did not come: {lines}")


def cpu_seconds(process):
    with open(f"/proc/{process.pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Processes(unittest.TestCase):
    def setUp(self):
        self.processes = []
        self.addCleanup(self.end_all)
        server = self.started("serve")
        self.port = lines_until(server, "")[0]

    def started(self, *arguments):
        self.processes.append(start(*arguments))
        return self.processes[-1]

    def hosts(self, size, rounds):
        return [self.started(self.port, number, size, rounds, PATIENT_S) for number in range(size)]

    def end_all(self):
        for process in self.processes:
            process.kill()
            process.communicate()

    def test_each_host_has_the_bytes_of_all_others(self):
        hosts = self.hosts(4, 20)
        for host in hosts:
            self.assertEqual(lines_until(host, "ended"),
                             ["joined", "connected", "under way", "ended"])

    def test_a_host_that_is_killed_is_lost_and_the_others_go_on(self):
        hosts = self.hosts(3, MANY)
        for host in hosts:
            lines_until(host, "under way")
        hosts[1].kill()
        killed = time.monotonic()
        for host in (hosts[0], hosts[2]):
            self.assertEqual(lines_until(host, "lost"), ["lost 1"])
        print(f"noticed after {1000 * (time.monotonic() - killed):.0f} ms")
        hosts[2].kill()
        self.assertEqual(lines_until(hosts[0], "lost"), ["lost 2"])

    def test_a_host_that_is_killed_while_the_group_forms_is_named(self):
        killed = self.started(self.port, 1, 3, 1, 5)
        lines_until(killed, "joined")
        killed.kill()
        first = self.started(self.port, 0, 3, 1, 5)  # later: a pair connects at once
        line = lines_until(first, "error")[-1]
        self.assertIn("host 0 could not connect to host 1 of group 'epoch 1' at 127.0.0.1 "
                      "within 5 s", line)
        self.assertEqual(first.wait(timeout=60), 1)

    def test_waiting_costs_next_to_nothing(self):
        hosts = self.hosts(2, 5)
        for host in hosts:
            lines_until(host, "ended")
        before = [cpu_seconds(host) for host in hosts]
        time.sleep(2)
        for host, seconds in zip(hosts, before):
            self.assertLess(cpu_seconds(host) - seconds, 0.2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
