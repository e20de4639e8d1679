"""Streams on a broker on one simulated disk, in a process that can be killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from penstock.blob import Buffer
from penstock.broker.streams import StreamMessage, StreamOptions, Streams
from penstock.testing.sim_loop import run_simulation
from tests.sim_broker import SimBroker

T = TypeVar("T")

SMALL = StreamOptions(inline_bytes_max=1000, sweep_interval_s=1.0)


class SimStreams(SimBroker):
    """The disk stays; the broker on it and its streams come and go."""

    def __init__(self, options: StreamOptions = SMALL) -> None:
        super().__init__()
        self._stream_options = options
        self.ready = asyncio.Event()  # the broker is up before its streams are
        self.streams: Streams

    async def start(self, *, crash_at: int | None = None) -> SimStreams:
        """Start a broker and its streams, which are killed at one of their steps if that is wanted."""
        self.ready.clear()
        await super().start(crash_at=crash_at)
        self.process.on_crash(self.ready.clear)
        starting = Streams.start(self.broker, self._stream_options, random=Random(self._starts))
        self.streams = await self.do(starting)
        self.ready.set()
        return self

    async def until_ready(self) -> None:
        """Wait until the streams serve, and still do when this returns."""
        while not self.ready.is_set():
            await self.ready.wait()

    async def publish(self, subject: str, data: bytes, headers: dict[str, str] | None = None) -> int:
        """Publish one message; its sequence."""
        return (await self.do(self.streams.publish(subject, data, headers))).sequence

    async def read(self, subject: str, from_sequence: int = 1, limit: int = 10_000) -> list[StreamMessage]:
        """All messages from a sequence on."""
        found: list[StreamMessage] = []
        while True:
            read = await self.do(self.streams.read(subject, from_sequence, limit - len(found)))
            found += read.messages
            if read.next_sequence == from_sequence or len(found) >= limit:
                return found
            from_sequence = read.next_sequence

    async def payload(self, sequence: int, begin: int = 0, end: int | None = None) -> bytes:
        """The payload of a message, wherever it is."""

        async def whole() -> bytes:
            message, _ = await self.streams.payload_of(sequence)
            return b"".join([bytes(part) async for part in self.streams.read_payload(message, begin, end)])

        return await self.do(whole())

    async def _close(self) -> None:
        await self.streams.stop()
        await super()._close()


async def in_parts(data: bytes, size: int) -> AsyncIterator[Buffer]:
    """Bytes as they come from a client."""
    for at in range(0, len(data), size):
        yield data[at : at + size]


def on_streams(scenario: Callable[[SimStreams], Coroutine[Any, Any, T]], options: StreamOptions = SMALL) -> T:
    """Run a scenario on new streams."""

    async def run() -> T:
        host = await SimStreams(options).start()
        result = await scenario(host)
        await host.stop()
        return result

    return run_simulation(run())
