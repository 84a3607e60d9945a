"""Several hosts as processes of this machine."""

import json
import os
import pathlib
import socket
import subprocess
import tempfile
import types

import spillway_run


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def outputs(of_hosts, environment=None):
    """What processes with these commands, which run at the same time, print. All must succeed."""
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env={**os.environ, **(environment or {})})
                 for command in of_hosts]
    ends = [process.communicate() for process in processes]
    for process, (_, errors) in zip(processes, ends):
        if process.returncode != 0:
            raise spillway_run.Failed(errors)
    return [out for out, _ in ends]


def commands(program, config, folder, size, *overrides, own=None, network=None):
    """Of hosts that train a configuration, which is written into the folder. Outputs of the run are
    in its subfolder `run`. `own`: further overrides of each host. `network`: where they run, see
    shaped_network; by default they are processes at the loopback interface."""
    path = folder / "config.yaml"
    path.write_text(json.dumps({**config, "output_dir": f"{folder}/run"}))
    first = network.address(0) if network else "127.0.0.1"
    hosts = [f"hosts.size={size}", f"hosts.endpoint={first}:{free_port()}",
             f"hosts.trust_network={'true' if network else 'false'}"] if size > 1 else []
    of_hosts = [[program, "train", str(path), "--json", *hosts,
                 *([f"hosts.number={number}"] if hosts else []), *overrides,
                 *((own or {}).get(number, []))] for number in range(size)]
    if not network:
        return of_hosts
    return [network.command(number, command) for number, command in enumerate(of_hosts)]


def join_command(program, of_host, *overrides):
    """Of a host that joins the run of host 0, which has this command."""
    [endpoint] = [word for word in of_host if word.startswith("hosts.endpoint=")]
    return [program, "join", endpoint.partition("=")[2], *overrides]


def train(program, config, size, *overrides, own=None, network=None):
    """Trains a configuration on `size` hosts. `own`, `network`: as for commands(). Returns the
    report of the run, its events and its trace, as host 0 wrote them."""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        reports = outputs(commands(program, config, place, size, *overrides, own=own,
                                   network=network), {"OMP_WAIT_POLICY": "passive"})
        events = (place / "run/events.jsonl").read_text().splitlines()
        return types.SimpleNamespace(
            trials=json.loads(reports[0])["trials"], events=[json.loads(line) for line in events],
            trace=json.loads((place / "run/trace.json").read_text())["traceEvents"])


def weights_of(run):
    """By trial."""
    return {trial["name"]: trial["weights_xxh3"] for trial in run.trials}


def loopback_bytes():
    """Bytes that the machine has sent to itself."""
    for line in pathlib.Path("/proc/net/dev").read_text(encoding="ascii").splitlines():
        name, _, fields = line.partition(":")
        if name.strip() == "lo":
            return int(fields.split()[8])
    return 0
