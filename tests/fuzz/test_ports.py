"""Whatever a stranger sends to any port, the node goes on: clients of every protocol that do nothing wrong are served meanwhile,
all that was acknowledged is read back, it stays ready, and its memory stays small.

A failure names the port, the seed and the inputs that were sent; FUZZ_SEED=seed FUZZ_INPUTS=first-last sends the same again.
"""

from __future__ import annotations

import os
import re
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.stream.stream_client import StreamClient
from tests.e2e.ydb.ydb_node import connected
from tests.fuzz.attacker import Attacker
from tests.fuzz.healthy_clients import HealthyClient, http_client, kafka_client, port_of, stream_client, ydb_client, yt_client
from tests.fuzz.input import Generator
from tests.fuzz.surfaces import generators

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
PORTS = ("kafka", "http", "yt", "stream_http", "ydb", "stream")
INPUTS = 80
ROUND = 40  # inputs between two looks at the node
GROWTH_BYTES_MAX = 400 << 20
SEED = int(os.environ.get("FUZZ_SEED", "1"))
_FAULTS = re.compile(rb"^.*(?:Traceback|never retrieved|started again|failed within the node).*$", re.MULTILINE)


class Target:
    """The node that is attacked, and those who use it meanwhile."""

    def __init__(self, node: RunningNode, log: Path, clients: list[HealthyClient], surfaces: dict[str, Generator]) -> None:
        self.node = node
        self._log = log
        self.clients = clients
        self.surfaces = surfaces
        self._memory = self._resident()
        self._log_read = 0

    def check(self) -> None:
        """Everything is as it should be."""
        assert self.node.process.poll() is None, "the node is dead"
        with urllib.request.urlopen(f"http://127.0.0.1:{port_of(self.node, 'http')}/readyz", timeout=30) as answer:
            assert answer.status == 200
        for client in self.clients:
            client.check_progress()
        grown = self._resident() - self._memory
        assert grown < GROWTH_BYTES_MAX, f"the node has {grown >> 20} MiB more than at first"
        log = self._log.read_bytes()[self._log_read :]
        self._log_read += len(log)
        fault = _FAULTS.search(log)
        assert fault is None, log[max(fault.start() - 500, 0) : fault.start() + 5000].decode(errors="replace")

    def attack(self, port: str, seed: int, numbers: range) -> None:
        """Send inputs to a port, and look at the node in between."""
        attacker = Attacker(port, port_of(self.node, port), self.surfaces[port], seed)
        try:
            for begin in range(numbers.start, numbers.stop, ROUND):
                some = range(begin, min(begin + ROUND, numbers.stop))
                try:
                    for number in some:
                        attacker.send(number)
                    self.check()
                except BaseException as error:
                    error.add_note(f"port {port}, FUZZ_SEED={seed} FUZZ_INPUTS={numbers.start}-{some.stop - 1}")
                    raise
        finally:
            attacker.close()

    def _resident(self) -> int:
        status = Path(f"/proc/{self.node.process.pid}/status").read_text(encoding="ascii")
        return int(status.split("VmRSS:")[1].split()[0]) << 10


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A node with every port, and a client of each protocol that works with it from now on until the last test is over."""
    path = tmp_path_factory.mktemp("fuzzed")
    ports = [word for name in ("http", "yt", "ydb", "stream", "stream-http") for word in (f"--{name}-port", "0")]
    with ExitStack() as stack:
        node = stack.enter_context(
            running_node(path / "log", ["--data-dir", str(path / "data"), "--cache-bytes", str(16 << 20), *ports])
        )
        driver: Any = stack.enter_context(connected(node))
        streams = stack.enter_context(StreamClient(f"127.0.0.1:{port_of(node, 'stream')}"))
        node.ok("topic", "create", "fuzzed")
        clients = [kafka_client(node), ydb_client(driver), stream_client(streams), yt_client(node), http_client(node)]
        for client in clients:
            client.start()
        yield Target(node, path / "log", clients, generators(port_of(node, "http")))
        for client in clients:
            client.finish()


def _asked_for() -> range:
    first, _, last = os.environ.get("FUZZ_INPUTS", f"0-{INPUTS - 1}").partition("-")
    return range(int(first), int(last or first) + 1)


@pytest.mark.parametrize("port", PORTS)
def test_a_port_outlives_what_strangers_send(target: Target, port: str) -> None:
    target.attack(port, SEED, _asked_for())


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_all_ports_outlive_strangers_for_a_long_time(target: Target) -> None:
    end = time.monotonic() + int(os.environ.get("SOAK_S", "600"))
    seed = SEED
    while time.monotonic() < end:
        seed += 1
        for port in PORTS:
            target.attack(port, seed, range(INPUTS))
