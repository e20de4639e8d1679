"""Load on what brokers coordinate: groups, transactions, positions and compaction. The same code drives both brokers."""

from __future__ import annotations

import asyncio
import os
import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.kafka_peer.window import Window
from penstock.kafka.protocol import encode_request, keys
from penstock.kafka.protocol.offsets import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic

IN_FLIGHT = 32
COMMIT_VERSION = 8
HEARTBEAT_MS = 300
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "1000",
    "segment.bytes": str(8 << 20),
    "max.compaction.lag.ms": "1000",
}


def groups(address: str, topic: str, *, groups: int, members: int, count: int, broker_pid: int) -> dict[str, float]:
    """Every group reads all messages of a topic through its members; the seconds from joining to the last message."""
    ends: list[float] = []
    started = time.perf_counter()
    names = [f"readers-{os.getpid()}-{number}" for number in range(groups)]
    threads = [
        threading.Thread(target=_read_with, args=([_member(address, name) for _ in range(members)], topic, count, ends))
        for name in names
    ]
    window = Window(broker_pid)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    measured = window.close(groups * count)
    if len(ends) != groups:
        raise RuntimeError(f"{groups - len(ends)} groups did not read everything")
    return {**measured, "s": max(ends) - started}


def transactions(address: str, topic: str, *, count: int, each: int, size: int) -> dict[str, float]:
    """Transactions one after another, so many messages in each; the seconds all took."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": f"bench-{os.getpid()}", "linger.ms": 0})
    producer.init_transactions(60)
    value = os.urandom(size)

    def run(transactions: int) -> float:
        started = time.perf_counter()
        for _ in range(transactions):
            producer.begin_transaction()
            for _ in range(each):
                producer.produce(topic, value)
            producer.commit_transaction(60)
        return time.perf_counter() - started

    run(1)  # connects
    return {"s": run(count)}


def commits(address: str, topic: str, *, connections: int, seconds: float) -> dict[str, float]:
    """Offset commits, pipelined on raw connections; how many are answered a second."""
    return {"rate": asyncio.run(_commit_all(address, topic, connections, seconds))}


def compaction(address: str, topic: str, *, count: int, keys_of: int, size: int) -> dict[str, float]:
    """A compacted topic is filled with few keys; the seconds until a reader from the beginning gets few messages."""
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(topic, 1, 1, config=COMPACTED)]).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5, "queue.buffering.max.kbytes": 2_000_000})
    value = os.urandom(size)
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, key=b"%d" % (number % keys_of))
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush(120)
    started = time.perf_counter()
    while (left := messages_in(address, topic)) > count // 10:
        if time.perf_counter() - started > 300:
            raise RuntimeError(f"{left} of {count} messages are still there")
        # A write now and then lets Kafka roll its active segment, which it does not compact.
        producer.produce(topic, value, key=b"0")
        producer.flush(10)
    return {"s": time.perf_counter() - started}


def _read_with(consumers: list[Consumer], topic: str, count: int, ends: list[float]) -> None:
    for consumer in consumers:
        consumer.subscribe([topic])
    got = 0
    deadline = time.perf_counter() + 120
    while got < count and time.perf_counter() < deadline:
        for consumer in consumers:
            got += len(consumer.consume(10_000, 0.05))
    if got >= count:
        ends.append(time.perf_counter())
    for consumer in consumers:
        consumer.close()


def _member(address: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "session.timeout.ms": 10_000,
            "fetch.queue.backoff.ms": 1,
        }
    )


async def _commit_all(address: str, topic: str, connections: int, seconds: float) -> float:
    host, port = address.split(":")
    counts = [0] * connections
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    place = OffsetCommitRequestTopic(name=topic, partitions=[partition])

    async def run(number: int) -> None:
        request = OffsetCommitRequest(group_id=f"committer-{number}", topics=[place])
        frame = b"".join(encode_request(keys.OFFSET_COMMIT, COMMIT_VERSION, 0, "bench", request)[0])
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(frame * IN_FLIGHT)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            if answer[-4:-2] != b"\0\0":  # the error code, before the empty tags of partition and topic
                raise RuntimeError(f"a commit was refused: {answer.hex()}")
            counts[number] += 1
            writer.write(frame)
        writer.close()

    started = time.perf_counter()
    await asyncio.gather(*(run(number) for number in range(connections)))
    return sum(counts) / (time.perf_counter() - started)


def messages_in(address: str, topic: str) -> int:
    """How many messages a reader from the beginning of a partition gets. It is told where that is and who leads the partition:
    to find out by itself takes the client a second, whatever the broker."""
    options = {"bootstrap.servers": address, "group.id": "count", "enable.partition.eof": True, "fetch.wait.max.ms": 10}
    consumer = Consumer(options)
    low, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), 10, cached=False)
    consumer.assign([TopicPartition(topic, 0, low)])
    consumer.list_topics(topic)
    count = 0
    while True:
        for message in consumer.consume(1_000, 0.02):
            if message.error() is not None:
                consumer.close()
                return count
            count += 1
