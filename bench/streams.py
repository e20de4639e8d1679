"""Streams in process: publishes of many clients, their latency at a steady pace, large payloads, the functions of the seed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from bench.measure import MIB, Row, Setting, bytes_rate, count_rate, limit_row
from penstock.blob import BlobStorage, Buffer, Erasure, GroupConfig
from penstock.broker import Broker, BrokerOptions
from penstock.broker.streams import StreamOptions, Streams
from penstock.core.clock import SystemClock

CLIENTS = 64
SUBJECTS = 8
EACH = 40
PACE = 1000  # publishes a second
LARGE = 10_000_000
LOOKUPS = 5000


@asynccontextmanager
async def open_streams(directory: Path) -> AsyncIterator[Streams]:
    """Streams on one disk that syncs."""
    clock, random = SystemClock(), Random()
    storage = BlobStorage([GroupConfig(0, Erasure.NONE, (directory,))], clock=clock, random=random, durable=True)
    broker = await Broker.start(storage, BrokerOptions(), clock=clock, random=random)
    streams = await Streams.start(broker, StreamOptions(), random=random)
    try:
        yield streams
    finally:
        await streams.stop()
        await broker.stop()
        await storage.close()


async def rows(setting: Setting) -> list[Row]:
    """All of it, each with fsync."""
    async with open_streams(setting.directory("streams")) as streams:
        found = [
            await _publishes(setting, streams, 1_000, 10_000),
            await _publishes(setting, streams, 10_000, 5_000),
            await _paced(setting, streams),
            await _large(setting, streams),
        ]
        return [*found, *await _functions(setting, streams)]


async def _rates(rounds: int, work: Callable[[], Awaitable[float]]) -> list[float]:
    """What each round got done in a second; the first is not counted."""
    rates: list[float] = []
    for number in range(rounds + 1):
        started = time.perf_counter()
        amount = await work()
        if number:
            rates.append(amount / (time.perf_counter() - started))
    return rates


async def _publishes(setting: Setting, streams: Streams, size: int, goal: float) -> Row:
    data = os.urandom(size)

    async def client(number: int) -> None:
        for _ in range(EACH):
            await streams.publish(f"load.{number % SUBJECTS}", data)

    async def work() -> float:
        await asyncio.gather(*map(client, range(CLIENTS)))
        return CLIENTS * EACH

    rates = await _rates(setting.rounds(15), work)
    name = f"streams: publish {size // 1000} KB, {CLIENTS} clients, {SUBJECTS} subjects, fsync"
    return limit_row(name, rates, unit="/s", goal=goal, at_least=True, ours=count_rate(sorted(rates)[len(rates) // 2]))


async def _paced(setting: Setting, streams: Streams) -> Row:
    """Publishes begun at even intervals, whether or not those before are answered."""
    data = os.urandom(10_000)
    latencies_ms: list[float] = []

    async def publish() -> None:
        started = time.perf_counter()
        await streams.publish("paced", data)
        latencies_ms.append((time.perf_counter() - started) * 1000)

    p95s: list[float] = []
    for _ in range(setting.rounds(10)):
        latencies_ms.clear()
        begun: list[asyncio.Task[None]] = []
        started = time.perf_counter()
        for number in range(PACE):
            await asyncio.sleep(max(started + number / PACE - time.perf_counter(), 0))
            begun.append(asyncio.create_task(publish()))
        await asyncio.gather(*begun)
        p95s.append(sorted(latencies_ms)[len(latencies_ms) * 95 // 100])
    return limit_row(f"streams: publish 10 KB at {PACE}/s, p95", p95s, unit="ms", goal=10.0)


async def _large(setting: Setting, streams: Streams) -> Row:
    data = os.urandom(LARGE)

    async def parts() -> AsyncIterator[Buffer]:
        for at in range(0, len(data), MIB):
            yield data[at : at + MIB]

    async def work() -> float:
        for _ in range(5):
            await streams.publish_parts("large", parts())
        return 5 * LARGE

    rates = await _rates(setting.rounds(10), work)
    shown = bytes_rate(sorted(rates)[len(rates) // 2])
    await streams.delete_old(0)
    return limit_row("streams: payloads of 10 MB, fsync", rates, unit="B/s", goal=300e6, at_least=True, ours=shown)


async def _functions(setting: Setting, streams: Streams) -> list[Row]:
    """The table of the seed, by one caller in process; publishes and positions are durable, which the seed leaves open."""
    for _ in range(20):
        await asyncio.gather(*(streams.publish_reference(f"seed.{at % SUBJECTS}", "minio/x") for at in range(250)))
    last = await streams.last_sequence("seed.*")
    rounds = setting.rounds(10)

    async def publish() -> float:
        await asyncio.gather(*(streams.publish_reference(f"seed.{at % SUBJECTS}", "minio/x") for at in range(2000)))
        return 2000

    async def get() -> float:
        for at in range(LOOKUPS):
            await streams.get_message(last - at % 4000)
        return LOOKUPS

    moved = 0

    async def move() -> float:
        nonlocal moved
        moved += 1
        await asyncio.gather(*(streams.acknowledge(f"c{at}", "seed.0", moved) for at in range(2000)))
        return 2000

    async def position() -> float:
        for at in range(LOOKUPS):
            streams.position(f"c{at % 2000}", "seed.0")
        return LOOKUPS

    table = (
        ("publish_message", publish, 50_000),
        ("get_message_by_sequence", get, 100_000),
        ("update_consumer_position", move, 80_000),
        ("get_consumer_position", position, 100_000),
    )
    beside = await _tarantool_rates(setting)
    found: list[Row] = []
    for name, work, goal in table:
        rates = await _rates(rounds, work)
        shown = count_rate(sorted(rates)[len(rates) // 2])
        theirs = f"Tarantool {count_rate(beside[name])}" if beside else ""
        title = f"streams: {name}, the seed's figure"
        found.append(limit_row(title, rates, unit="/s", goal=goal, at_least=True, ours=shown, beside=theirs))
    return found


async def _tarantool_rates(setting: Setting) -> dict[str, float]:
    """The same functions in a Tarantool, over its protocol and with many calls in flight, if this machine has one."""
    try:
        from penstock.broker.streams.tarantool import connect, install
        from tests.debian_tools import NotAvailableError
        from tests.e2e.stream.tarantool_server import running_tarantool
    except ModuleNotFoundError:
        return {}
    calls: dict[str, Callable[[int], list[object]]] = {
        "publish_message": lambda at: [f"seed.{at % SUBJECTS}", "minio/x", {}],
        "get_message_by_sequence": lambda at: [1 + at % 1000],
        "update_consumer_position": lambda at: [f"c{at}", "seed.0", at],
        "get_consumer_position": lambda at: [f"c{at % 2000}", "seed.0"],
    }
    rates: dict[str, float] = {}
    try:
        with running_tarantool(setting.directory("tarantool")) as url:
            connection = await connect(url)
            await install(connection)
            for name, arguments in calls.items():
                started = time.perf_counter()
                for _ in range(5):
                    await asyncio.gather(*(connection.call(name, arguments(at)) for at in range(1000)))
                rates[name] = 5000 / (time.perf_counter() - started)
            await connection.disconnect()
    except NotAvailableError:
        return {}
    return rates
