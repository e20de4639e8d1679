"""Many clients on one event loop: ready bytes, one request in flight a connection or several, no thread and no object a message.

A thousand librdkafka producers are some three thousand threads, which on a small machine would be all that is measured.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import cast

import uvloop
from confluent_kafka.admin import AdminClient

from bench.kafka_peer.window import Window, percentiles
from bench.kafka_peer.wires import KafkaFetch, KafkaProduce, NatsPublish, Wire

VALUE = b"x" * 1024
PARTITIONS = 12
CONNECT_AT_ONCE = 64
IDLE_WAIT_MS = 500  # the default of Kafka's consumers


class Caller(asyncio.Protocol):
    """One connection that sends a request, and the next one when it is answered."""

    def __init__(self, wire: Wire, value: bytes, in_flight: int) -> None:
        self._wire = wire
        self._request = wire.request(value)
        self._in_flight = in_flight
        self._received = bytearray()
        self._sent: deque[float] = deque()
        self._is_open = False
        self._idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.samples: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Introduce itself and send one request, which opens whatever the broker opens late."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own is none by its class
        self._transport.write(self._wire.hello)
        self._send(1)

    def begin(self) -> None:
        """Send as many as may be in flight, and go on until `end`."""
        self.samples.clear()
        self._is_open = True
        self._idle = asyncio.get_running_loop().create_future()
        self._send(self._in_flight)

    def end(self) -> None:
        """Send no more."""
        self._is_open = False

    async def idle(self) -> None:
        """Wait until everything is answered."""
        await asyncio.wait_for(self._idle, 60)

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Note how long answered requests took, and send as many again."""
        self._received += data
        try:
            answered = self._wire.take(self._received)
        except RuntimeError as error:
            self._fail(error)
            return
        if not answered:
            return
        now = time.perf_counter()
        self.samples += [now - self._sent.popleft() for _ in range(answered)]
        if self._is_open:
            self._send(answered)
        elif not self._sent and not self._idle.done():
            self._idle.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what waits for replies."""
        self._fail(exc or RuntimeError("the broker has closed a connection"))

    def _fail(self, error: Exception) -> None:
        self._is_open = False
        if not self._idle.done():
            self._idle.set_exception(error)

    def _send(self, count: int) -> None:
        self._sent.extend([time.perf_counter()] * count)
        self._transport.write(self._request if count == 1 else self._request * count)


class Crowd:
    """Connections that work in the same windows, each to an address of its own."""

    def __init__(self, wires: Sequence[tuple[str, Wire]], *, value: bytes = VALUE, in_flight: int = 1) -> None:
        self._wires = wires
        self._value = value
        self._in_flight = in_flight
        self._callers: list[Caller] = []

    async def connect(self) -> None:
        """Connect all, some at a time so that the broker's queue of connections suffices."""
        loop = asyncio.get_running_loop()
        for first in range(0, len(self._wires), CONNECT_AT_ONCE):
            some: list[Caller] = []
            for address, wire in self._wires[first : first + CONNECT_AT_ONCE]:
                caller = Caller(wire, self._value, self._in_flight)
                host, port = address.split(":")
                await loop.create_connection(lambda caller=caller: caller, host, int(port))  # type: ignore[misc]
                some.append(caller)
            await asyncio.gather(*(caller.idle() for caller in some))
            self._callers += some

    async def work(self, seconds: float, broker_pid: int | None) -> dict[str, float]:
        """One window: percentiles, rate and processor time."""
        for caller in self._callers:
            caller.begin()
        window = Window(broker_pid)
        await asyncio.sleep(seconds)
        count = sum(len(caller.samples) for caller in self._callers)
        measured = window.close(count)
        for caller in self._callers:
            caller.end()
        await asyncio.gather(*(caller.idle() for caller in self._callers))
        samples = [sample for caller in self._callers for sample in caller.samples]
        return {**percentiles(samples), "rate": count / measured["s"], **measured}

    def close(self) -> None:
        """Close every connection."""
        for caller in self._callers:
            caller.close()


def raw(
    address: str, topic: str, *, wire: str, producers: int, seconds: float, broker_pid: int, in_flight: int = 1
) -> dict[str, float]:
    """Producers of 1 KiB messages, one message a request, over twelve partitions or subjects."""
    crowd = Crowd(_wires(address, wire, topic, producers), in_flight=in_flight)

    async def run() -> dict[str, float]:
        await crowd.connect()
        result = await crowd.work(seconds, broker_pid)
        crowd.close()
        return result

    return uvloop.run(run())


def idle(address: str, topic: str, *, consumers: int, seconds: float, broker_pid: int) -> dict[str, float]:
    """Consumers at the end of empty partitions: each asks again as soon as its wait is over."""
    owners = leaders(address, topic)
    partitions = [number % PARTITIONS for number in range(consumers)]
    crowd = Crowd([(owners[number], KafkaFetch(topic, number, 0, IDLE_WAIT_MS)) for number in partitions], value=b"")

    async def run() -> dict[str, float]:
        await crowd.connect()
        await crowd.work(1.0, broker_pid)
        result = await crowd.work(seconds, broker_pid)
        crowd.close()
        return result

    return uvloop.run(run())


def warm_up(
    address: str,
    topic: str,
    *,
    wire: str,
    producers: int,
    window_s: float,
    windows_min: int,
    seconds_max: float,
    alike: int,
    within: float,
    broker_pid: int,
) -> dict[str, float | list[float]]:
    """Windows of load until the last `alike` of them differ by no more than `within`; the rate of each."""
    crowd = Crowd(_wires(address, wire, topic, producers))

    async def run() -> list[float]:
        await crowd.connect()
        rates: list[float] = []
        while (len(rates) < windows_min or not is_steady(rates[-alike:], within)) and len(rates) * window_s < seconds_max:
            rates.append((await crowd.work(window_s, broker_pid))["rate"])
        crowd.close()
        return rates

    rates = uvloop.run(run())
    return {"rates": rates, "steady": float(is_steady(rates[-alike:], within))}


def is_steady(rates: list[float], within: float) -> bool:
    """Whether rates are all within a share of the largest."""
    return min(rates) >= max(rates) * (1 - within)


def leaders(address: str, topic: str) -> dict[int, str]:
    """Returns the address of each partition's leader."""
    metadata = AdminClient({"bootstrap.servers": address}).list_topics(topic, timeout=60)
    brokers = {number: f"{broker.host}:{broker.port}" for number, broker in metadata.brokers.items()}
    return {number: brokers[partition.leader] for number, partition in metadata.topics[topic].partitions.items()}


def _wires(address: str, kind: str, topic: str, producers: int) -> list[tuple[str, Wire]]:
    if kind == "nats":
        return [(address, NatsPublish(number, number % PARTITIONS)) for number in range(producers)]
    owners = leaders(address, topic)
    partitions = [number % PARTITIONS for number in range(producers)]
    return [(owners[number], KafkaProduce(topic, number)) for number in partitions]
