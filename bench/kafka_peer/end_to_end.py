"""From a producer's send to a consumer's hands: messages at a steady pace, each with the time it was sent."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Callable
from struct import Struct

import uvloop
from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from bench.kafka_frames import fetch_frame
from bench.kafka_peer.raw_load import PARTITIONS
from bench.kafka_peer.window import Window, percentiles
from bench.kafka_peer.wires import (
    NATS_HELLO,
    STREAM,
    KafkaProduce,
    NatsPublish,
    Wire,
    nats_publish,
    take_messages,
)

VALUE_BYTES = 1024
PACE = 500  # messages a second
WARM_UP_S = 1.0
DRAIN_S = 10.0
MARK = b"sent at "
_SENT_AT = Struct(">d")
_STAMP = re.compile(re.escape(MARK) + b"(.{8})", re.DOTALL)


def stamped() -> bytes:
    """A value with the time of now."""
    return (MARK + _SENT_AT.pack(time.perf_counter())).ljust(VALUE_BYTES, b"x")


def latencies(data: bytes) -> list[float]:
    """How old the stamped values in some bytes are."""
    now = time.perf_counter()
    return [now - _SENT_AT.unpack(stamp)[0] for stamp in _STAMP.findall(data)]


def end_to_end(address: str, topic: str, *, seconds: float, broker_pid: int) -> dict[str, float]:
    """librdkafka on both sides, twelve partitions, no linger; the producer waits for no acknowledgement."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "end-to-end", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, OFFSET_END) for number in range(PARTITIONS)])
    producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0, "socket.nagle.disable": True})
    samples: list[float] = []
    sent = threading.Event()
    expected = 0

    def consume() -> None:
        deadline = float("inf")
        while time.perf_counter() < deadline and not (sent.is_set() and len(samples) >= expected):
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                samples.extend(latencies(message.value() or b""))
            if sent.is_set() and deadline == float("inf"):
                deadline = time.perf_counter() + DRAIN_S

    consumer.poll(2.0)  # connects, and finds the ends of the partitions
    reader = threading.Thread(target=consume)
    reader.start()

    def send(number: int) -> None:
        producer.produce(topic, stamped(), partition=number % PARTITIONS)
        producer.poll(0)

    _at_pace(WARM_UP_S, send)
    producer.flush(30)
    time.sleep(0.2)
    samples.clear()
    window = Window(broker_pid)
    expected = _at_pace(seconds, send)
    measured = window.close(expected)
    left = producer.flush(30)
    sent.set()
    reader.join()
    consumer.close()
    if left or len(samples) < expected:
        raise RuntimeError(f"{len(samples)} of {expected} messages arrived, {left} were not acknowledged")
    return {**percentiles(samples), **measured}


def _at_pace(seconds: float, send: Callable[[int], None]) -> int:
    """Call at even intervals with the number of the call; how often."""
    started, count = time.perf_counter(), 0
    while (now := time.perf_counter()) < started + seconds:
        if now < started + count / PACE:
            time.sleep(started + count / PACE - now)
        send(count)
        count += 1
    return count


def raw_end_to_end(address: str, topic: str, *, wire: str, seconds: float, broker_pid: int) -> dict[str, float]:
    """The same on raw connections and one partition or subject, for peers that speak another protocol."""
    return uvloop.run(_raw_end_to_end(address, topic, wire, seconds, broker_pid))


async def _raw_end_to_end(address: str, topic: str, kind: str, seconds: float, broker_pid: int) -> dict[str, float]:
    host, port = address.split(":")
    reading, asking = await asyncio.open_connection(host, int(port))
    replies, sending = await asyncio.open_connection(host, int(port))
    wire: Wire = NatsPublish(0, 0) if kind == "nats" else KafkaProduce(topic, 0)
    sending.write(wire.hello)
    samples: list[float] = []
    wanted: list[int] = []
    consume = _nats_messages(reading, asking) if kind == "nats" else _kafka_messages(reading, asking, topic)
    consuming = asyncio.create_task(_note(consume, samples, wanted))
    acknowledging = asyncio.create_task(_acknowledged(replies, wire))
    await _send_at_pace(sending, wire, WARM_UP_S)
    await asyncio.sleep(0.2)
    samples.clear()
    window = Window(broker_pid)
    expected = await _send_at_pace(sending, wire, seconds)
    measured = window.close(expected)
    wanted.append(expected)
    if len(samples) < expected:
        await asyncio.wait([consuming], timeout=DRAIN_S)
    for task in (consuming, acknowledging):
        if task.done():
            task.result()
        task.cancel()
    for writer in (asking, sending):
        writer.close()
    if len(samples) < expected:
        raise RuntimeError(f"{len(samples)} of {expected} messages arrived")
    return {**percentiles(samples), **measured}


async def _send_at_pace(writer: asyncio.StreamWriter, wire: Wire, seconds: float) -> int:
    started, count = time.perf_counter(), 0
    while (now := time.perf_counter()) < started + seconds:
        await asyncio.sleep(max(started + count / PACE - now, 0))
        writer.write(wire.request(stamped()))
        count += 1
    return count


async def _acknowledged(reader: asyncio.StreamReader, wire: Wire) -> None:
    received = bytearray()
    while data := await reader.read(1 << 16):
        received += data
        wire.take(received)


async def _note(messages: AsyncIterator[list[float]], samples: list[float], wanted: list[int]) -> None:
    """Collect latencies until as many have arrived as it is told are wanted."""
    async for arrived in messages:
        samples += arrived
        if wanted and len(samples) >= wanted[0]:
            return


async def _kafka_messages(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, topic: str) -> AsyncIterator[list[float]]:
    """Long polls from the beginning of an empty topic on: every record is one offset."""
    offset = 0
    while True:
        writer.write(fetch_frame(topic, 0, offset, max_wait_ms=500))
        size = int.from_bytes(await reader.readexactly(4), "big")
        arrived = latencies(await reader.readexactly(size))
        offset += len(arrived)
        yield arrived


async def _nats_messages(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AsyncIterator[list[float]]:
    """A consumer that the server pushes to, without acknowledgements, from now on."""
    inbox = b"_INBOX.deliver"
    config = {"deliver_subject": inbox.decode(), "ack_policy": "none", "deliver_policy": "new"}
    body = json.dumps({"stream_name": STREAM, "config": config}).encode()
    writer.write(NATS_HELLO + b"SUB %b 1\r\n" % inbox)
    writer.write(nats_publish(b"$JS.API.CONSUMER.CREATE." + STREAM.encode(), b"_INBOX.none", body))
    received = bytearray()
    while data := await reader.read(1 << 16):
        received += data
        yield [latency for payload in take_messages(received) for latency in latencies(payload)]
