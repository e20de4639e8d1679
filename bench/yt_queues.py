"""Queues over HTTP as YT's clients use them: rows in and rows out per second of the node's own CPU, the same beside a server that
does nothing, and the agent's pass."""

from __future__ import annotations

import asyncio
import http.client
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from subprocess import PIPE, Popen

from bench.measure import Duel, Row, Setting, count_rate, limit_row
from bench.process_cpu import cpu_s

ROWS = 10_000
TEXT = "x" * 100
INSERT_GOAL, PULL_GOAL = 150_000, 300_000
PARTITIONS = 10_000
PASS_GOAL_S = 0.5
INSERT = '{path="//tmp/q";input_format=yson}'
SCHEMA = (
    '[{name=data;type=string};{name=number;type=int64};{name="$timestamp";type=uint64};'
    '{name="$cumulative_data_weight";type=int64}]'
)


async def rows(setting: Setting) -> list[Row]:
    """insert_rows, pull_consumer, and one pass over many partitions."""
    found = await asyncio.to_thread(_http_rows, setting)
    found.append(await _agent_row(setting))
    return found


def _http_rows(setting: Setting) -> list[Row]:
    from yt import yson

    node = [sys.executable, "-m", "penstock.cli.main", "up", "-o", "json", "--kafka-port", "none", "--yt-port", "0"]
    node += ["--http-port", "none", "--data-dir", str(setting.directory("yt")), "--log-level", "warning"]
    batch = [{"data": TEXT, "number": number} for number in range(ROWS)]
    body = bytes(yson.dumps(batch, yson_type="list_fragment", yson_format="binary"))
    rounds = setting.rounds(50)
    null = [sys.executable, "-m", "bench.yt_null"]
    with _node(node) as (pid, port), _listening(null) as null_port:
        ask, asked = _Asker(port), (_Asker(null_port), _Asker(port))
        ask("POST", "create", '{type=table;path="//tmp/q";attributes={dynamic=%true;schema=' + SCHEMA + "}}")
        ask("POST", "create", '{type=queue_consumer;path="//tmp/c"}')
        ask("POST", "mount_table", '{path="//tmp/q"}')
        ask("POST", "register_queue_consumer", '{queue_path="//tmp/q";consumer_path="//tmp/c";vital=%true}')
        written = _rates(pid, rounds, lambda at: ask("PUT", "insert_rows", INSERT, body))
        pull = '{consumer_path="//tmp/c";queue_path="//tmp/q";partition_index=0;offset=%d;max_row_count=%d;output_format=yson}'
        read = _rates(pid, rounds, lambda at: ask("GET", "pull_consumer", pull % (at * ROWS, ROWS)))
        advance = '{consumer_path="//tmp/c";queue_path="//tmp/q";partition_index=0;new_offset=%d}'
        beside = [
            _beside(
                rounds, f"yt: insert_rows of {ROWS:,} rows", ROWS, lambda at, to: to("PUT", "insert_rows", INSERT, body), asked
            ),
            _beside(
                rounds,
                f"yt: pull_consumer of {ROWS:,} rows",
                ROWS,
                lambda at, to: to("GET", "pull_consumer", pull % (at * ROWS, ROWS)),
                asked,
            ),
            _beside(rounds, "yt: advance_consumer", 1, lambda at, to: to("POST", "advance_consumer", advance % at), asked),
        ]
    return [
        *beside,
        _row(f"yt: insert_rows of {ROWS:,} rows of 100 bytes, a second of CPU", written, INSERT_GOAL),
        _row(f"yt: pull_consumer of {ROWS:,} rows in binary YSON, a second of CPU", read, PULL_GOAL),
    ]


class _Asker:
    """Sends commands, one after another, on one connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def __call__(self, method: str, command: str, parameters: str, body: bytes = b"") -> None:
        self._connection.request(method, f"/api/v4/{command}", body, {"X-YT-Parameters": parameters})
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{command}: {content[:500]!r}")


Work = Callable[[int, _Asker], None]


def _beside(rounds: int, name: str, count: int, work: Work, asked: tuple[_Asker, _Asker]) -> Row:
    """The rate of a command beside that of a server that does nothing, both in turns; each round is a few requests."""
    duel = Duel()
    for at in range(rounds):
        rates: list[float] = []
        for asker in asked:
            started = time.perf_counter()
            for _ in range(5):
                work(at, asker)
            rates.append(5 * count / (time.perf_counter() - started))
        duel.raw.append(rates[0])
        duel.ours.append(rates[1])
    return duel.row(f"{name}, beside an aiohttp server that does nothing", show=count_rate, goal=None)


@contextmanager
def _listening(argv: list[str]) -> Iterator[int]:
    """A server that prints its port."""
    with Popen(argv, stdout=PIPE) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.terminate()
            process.wait()


def _rates(pid: int, rounds: int, work: object) -> list[float]:
    """Rows per second of CPU that the node used, in several shares of the rounds."""
    assert callable(work)
    share = max(rounds // 5, 2)
    found: list[float] = []
    for begin in range(0, rounds, share):
        before = cpu_s(pid)
        for at in range(begin, begin + share):
            work(min(at, rounds - 1))
        found.append(share * ROWS / (cpu_s(pid) - before))
    return found


def _row(name: str, rates: list[float], goal: float) -> Row:
    middle = sorted(rates)[len(rates) // 2]
    return limit_row(name, rates, unit="rows/s", goal=goal, at_least=True, ours=count_rate(middle))


@contextmanager
def _node(argv: list[str]) -> Iterator[tuple[int, int]]:
    """A node: its process and the port of its YT listener."""
    with Popen(argv, stdout=PIPE) as process:
        try:
            assert process.stdout is not None
            yield process.pid, json.loads(process.stdout.readline())["listeners"]["yt"]["port"]
        finally:
            process.terminate()
            process.wait()


async def _agent_row(setting: Setting) -> Row:
    """The CPU of a pass over queues with many partitions, while nothing else happens."""
    from penstock.blob import BlobStorage, Erasure, GroupConfig
    from penstock.broker import Broker, BrokerOptions
    from penstock.core.clock import SystemClock

    group = GroupConfig(0, Erasure.NONE, (setting.directory("agent"),))
    storage = BlobStorage([group], clock=SystemClock(), random=Random(1))
    broker = await Broker.start(storage, BrokerOptions(), clock=SystemClock(), random=Random(2))
    try:
        for number in range(10):
            await broker.create_topic(f"topic-{number}", PARTITIONS // 10)
        samples: list[float] = []
        for _ in range(setting.rounds(25)):
            before = time.process_time()
            await broker.queue_agent.once()
            samples.append(time.process_time() - before)
    finally:
        await broker.stop()
        await storage.close()
    return limit_row(f"yt: a pass of the queue agent over {PARTITIONS:,} partitions", samples, unit="s", goal=PASS_GOAL_S)
