"""Bodies of gRPC calls are received within a bound of memory, and one address does not keep others waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

import grpc
import pytest

from penstock.gateway import grpc_bodies
from penstock.gateway.grpc_bodies import (
    OPEN_BYTES_MAX,
    RECEIVED_AT_ONCE,
    RECEIVED_AT_ONCE_OF_CONNECTION,
    RECEIVED_AT_ONCE_OF_SOURCE,
    BodyMissingError,
    BodySlowError,
    BodyTooLargeError,
    RequestBodies,
    source_of,
)

_ports = count(5000)


class Caller:
    """A call whose message comes when it is let."""

    def __init__(self, address: str = "10.0.0.1", port: int | None = None) -> None:
        self._address = address
        self._port = next(_ports) if port is None else port
        self.message: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.is_receiving = False

    def peer(self) -> str:
        """As gRPC names it."""
        return f"ipv4:{self._address}:{self._port}"

    async def read(self) -> Any:
        """What a handler waits for."""
        self.is_receiving = True
        return await self.message


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 30))


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def _receive(bodies: RequestBodies, caller: Caller, done: asyncio.Event) -> bytes:
    async with bodies.receive(caller) as body:
        await done.wait()
        return body


def test_few_bodies_are_received_at_a_time_and_fewer_of_one_address() -> None:
    async def scenario() -> None:
        bodies, done = RequestBodies(), asyncio.Event()
        flood = [Caller() for _ in range(20)]
        others = [Caller(f"10.0.1.{number}") for number in range(20)]
        tasks = [asyncio.create_task(_receive(bodies, caller, done)) for caller in flood]
        await settle()
        assert sum(caller.is_receiving for caller in flood) == RECEIVED_AT_ONCE_OF_SOURCE
        tasks += [asyncio.create_task(_receive(bodies, caller, done)) for caller in others]
        await settle()
        assert sum(caller.is_receiving for caller in [*flood, *others]) == RECEIVED_AT_ONCE
        assert sum(caller.is_receiving for caller in others) == RECEIVED_AT_ONCE - RECEIVED_AT_ONCE_OF_SOURCE
        done.set()
        for caller in [*flood, *others]:
            caller.message.set_result(b"body")
        assert await asyncio.gather(*tasks) == [b"body"] * 40
        assert bodies.used == 0

    run(scenario)


def test_no_more_is_received_while_too_many_bytes_are_in_flight() -> None:
    async def scenario() -> None:
        bodies, done = RequestBodies(bytes_max=100), asyncio.Event()
        first, second = Caller(), Caller()
        tasks = [asyncio.create_task(_receive(bodies, first, done))]
        first.message.set_result(b"x" * 150)
        await settle()
        assert bodies.used == 150
        tasks.append(asyncio.create_task(_receive(bodies, second, done)))
        await settle()
        assert not second.is_receiving
        second.message.set_result(b"y")
        done.set()
        assert await asyncio.gather(*tasks) == [b"x" * 150, b"y"]
        assert bodies.used == 0

    run(scenario)


def test_a_body_that_does_not_come_gives_its_turn_back() -> None:
    async def scenario() -> None:
        bodies, done = RequestBodies(timeout_s=0.05), asyncio.Event()
        done.set()
        silent = [Caller() for _ in range(RECEIVED_AT_ONCE_OF_SOURCE)]
        tasks = [asyncio.create_task(_receive(bodies, caller, done)) for caller in silent]
        await settle()
        prompt = Caller()
        prompt.message.set_result(b"prompt")
        assert await _receive(bodies, prompt, done) == b"prompt"
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(outcome, BodyMissingError)
        gone = Caller()
        gone.message.set_result(grpc.aio.EOF)
        with pytest.raises(BodyMissingError):
            await _receive(bodies, gone, done)

    run(scenario)


def test_calls_that_send_nothing_do_not_keep_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_bodies, "CONTENDED_TIMEOUT_S", 0.02)

    async def scenario() -> None:
        bodies, done = RequestBodies(), asyncio.Event()
        done.set()
        silent = [Caller(port=connection) for connection in range(5) for _ in range(100)]
        tasks = [asyncio.create_task(_receive(bodies, caller, done)) for caller in silent]
        await settle()
        prompt = Caller()
        prompt.message.set_result(b"prompt")
        # Each connection is before it with two calls at most, however many it has opened.
        assert await _receive(bodies, prompt, done) == b"prompt"
        assert sum(task.done() for task in tasks) < 50
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert any(isinstance(outcome, BodySlowError) for outcome in outcomes)

    run(scenario)


def test_one_connection_receives_little_at_a_time() -> None:
    async def scenario() -> None:
        bodies, done = RequestBodies(), asyncio.Event()
        flood = [Caller(port=1) for _ in range(20)]
        tasks = [asyncio.create_task(_receive(bodies, caller, done)) for caller in flood]
        await settle()
        assert sum(caller.is_receiving for caller in flood) == RECEIVED_AT_ONCE_OF_CONNECTION
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(scenario)


def test_those_whom_nobody_knows_send_little() -> None:
    async def scenario() -> None:
        bodies = RequestBodies()
        small, large = Caller(), Caller()
        small.message.set_result(b"x" * OPEN_BYTES_MAX)
        large.message.set_result(b"x" * (OPEN_BYTES_MAX + 1))
        assert len(await bodies.receive_open(small)) == OPEN_BYTES_MAX
        with pytest.raises(BodyTooLargeError):
            await bodies.receive_open(large)

    run(scenario)


@pytest.mark.parametrize(
    ("peer", "address"),
    [("ipv4:127.0.0.1:5000", "127.0.0.1"), ("ipv6:[::1]:5000", "::1"), ("ipv6:%5B::1%5D:5000", "::1"), ("unix:", "")],
)
def test_the_address_of_a_caller_is_told_from_its_name(peer: str, address: str) -> None:
    class Named:
        def peer(self) -> str:
            return peer

    assert source_of(Named()) == address
