"""What one synchronous producer feels while a topic beside it is written and compacted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.kafka_peer.coordination_client import COMPACTED, messages_in
from bench.kafka_peer.window import Window, percentiles

ROOT = Path(__file__).resolve().parents[2]
KEYS = 100
PACE = 10_000  # keyed messages of 1 KiB a second
BURST_S = 0.02
LEAD_S = 3.0


def under_compaction(address: str, topic: str, *, seconds: float, broker_pid: int) -> dict[str, float]:
    """Keyed writes from another process keep the compaction of one topic at work; the latency of a producer to another topic."""
    compacted = f"{topic}-compacted"
    admin = AdminClient({"bootstrap.servers": address})
    topics = [NewTopic(compacted, 1, 1, config=COMPACTED), NewTopic(topic, 12, 1)]
    for future in admin.create_topics(topics).values():
        future.result(60)
    arguments = json.dumps({"address": address, "topic": compacted, "seconds": LEAD_S + seconds})
    command = [sys.executable, "-m", "bench.kafka_peer.client", "keyed_writes", arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as writes:
        time.sleep(LEAD_S)
        measured = _producer(address, topic, seconds, broker_pid)
        output, _ = writes.communicate(timeout=60)
    if writes.returncode != 0:
        raise RuntimeError("the keyed writes failed; their error is above")
    written = json.loads(output)["count"]
    # Half of what was written during the lead and the first half of the window is the least that compaction has to have removed.
    if (left := messages_in(address, compacted)) > written * 0.75:
        raise RuntimeError(f"{left:,} of {written:,} keyed messages are left: compaction did not run while the producer did")
    return measured


def keyed_writes(address: str, topic: str, *, seconds: float) -> dict[str, float]:
    """Messages of few keys at an even pace; how many."""
    producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 5})
    value = os.urandom(1024)
    started, count = time.perf_counter(), 0
    while (now := time.perf_counter()) < started + seconds:
        while count < (now - started) * PACE:
            producer.produce(topic, value, key=b"%d" % (count % KEYS))
            count += 1
        producer.poll(0)
        time.sleep(BURST_S)
    if left := producer.flush(60):
        raise RuntimeError(f"{left} keyed messages were not acknowledged")
    return {"count": float(count)}


def _producer(address: str, topic: str, seconds: float, broker_pid: int) -> dict[str, float]:
    producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0, "socket.nagle.disable": True})
    producer.produce(topic, b"x" * 1024)
    producer.flush(30)
    samples: list[float] = []
    window = Window(broker_pid)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        producer.produce(topic, b"x" * 1024)
        producer.flush(30)
        samples.append(time.perf_counter() - started)
    return {**percentiles(samples), **window.close(len(samples))}
