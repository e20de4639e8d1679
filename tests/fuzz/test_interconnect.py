"""Whatever is sent to the port for other nodes, the node goes on: a peer that does nothing wrong is served, memory stays
small, and nothing is held for those who are gone.

A failure names the seed and the inputs that were sent; FUZZ_SEED=seed FUZZ_INPUTS=first-last sends the same again.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.interconnect import CallStatus, Interconnect, Link
from tests.e2e.interconnect.node_program import ECHO, new_interconnect
from tests.e2e.interconnect.running_peer import RunningPeer, connected, running_peer, status_of
from tests.fuzz.attacker import Attacker
from tests.fuzz.healthy_clients import HealthyClient, content
from tests.fuzz.interconnect_frames import interconnect_input

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]
INPUTS = 160
ROUND = 40
GROWTH_BYTES_MAX = 200 << 20
WAIT_S = 60.0
HEALTHY_DESTINATION = 9
SEED = int(os.environ.get("FUZZ_SEED", "1"))
_FAULTS = re.compile(rb"^.*(?:Traceback|never retrieved|never awaited).*$", re.MULTILINE)


class Caller:
    """A peer in a thread with an event loop of its own."""

    def __init__(self, address: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="caller", daemon=True)
        self._thread.start()
        self._echoed: list[bytes] = []
        self._interconnect: Interconnect
        self._link: Link
        self.run(self._connect(address))

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(WAIT_S)

    def client(self) -> HealthyClient:
        """Calls with numbered bodies; each must be answered."""
        return HealthyClient("interconnect", lambda number: self.run(self._echo(number)), lambda count: self._echoed[:count])

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.run(status_of(self._link))
        return found

    def close(self) -> None:
        self.run(self._interconnect.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _connect(self, address: str) -> None:
        self._interconnect = new_interconnect(1)
        self._link = await connected(self._interconnect.link(2, address))

    async def _echo(self, number: int) -> None:
        reply = await self._link.call(ECHO, HEALTHY_DESTINATION, (content(number),), timeout_s=WAIT_S)
        assert reply.status is CallStatus.OK, reply
        self._echoed.append(bytes(reply.body))


class Target:
    """The node that is attacked, and the peer that uses it meanwhile."""

    def __init__(self, peer: RunningPeer, log: Path, caller: Caller, client: HealthyClient) -> None:
        self._peer = peer
        self._log = log
        self._caller = caller
        self._client = client
        self._memory = caller.status()["resident"]

    def attack(self, seed: int, numbers: range) -> None:
        """Send inputs, and look at the node in between."""
        attacker = Attacker("interconnect", int(self._peer.address.rpartition(":")[2]), interconnect_input, seed)
        try:
            for begin in range(numbers.start, numbers.stop, ROUND):
                some = range(begin, min(begin + ROUND, numbers.stop))
                try:
                    for number in some:
                        attacker.send(number)
                    self.check()
                except BaseException as error:
                    error.add_note(f"FUZZ_SEED={seed} FUZZ_INPUTS={numbers.start}-{some.stop - 1}")
                    raise
        finally:
            attacker.close()

    def check(self) -> None:
        """Everything is as it should be."""
        assert self._peer.process.poll() is None, "the node is dead"
        self._client.check_progress()
        status = self._caller.status()
        assert status["strangers"] <= 64
        grown = status["resident"] - self._memory
        assert grown < GROWTH_BYTES_MAX, f"the node has {grown >> 20} MiB more than at first"
        log = self._log.read_bytes()
        fault = _FAULTS.search(log)
        assert fault is None, log[max(fault.start() - 500, 0) : fault.start() + 5000].decode(errors="replace")

    def check_nothing_is_held(self) -> None:
        """Once the attackers are gone, so is what they sent."""
        deadline = time.monotonic() + WAIT_S
        while (status := self._caller.status())["bytes_held"] > 10_000 or status["strangers"] or status["peers"] != 2:
            assert time.monotonic() < deadline, status
            time.sleep(0.05)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    log = tmp_path_factory.mktemp("fuzzed") / "log"
    with running_peer(2, "127.0.0.1:0", log=log) as peer:
        caller = Caller(peer.address)
        client = caller.client()
        client.start()
        yield Target(peer, log, caller, client)
        client.finish()
        caller.close()


def _asked_for() -> range:
    first, _, last = os.environ.get("FUZZ_INPUTS", f"0-{INPUTS - 1}").partition("-")
    return range(int(first), int(last or first) + 1)


def test_the_port_for_nodes_outlives_what_strangers_send(target: Target) -> None:
    target.attack(SEED, _asked_for())
    target.check_nothing_is_held()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_it_outlives_strangers_for_a_long_time(target: Target) -> None:
    end = time.monotonic() + int(os.environ.get("SOAK_S", "600"))
    seed = SEED
    while time.monotonic() < end:
        seed += 1
        target.attack(seed, range(INPUTS))
    target.check_nothing_is_held()
