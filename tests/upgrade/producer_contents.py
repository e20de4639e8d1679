"""What is kept of producers and groups: sequences, transactions, committed offsets."""

from __future__ import annotations

import time
from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition

from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.produce import PartitionProduceResponse, ProduceResponse
from penstock.kafka.protocol.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.testing.batches import make_batch
from tests.e2e.kafka.raw_client import produce_request
from tests.upgrade.clients import TIMEOUT_S, Clients
from tests.upgrade.content import Notes

TRANSACTIONAL: Final = 0x10
# A transaction that was open when the node stopped may be timed out ten seconds after it has started again.
GRACE_S: Final = 8.0


def _batch(producer: Notes, text: str, sequence: int, attributes: int = 0) -> bytes:
    now_ms = int(time.time() * 1000)
    fields = {"producer_id": producer["id"], "producer_epoch": producer["epoch"], "base_sequence": sequence}
    return make_batch([text.encode()], timestamp=now_ms, attributes=attributes, **fields)


def _init(clients: Clients, transactional_id: str | None = None) -> Notes:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=900_000)
    response = clients.raw.call(keys.INIT_PRODUCER_ID, 4, request, InitProducerIdResponse)
    assert response.error_code == 0
    return {"id": response.producer_id, "epoch": response.producer_epoch}


class IdempotentProducer:
    """A producer that goes on with its next sequence number, and whose last batches are known when they are sent again."""

    _REMEMBERED: Final = 5

    def __init__(self, name: str, batches: int) -> None:
        self.name = name
        self._batches = batches

    def write(self, clients: Clients, notes: Notes) -> None:
        clients.create(self.name)
        notes["producer"], notes["count"] = _init(clients), 0
        for _ in range(self._batches):
            self.add(clients, notes)

    def check(self, clients: Clients, notes: Notes) -> None:
        count = notes["count"]
        for sequence in range(count - self._REMEMBERED, count):
            again = self._send(clients, notes, sequence)
            assert (again.error_code, again.base_offset) == (0, sequence)
        # A gap; just after a start the batch before it may be on its way again.
        assert self._send(clients, notes, count + 1).error_code == errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert clients.values(self.name) == [f"value {sequence}" for sequence in range(count)]

    def add(self, clients: Clients, notes: Notes) -> None:
        sent = self._send(clients, notes, notes["count"])
        assert (sent.error_code, sent.base_offset) == (0, notes["count"])
        notes["count"] += 1
        assert self._send(clients, notes, notes["count"] + 1).error_code == errors.OUT_OF_ORDER_SEQUENCE_NUMBER

    def _send(self, clients: Clients, notes: Notes, sequence: int) -> PartitionProduceResponse:
        return clients.raw.produce(self.name, _batch(notes["producer"], f"value {sequence}", sequence))


class Transactions:
    """Transactions that are committed, aborted and open; of the open ones one is committed later, and one is fenced."""

    name = "transactions"
    _OPEN: Final = ("open-committed", "open-fenced")
    _GROUP: Final = "transactions-group"

    def write(self, clients: Clients, notes: Notes) -> None:
        notes["values"], notes["open"], notes["offset"] = {}, {}, 0
        for topic in (self.name, *self._OPEN):
            clients.create(topic)
            notes["values"][topic] = []
        self._end_some(clients, notes)
        for topic in self._OPEN:
            producer = notes["open"][topic] = _init(clients, topic)
            self._add_partition(clients, topic, producer)
            assert self._send(clients, topic, producer, "of an open transaction", 0) == 0

    def check(self, clients: Clients, notes: Notes) -> None:
        for topic, values in notes["values"].items():
            assert clients.values(topic, committed=True) == values
        uncommitted = clients.values(self.name)
        assert [value for value in uncommitted if "aborted" not in value] == notes["values"][self.name]
        assert any("aborted" in value for value in uncommitted)
        assert _committed(clients, self._GROUP, self.name) == notes["offset"]

    def add(self, clients: Clients, notes: Notes) -> None:
        if notes["open"]:
            self._end_open(clients, notes)
        self._end_some(clients, notes)
        for topic in self._OPEN:
            clients.produce(topic, [(None, b"behind it")])
            notes["values"][topic].append("behind it")

    def _end_open(self, clients: Clients, notes: Notes) -> None:
        committed, fenced = self._OPEN
        producer = notes["open"][committed]
        request = EndTxnRequest(
            transactional_id=committed, producer_id=producer["id"], producer_epoch=producer["epoch"], committed=True
        )
        ended = clients.raw.call(keys.END_TXN, 3, request, EndTxnResponse).error_code
        if clients.age_s < GRACE_S:
            assert ended == 0
        if ended == 0:
            notes["values"][committed].append("of an open transaction")
        producer = notes["open"][fenced]
        assert _init(clients, fenced)["epoch"] > producer["epoch"]
        assert self._send(clients, fenced, producer, "of a fenced producer", 1) == errors.INVALID_PRODUCER_EPOCH
        notes["open"] = {}

    def _end_some(self, clients: Clients, notes: Notes) -> None:
        producer = Producer(clients.options(transactional_id="steady"))
        producer.init_transactions(TIMEOUT_S)
        consumer: Any = Consumer(clients.options(group_id=self._GROUP))
        for kind in ("committed", "aborted", "committed"):
            producer.begin_transaction()
            value = f"{kind} {len(notes['values'][self.name])}"
            producer.produce(self.name, value.encode())
            reached = TopicPartition(self.name, 0, notes["offset"] + 1)
            producer.send_offsets_to_transaction([reached], consumer.consumer_group_metadata(), TIMEOUT_S)
            if kind == "committed":
                producer.commit_transaction(TIMEOUT_S)
                notes["values"][self.name].append(value)
                notes["offset"] += 1
            else:
                producer.flush(TIMEOUT_S)
                producer.abort_transaction(TIMEOUT_S)
        consumer.close()

    def _add_partition(self, clients: Clients, topic: str, producer: Notes) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=topic,
            v3_and_below_producer_id=producer["id"],
            v3_and_below_producer_epoch=producer["epoch"],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        response = clients.raw.call(keys.ADD_PARTITIONS_TO_TXN, 3, request, AddPartitionsToTxnResponse)
        assert response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0

    def _send(self, clients: Clients, topic: str, producer: Notes, text: str, sequence: int) -> int:
        request = produce_request(topic, _batch(producer, text, sequence, TRANSACTIONAL))
        request.transactional_id = topic
        response = clients.raw.call(keys.PRODUCE, 11, request, ProduceResponse)
        return response.responses[0].partition_responses[0].error_code


class Groups:
    """Groups of both protocols, which had a member that committed offsets with metadata."""

    name = "groups"
    _PROTOCOLS: Final = ("classic", "consumer")
    _PARTITIONS: Final = 2

    def write(self, clients: Clients, notes: Notes) -> None:
        clients.create(self.name, self._PARTITIONS)
        clients.produce(self.name, [(str(number), b"read by groups") for number in range(20)])
        notes["offset"] = 0
        self.add(clients, notes)

    def check(self, clients: Clients, notes: Notes) -> None:
        listed = {group.group_id for group in clients.admin.list_consumer_groups().result(TIMEOUT_S).valid}
        for protocol in self._PROTOCOLS:
            assert f"group-{protocol}" in listed
            future = clients.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(f"group-{protocol}")])
            committed = future[f"group-{protocol}"].result(TIMEOUT_S).topic_partitions
            assert {(each.partition, each.offset, each.metadata) for each in committed} == {
                (partition, notes["offset"], f"at {notes['offset']}") for partition in range(self._PARTITIONS)
            }

    def add(self, clients: Clients, notes: Notes) -> None:
        notes["offset"] += 2
        at = notes["offset"]
        for protocol in self._PROTOCOLS:
            consumer = Consumer(clients.options(group_id=f"group-{protocol}", group_protocol=protocol, enable_auto_commit=False))
            consumer.subscribe([self.name])
            deadline = time.monotonic() + TIMEOUT_S
            while len(consumer.assignment()) < self._PARTITIONS:
                assert time.monotonic() < deadline, f"a group of protocol {protocol} assigns nothing"
                consumer.poll(0.1)
            reached = [TopicPartition(self.name, partition, at, f"at {at}") for partition in range(self._PARTITIONS)]
            consumer.commit(offsets=reached, asynchronous=False)
            consumer.close()


def _committed(clients: Clients, group: str, topic: str) -> int:
    future = clients.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])])
    return int(future[group].result(TIMEOUT_S).topic_partitions[0].offset)
