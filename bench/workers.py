"""Synchronous producers against one worker and against two, in turns in one run."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.kafka_peer.raw_load import Crowd
from bench.kafka_peer.wires import KafkaProduce, Wire
from bench.measure import Row, Setting, quartiles

PRODUCERS = 64
PARTITIONS = 64
TOPIC = "workers"
WINDOW_S = 2.0
CREATE_S = 60.0
STOP_S = 60.0
GOAL = 1.5  # on two cores, which the load generator shares with the workers


async def rows(setting: Setting) -> list[Row]:
    """1 KiB messages, each producer waiting for its acknowledgement, on connections to the leaders of their partitions."""
    return [await _compared(setting, durability) for durability in ("os", "fsync")]


async def _compared(setting: Setting, durability: str) -> Row:
    rates: dict[int, list[float]] = {1: [], 2: []}
    directory = setting.directory(f"workers-{durability}")
    with _node(directory, 1, durability) as one, _node(directory, 2, durability) as two:
        sides = {1: await _connected(one), 2: await _connected(two)}
        for number in range(setting.rounds(15) + 1):
            for workers in (1, 2) if number % 2 else (2, 1):
                rate = await _rate(sides[workers])
                if number:
                    rates[workers].append(rate)
        for crowd in (*sides[1], *sides[2]):
            crowd.close()
    ratios = [several / alone for alone, several in zip(rates[1], rates[2], strict=True)]
    name = f"{PRODUCERS} synchronous producers, 2 workers over 1, {durability}"
    ours, beside = f"{median(rates[2]):,.0f}/s", f"1 worker {median(rates[1]):,.0f}/s"
    return Row(name, ours, beside, median(ratios), "x", GOAL, True, *quartiles(ratios))


@contextmanager
def _node(directory: Path, workers: int, durability: str) -> Iterator[str]:
    """`penstock up` with so many workers; where its Kafka listener is."""
    options = ["--data-dir", str(directory / str(workers)), "--kafka-port", "0", "--http-port", "none"]
    options += ["--workers", str(workers), "--durability", durability, "--log-level", "error"]
    process = subprocess.Popen([sys.executable, "-m", "penstock.cli.main", "up", "-o", "json", *options], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        listener = json.loads(process.stdout.readline())["listeners"]["kafka"]
        yield f"{listener['host']}:{listener['port']}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_S)
        process.stdout.close()


async def _connected(bootstrap: str) -> list[Crowd]:
    """The producers, connected to the leaders of their partitions: one crowd a leader."""
    leaders = await asyncio.to_thread(_leaders, bootstrap)
    wires: dict[str, list[Wire]] = defaultdict(list)
    for producer in range(PRODUCERS):
        partition = producer % PARTITIONS
        wires[leaders[partition]].append(KafkaProduce(TOPIC, partition))
    crowds = [Crowd(address, of_leader) for address, of_leader in wires.items()]
    for crowd in crowds:
        await crowd.connect()
    return crowds


def _leaders(bootstrap: str) -> dict[int, str]:
    """Create the topic; the address of each partition's leader."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        created.result(CREATE_S)
    metadata = admin.list_topics(TOPIC, timeout=CREATE_S)
    brokers = {number: f"{broker.host}:{broker.port}" for number, broker in metadata.brokers.items()}
    return {number: brokers[partition.leader] for number, partition in metadata.topics[TOPIC].partitions.items()}


async def _rate(crowds: list[Crowd]) -> float:
    """Messages a second of all of them in one window."""
    measured = await asyncio.gather(*(crowd.work(WINDOW_S, None) for crowd in crowds))
    return sum(found["rate"] for found in measured)
