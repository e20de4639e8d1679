"""What the demo sends through its broker, and the reader that cannot keep up with it: two threads, each with its own client."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from itertools import islice
from random import Random
from typing import Final

from penstock.cli.consumer import Consumer
from penstock.cli.demo_shop import shop_events
from penstock.cli.failure import CommandError, as_command_error
from penstock.cli.group_view import coordinator
from penstock.cli.kafka_client import CommandClient
from penstock.cli.producer import Producer
from penstock.client.messages import MessageDraft
from penstock.client.record_batch import Record
from penstock.core.errors import PenstockError
from penstock.kafka.client import RequestRefusedError
from penstock.kafka.protocol import keys, offsets
from penstock.kafka.protocol.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)

TICK_S: Final = 0.05
PATIENCE_S: Final = 60.0
"How long a client retries while the broker is down."
END_S: Final = 5.0
HEARTBEAT_S: Final = 1.0
SLOW_SHARE: Final = 0.3
JOIN_EPOCH, LEAVE_EPOCH = 0, -1


class _Thread(ABC):
    """Work in a thread of its own that can be told to end, and whose failure is not lost."""

    def __init__(self, name: str) -> None:
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.failure: CommandError | None = None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Have it end, and wait until it has."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join(END_S)

    def _run(self) -> None:
        try:
            self._work()
        except (CommandError, PenstockError) as error:
            self.failure = as_command_error(error)

    @abstractmethod
    def _work(self) -> None:
        """What it does until it is to end."""


class Sender(_Thread):
    """Sends events at a rate. What `send` of the producer has returned for is acknowledged: it is on the broker's disk."""

    def __init__(self, bootstrap: str, topic: str, rate: float, random: Random) -> None:
        super().__init__("sender")
        self._client = CommandClient(bootstrap, PATIENCE_S)
        self._topic = topic
        self._rate = rate
        self._events = shop_events(random)
        self._flowing = threading.Event()
        self._flowing.set()
        self.acknowledged = 0
        self.orders = 0
        self.cents = 0
        self.pause_s_max = 0.0
        "The longest time until one batch was acknowledged."

    def hold(self) -> None:
        """Send nothing more until `go_on`; returns when everything sent is acknowledged."""
        self._flowing.clear()
        while self._sending and self.failure is None:
            time.sleep(TICK_S)

    def go_on(self) -> None:
        """Send again."""
        self._flowing.set()

    _sending = False

    def _work(self) -> None:
        with self._client as client:
            producer = Producer(client, self._topic)
            due = 0.0
            while not self._ending.wait(TICK_S):
                # Set before `_flowing` is checked: a thread that pauses the traffic then sees either no batch or one being sent.
                self._sending = True
                if self._flowing.is_set():
                    due += self._rate * TICK_S
                    self._send(producer, int(due))
                    due -= int(due)
                self._sending = False

    def _send(self, producer: Producer, count: int) -> None:
        events = list(islice(self._events, count))
        began = time.monotonic()
        producer.send([MessageDraft(event.customer.encode(), event.value()) for event in events])
        self.pause_s_max = max(self.pause_s_max, time.monotonic() - began)
        self.acknowledged += len(events)
        self.orders += sum(event.kind == "order" for event in events)
        self.cents += sum(event.cents for event in events)


class SlowReader(_Thread):
    """The one member of a group of the newer protocol, which handles fewer events a second than are sent."""

    def __init__(self, bootstrap: str, topic: str, group: str, rate: float, random: Random) -> None:
        super().__init__("slow reader")
        self._client = CommandClient(bootstrap, PATIENCE_S)
        self._topic_name = topic
        self._group = group
        self._rate = rate
        self._member = f"{random.getrandbits(128):032x}"
        self._epoch = JOIN_EPOCH
        self._heard = 0.0
        self.positions: dict[int, int] = {}
        "The committed offsets that the broker has acknowledged."

    def _work(self) -> None:
        with self._client as client:
            node = coordinator(client, self._group)
            topic = client.topic(self._topic_name)
            self._heartbeat(node, topic.topic_id, [])
            numbers = [item.partition_index for item in topic.partitions]
            arrivals = Consumer(client, topic, dict.fromkeys(numbers, 0), {}).read()
            waiting: deque[tuple[int, Record]] = deque()
            due = 0.0
            try:
                while not self._ending.wait(TICK_S):
                    if time.monotonic() - self._heard > HEARTBEAT_S:
                        self._heartbeat(node, topic.topic_id, numbers)
                    if not waiting:
                        waiting.extend(next(arrivals))
                    due += self._rate * TICK_S
                    handled = [waiting.popleft() for _ in range(min(int(due), len(waiting)))]
                    due -= int(due)
                    if handled:
                        self._commit(node, {number: record.offset + 1 for number, record in handled})
            finally:
                self._epoch = LEAVE_EPOCH
                self._heartbeat(node, topic.topic_id, numbers)

    def _heartbeat(self, node: int, topic_id: bytes, numbers: list[int]) -> None:
        """Say that it is there, what it reads, and what it has."""
        has = [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=numbers)] if numbers else []
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member,
            member_epoch=self._epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[self._topic_name],
            topic_partitions=has,
        )

        def ask() -> ConsumerGroupHeartbeatResponse:
            answer = self._client.node_call(node, keys.CONSUMER_GROUP_HEARTBEAT, request, ConsumerGroupHeartbeatResponse)
            if answer.error_code:
                raise RequestRefusedError(f"group {self._group!r}", answer.error_code, answer.error_message)
            return answer

        self._epoch = self._client.retry(ask).member_epoch
        self._heard = time.monotonic()

    def _commit(self, node: int, reached: dict[int, int]) -> None:
        partitions = [
            offsets.OffsetCommitRequestPartition(partition_index=number, committed_offset=offset, committed_metadata="")
            for number, offset in reached.items()
        ]
        request = offsets.OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._epoch,
            member_id=self._member,
            topics=[offsets.OffsetCommitRequestTopic(name=self._topic_name, partitions=partitions)],
        )

        def ask() -> None:
            answer = self._client.node_call(node, keys.OFFSET_COMMIT, request, offsets.OffsetCommitResponse)
            code = next((item.error_code for topic in answer.topics for item in topic.partitions if item.error_code), 0)
            if code:
                raise RequestRefusedError(f"group {self._group!r}", code)

        self._client.retry(ask)
        self.positions |= reached


def wait_until(is_so: Callable[[], bool], seconds: float, *, pause_s: float = TICK_S) -> bool:
    """Look again and again until something is so; whether it came to be in time."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
    return True
