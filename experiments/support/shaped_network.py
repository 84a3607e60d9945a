"""A network of hosts that are network namespaces of this machine, each with a card of a given rate.
Needs Linux, root, and the programs `ip` and `tc`."""

import contextlib
import itertools
import os
import pathlib
import shutil
import subprocess
import sys

import host_processes


def is_possible():
    return os.geteuid() == 0 and all(map(shutil.which, ("ip", "tc")))


class Network:
    """Hosts 0, 1, ... at a switch. Their cards send and receive at most `bytes_per_s`."""

    _numbers = itertools.count()  # the cards of a deleted network stay for a moment

    def __init__(self, size, bytes_per_s):
        self._name, self._size = f"sw{os.getpid() % 100000}x{next(self._numbers)}", size
        _run("ip", "link", "add", self._name, "type", "bridge")
        _run("ip", "link", "set", self._name, "up")
        for number in range(size):
            host, port = self._host(number), f"{self._name}p{number}"
            _run("ip", "netns", "add", host)
            _run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host)
            _run("ip", "link", "set", port, "master", self._name, "up")
            inside = ["ip", "netns", "exec", host]
            _run(*inside, "ip", "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                _run(*inside, "ip", "link", "set", device, "up")
            limit = ["root", "tbf", "rate", f"{8 * bytes_per_s}bit", "burst", "256kb", "latency",
                     "20ms"]
            _run(*inside, "tc", "qdisc", "add", "dev", "eth0", *limit)
            _run("tc", "qdisc", "add", "dev", port, *limit)

    def _host(self, number):
        return f"{self._name}n{number}"

    @staticmethod
    def address(number):
        return f"10.77.0.{number + 1}"

    def command(self, number, command):
        """Runs a command on a host."""
        return ["ip", "netns", "exec", self._host(number), *command]

    def tcp_rate(self, num_bytes):
        """Bytes a second that two hosts receive of so many that they send each other at once."""
        script = pathlib.Path(__file__).with_name("tcp_rate.py")
        return min(map(float, host_processes.outputs(
            [self.command(number, [sys.executable, str(script), str(number), self.address(0), "5201",
                                   str(num_bytes)]) for number in range(2)])))

    def close(self):
        for number in range(self._size):
            with contextlib.suppress(subprocess.CalledProcessError):
                _run("ip", "netns", "delete", self._host(number))
        with contextlib.suppress(subprocess.CalledProcessError):
            _run("ip", "link", "delete", self._name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


def _run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
