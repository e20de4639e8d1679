"""Damage to what is stored, one record at a time, under a broker: it starts, serves what is sound and nothing that is wrong,
tells what is lost, and goes on without that when it is told to."""

from __future__ import annotations

import asyncio
from random import Random
from typing import NamedTuple

import pytest

from penstock.blob import BlobId, FilePiece
from penstock.blob.channel import place_of, size_part_of
from penstock.blob.journal import chunk_name
from penstock.broker import Broker, BrokerOptions, CompactionOptions, PartitionDamagedError, Topic, TopicConfig
from penstock.core.errors import CorruptionError, PenstockError
from penstock.queue import Partition, in_place
from penstock.testing.batches import make_batch, values_of
from penstock.testing.sim_disk import SimPlatter
from penstock.testing.sim_loop import run_simulation
from tests.sim_tablet import DATA, LOG, SimNode, content

MESSAGES = 40
SEED = 5


class Record(NamedTuple):
    """A record of a disk's log, and where it lies."""

    blob: BlobId
    name: str
    offset: int


def _records(node: SimNode, tablets: set[int]) -> list[Record]:
    """The records of these tablets that are wanted."""
    found: list[Record] = []
    (life,) = [task.result() for task in node.storage._lives.values()]
    index = life.vdisks[0].index
    for channel_key, channel in index.channels.items():
        for key in channel.blobs:
            for entry in channel.entries(key):
                place = place_of(entry)
                blob = BlobId.unpack(channel_key + key + size_part_of(entry).to_bytes(4, "big")).whole()
                if blob.tablet in tablets:
                    found.append(Record(blob, chunk_name(place.chunk), place.offset))
    return found


async def _start(node: SimNode, options: BrokerOptions | None = None) -> Broker:
    node.start()
    return await Broker.start(node.storage, options or BrokerOptions(), clock=node.clock, random=Random(SEED))


async def _stop(node: SimNode, broker: Broker) -> None:
    await broker.stop()
    await node.storage.close()


async def _fill(broker: Broker) -> None:
    """Two topics: heads of small pieces and of larger ones, bodies, several commits."""
    for name in ("one", "two"):
        topic = await broker.create_topic(name, 2)
        for number in range(MESSAGES):
            size = 20_000 if number % 4 == 0 else 300
            await broker.produce(topic, number % 2, make_batch([content(size, number)], timestamp=1000 + number))
            if number == MESSAGES // 2:
                await broker.partition(topic, 0).roll_head()


async def _read(partition: Partition) -> dict[int, bytes]:
    """What a reader sees, by offset."""
    found: dict[int, bytes] = {}
    offset = partition.start_offset
    while offset < partition.end_offset:
        result = await partition.read(offset, 100_000)
        assert result.next_offset > offset
        data = b"".join(batch for batch in result.batches if not isinstance(batch, FilePiece))
        found |= {place: value for place, value in _values(data) if place >= offset}
        offset = result.next_offset
    return found


def _values(data: bytes) -> list[tuple[int, bytes]]:
    """The messages of batches, fillers left out as clients leave them out."""
    found: list[tuple[int, bytes]] = []
    at = 0
    while at < len(data):
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if not data[at + 22] & 0x20:
            found += values_of(data[at:end])
        at = end
    return found


async def _made() -> tuple[dict[str, bytes], list[Record], dict[tuple[str, int], dict[int, bytes]]]:
    """A disk as a broker left it, the records of the first topic on it, and what was in all of them."""
    node = SimNode()
    broker = await _start(node)
    await _fill(broker)
    topics = [broker.catalog.topic(name) for name in ("one", "two")]
    stored = {(topic.name, number): await _read(broker.partition(topic, number)) for topic in topics for number in range(2)}
    records = _records(node, set(topics[0].tablets))
    await _stop(node, broker)
    return node.platters[0].snapshot(), records, stored


def _hurt_node(files: dict[str, bytes], record: Record, at: int) -> SimNode:
    node = SimNode()
    platter = SimPlatter()
    for name, data in files.items():
        platter.write(name, data)
    platter.rot(Random(1), record.name, record.offset + at)
    node.platters[0] = platter
    return node


async def _seen(broker: Broker, topic: Topic, stored: dict[tuple[str, int], dict[int, bytes]]) -> set[int]:
    """The partitions of a topic that are damaged; the others must be as they were, and say so with an error that names them."""
    damaged: set[int] = set()
    for number in range(2):
        try:
            assert await _read(broker.partition(topic, number)) == stored[topic.name, number]
        except (CorruptionError, PartitionDamagedError) as error:
            told = str(error)
            damaged.add(number)
            assert all(words in told for words in (f"partition {number}", "penstock topic repair"))
    return damaged


@pytest.mark.parametrize("at", [70, 20], ids=["body", "header"])
def test_a_damaged_record_of_one_topic_keeps_no_other_from_being_served(at: int) -> None:
    async def scenario() -> None:
        files, records, stored = await _made()
        assert {record.blob.channel for record in records} >= {LOG, DATA}
        lost_some = 0
        for record in records:
            node = _hurt_node(files, record, at)
            async with asyncio.timeout(600):
                broker = await _start(node)
            one, two = broker.catalog.topic("one"), broker.catalog.topic("two")
            assert await _seen(broker, two, stored) == set()
            damaged = await _seen(broker, one, stored)
            found = await broker.examine(one)
            assert {number for number, lost in found.offsets.items() if lost} <= damaged
            lost_some += bool(damaged)
            assert await broker.give_up_lost(one) == found
            for number in range(2):
                partition = broker.partition(one, number)
                lost = {place for first, end in found.offsets.get(number, ()) for place in range(first, end)}
                kept = await _read(partition)
                end = partition.end_offset
                if found.log:
                    lost |= set(range(end, MESSAGES))  # nothing tells how many messages an entry had at the end of a partition
                    assert end >= max(stored["one", number])
                else:
                    assert end == max(stored["one", number]) + 1
                assert kept == {place: value for place, value in stored["one", number].items() if place not in lost}, record
                produced = await broker.produce(one, number, make_batch([b"after"]))
                assert produced.base_offset == end
            await _stop(node, broker)
            # It stays so.
            broker = await _start(node)
            assert (await broker.examine(broker.catalog.topic("one"))).is_none
            await _stop(node, broker)
        assert lost_some > len(records) // 2

    run_simulation(scenario())


def test_a_damaged_partition_keeps_no_other_from_being_compacted() -> None:
    """Compaction of the damaged one fails, is counted, and is tried again."""

    async def scenario() -> None:
        node = SimNode()
        broker = await _start(node)
        config = TopicConfig({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
        for name in ("damaged", "sound"):
            topic = await broker.create_topic(name, 1, config)
            for number in range(4):
                await broker.produce(topic, 0, make_batch([content(20_000, number)], key=b"same", timestamp=1000))
            await broker.partition(topic, 0).roll_head()
        (tablet,) = broker.catalog.topic("damaged").tablets
        record = max(_records(node, {tablet}), key=lambda record: record.blob.size)
        await _stop(node, broker)
        node = _hurt_node(node.platters[0].snapshot(), record, 70)
        broker = await _start(node, BrokerOptions(compaction=CompactionOptions(interval_s=10.0, offload=in_place)))
        sound = broker.partition(broker.catalog.topic("sound"), 0)
        assert len(await _read(sound)) == 4
        await asyncio.sleep(25)
        assert list(await _read(sound)) == [3]
        assert broker.probe.compaction_failures == 2
        with pytest.raises(CorruptionError):
            await _read(broker.partition(broker.catalog.topic("damaged"), 0))
        await _stop(node, broker)

    run_simulation(scenario())


def test_a_damaged_system_tablet_says_what_it_is_and_what_to_do() -> None:
    async def scenario() -> None:
        node = SimNode()
        broker = await _start(node)
        await _fill(broker)
        records = _records(node, {2})
        await _stop(node, broker)
        files = node.platters[0].snapshot()
        hurt = _hurt_node(files, records[-1], 70)
        with pytest.raises(PenstockError, match=r"system tablet 2 \(topics, .*give_up_tablets"):
            await _start(hurt)
        await hurt.storage.close()
        hurt.start()
        options = BrokerOptions(give_up_tablets=frozenset({2}))
        broker = await Broker.start(hurt.storage, options, clock=hurt.clock, random=Random(SEED))
        assert len(broker.catalog.topics()) >= 1
        await _stop(hurt, broker)
        await _stop(hurt, await _start(hurt))

    run_simulation(scenario())
