"""Synchronous producers against one worker and against two, in turns in one run.

The producers take processor time as well, from the same cores. So beside the rates stands what a message costs the workers and
the producers, and `cores busy`: with two workers there is no more to be had when all cores are. The last rows give each worker a
part of a core, which leaves room for all of them on a small machine: they tell how workers scale where there are enough cores.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.core_shares import core_shares, descendants
from bench.kafka_peer.raw_load import Crowd, leaders
from bench.kafka_peer.wires import KafkaProduce
from bench.measure import Row, Setting, limit_row, quartiles
from bench.process_cpu import tree_cpu_s

PRODUCERS = 64
PARTITIONS = 64
TOPIC = "workers"
WINDOW_S = 2.0
CREATE_S = 60.0
STOP_S = 60.0
GOAL = 1.5  # on two cores, which the load generator shares with the workers
SHARE = 0.4  # of a core, for a worker


class Side(NamedTuple):
    """A node with its workers, and the producers that write to it."""

    pid: int
    crowd: Crowd


class Window(NamedTuple):
    """Messages a second, and what one cost the workers and the producers, in seconds of processor time."""

    rate: float
    workers_s: float
    producers_s: float

    @property
    def cores_busy(self) -> float:
        """Of those that the machine has."""
        return self.rate * (self.workers_s + self.producers_s)


async def rows(setting: Setting) -> list[Row]:
    """1 KiB messages, each producer waiting for its acknowledgement, on connections to the leaders of their partitions."""
    found = [row for durability in ("os", "fsync") for row in await _compared(setting, durability)]
    try:
        for durability in ("os", "fsync"):
            found += await _compared(setting, durability, share=SHARE)
    except OSError as error:
        print(f"workers with {SHARE} of a core each were not measured: {error}", file=sys.stderr)
    return found


async def _compared(setting: Setting, durability: str, *, share: float | None = None) -> list[Row]:
    windows: dict[int, list[Window]] = {1: [], 2: []}
    directory = setting.directory(f"workers-{durability}-{share}")
    with ExitStack() as stack:
        sides: dict[int, Side] = {}
        for workers in windows:
            pid, bootstrap = stack.enter_context(_node(directory, workers, durability))
            if share is not None:
                stack.enter_context(core_shares(f"bench-{os.getpid()}-{workers}", descendants(pid), share))
            crowd = await _connected(bootstrap)
            stack.callback(crowd.close)
            sides[workers] = Side(pid, crowd)
        for number in range(setting.rounds(15) + 1):
            for workers in (1, 2) if number % 2 else (2, 1):
                window = await _measure(sides[workers])
                if number:
                    windows[workers].append(window)
    pairs = list(zip(windows[1], windows[2], strict=True))
    ratios = [several.rate / alone.rate for alone, several in pairs]
    name = f"{PRODUCERS} synchronous producers, 2 workers over 1, {durability}"
    if share is not None:
        name += f", {share} of a core for each worker"
    ours, beside = (f"{workers} worker{'s' * (workers > 1)} {_told(windows[workers])}" for workers in (2, 1))
    costs = [several.workers_s / alone.workers_s for alone, several in pairs]
    return [
        Row(name, ours, beside, median(ratios), "x", GOAL, True, *quartiles(ratios)),
        limit_row(f"{name}: CPU of the workers a message", costs, unit="x", goal=None),
    ]


def _told(windows: list[Window]) -> str:
    rate, workers_s, producers_s = (median(values) for values in zip(*windows, strict=True))
    busy = median(window.cores_busy for window in windows)
    costs = f"{1e6 * workers_s:.0f} us of workers and {1e6 * producers_s:.0f} us of producers"
    return f"{rate:,.0f}/s, {costs} a message, {busy:.2f} of {os.cpu_count()} cores busy"


@contextmanager
def _node(directory: Path, workers: int, durability: str) -> Iterator[tuple[int, str]]:
    """`penstock up` with so many workers; its process, and where its Kafka listener is."""
    options = ["--data-dir", str(directory / str(workers)), "--kafka-port", "0", "--http-port", "none"]
    options += ["--workers", str(workers), "--durability", durability, "--log-level", "error"]
    process = subprocess.Popen([sys.executable, "-m", "penstock.cli.main", "up", "-o", "json", *options], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        listener = json.loads(process.stdout.readline())["listeners"]["kafka"]
        yield process.pid, f"{listener['host']}:{listener['port']}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_S)
        process.stdout.close()


async def _connected(bootstrap: str) -> Crowd:
    """The producers, connected to the leaders of their partitions."""
    await asyncio.to_thread(_create, bootstrap)
    owners = await asyncio.to_thread(leaders, bootstrap, TOPIC)
    partitions = [producer % PARTITIONS for producer in range(PRODUCERS)]
    crowd = Crowd([(owners[partition], KafkaProduce(TOPIC, partition)) for partition in partitions])
    await crowd.connect()
    return crowd


def _create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # kept until it has the answer
    for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        created.result(CREATE_S)


async def _measure(side: Side) -> Window:
    """All producers of a side in one window."""
    workers_s, producers_s = tree_cpu_s(side.pid), time.process_time()
    measured = await side.crowd.work(WINDOW_S, None)
    workers_s, producers_s = tree_cpu_s(side.pid) - workers_s, time.process_time() - producers_s
    messages = measured["rate"] * measured["s"]
    return Window(measured["rate"], workers_s / messages, producers_s / messages)
