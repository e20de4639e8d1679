"""What clients of YT, YDB and streams have: queues with registrations and sessions, topics with sources, subjects, payloads."""

from __future__ import annotations

import time
from typing import Any, Final

import ydb

from penstock.gateway.ydb.protos import timestamp
from tests.e2e.ydb.raw_stream import RawStream
from tests.upgrade.clients import Clients
from tests.upgrade.content import Notes


class YtQueues:
    """A queue of two tablets with consumers, registrations, a producer session, rows and offsets."""

    name = "yt"
    _QUEUE: Final = "//tmp/yt/queue"
    _CONSUMERS: Final = ("//tmp/yt/vital", "//tmp/yt/other")
    _PRODUCER: Final = "//tmp/yt/producer"
    _SCHEMA: Final = (
        {"name": "data", "type": "string"},
        {"name": "$timestamp", "type": "uint64"},
        {"name": "$cumulative_data_weight", "type": "int64"},
    )

    def write(self, clients: Clients, notes: Notes) -> None:
        client = clients.yt
        attributes = {"dynamic": True, "schema": list(self._SCHEMA), "tablet_count": 2, "commit_ordering": "strong"}
        client.create("table", self._QUEUE, attributes=attributes, recursive=True)
        client.mount_table(self._QUEUE)
        client.set(f"{self._QUEUE}/@note", "of an older version")
        client.create("queue_producer", self._PRODUCER)
        for consumer in self._CONSUMERS:
            client.create("queue_consumer", consumer)
            client.register_queue_consumer(self._QUEUE, consumer, vital=consumer == self._CONSUMERS[0])
        notes["rows"], notes["offset"], notes["sequence"] = [[], []], 0, 0
        notes["epoch"] = int(client.create_queue_producer_session(self._PRODUCER, self._QUEUE, "session")["epoch"])
        self.add(clients, notes)

    def check(self, clients: Clients, notes: Notes) -> None:
        client = clients.yt
        assert client.get(f"{self._QUEUE}/@tablet_state") == "mounted"
        assert client.get(f"{self._QUEUE}/@note") == "of an older version"
        registrations = client.list_queue_consumer_registrations(queue_path=self._QUEUE)
        found = {str(each["consumer_path"]).rpartition(":")[2]: bool(each["vital"]) for each in registrations}
        assert found == {self._CONSUMERS[0]: True, self._CONSUMERS[1]: False}
        for tablet, expected in enumerate(notes["rows"]):
            rows = list(client.pull_queue(self._QUEUE, offset=0, partition_index=tablet))
            assert [row["data"] for row in rows] == expected
            # Each row weighs its text, a byte, and eight for each of timestamp and weight.
            assert rows[-1]["$cumulative_data_weight"] == sum(len(data) + 17 for data in expected)
        for consumer in self._CONSUMERS:
            offsets = [row["offset"] for row in client.select_rows(f"* from [{consumer}]")]
            assert offsets == [notes["offset"]]
            pulled = list(client.pull_consumer(consumer, self._QUEUE, offset=None, partition_index=0))
            assert [row["data"] for row in pulled] == notes["rows"][0][notes["offset"] :]
        again = self._push(clients, notes, notes["sequence"])
        assert again == {"last_sequence_number": notes["sequence"], "skipped_row_count": 1}

    def add(self, clients: Clients, notes: Notes) -> None:
        client = clients.yt
        for tablet in range(2):
            data = [f"tablet {tablet} row {len(notes['rows'][tablet]) + at}" for at in range(3)]
            client.insert_rows(self._QUEUE, [{"data": each, "$tablet_index": tablet} for each in data])
            notes["rows"][tablet] += data
        notes["sequence"] += 1
        assert self._push(clients, notes, notes["sequence"])["skipped_row_count"] == 0
        notes["rows"][1].append(f"pushed {notes['sequence']}")
        old, notes["offset"] = notes["offset"], notes["offset"] + 2
        for consumer in self._CONSUMERS:
            client.advance_consumer(consumer, self._QUEUE, partition_index=0, old_offset=old, new_offset=notes["offset"])

    def _push(self, clients: Clients, notes: Notes, sequence: int) -> dict[str, Any]:
        row = {"data": f"pushed {sequence}", "$sequence_number": sequence, "$tablet_index": 1}
        return dict(clients.yt.push_queue_producer(self._PRODUCER, self._QUEUE, "session", notes["epoch"], [row]))


class YdbTopics:
    """A topic of two partitions with sources, and consumers that have committed."""

    name = "ydb"
    _PATH: Final = "/local/upgraded"
    _SOURCES: Final = ("source-a", "source-b", "source-c")

    def write(self, clients: Clients, notes: Notes) -> None:
        settings = {"min_active_partitions": 2, "consumers": ["reader", "audit"]}
        clients.ydb.create_topic(
            self._PATH, metering_mode=None, supported_codecs=[ydb.TopicCodec.RAW, ydb.TopicCodec.GZIP], **settings
        )
        notes["seqno"], notes["all"], notes["read"] = 0, [], []
        self.add(clients, notes)

    def check(self, clients: Clients, notes: Notes) -> None:
        described = clients.ydb.describe_topic(self._PATH)
        assert {consumer.name for consumer in described.consumers} == {"reader", "audit"}
        assert set(described.supported_codecs) == {ydb.TopicCodec.RAW, ydb.TopicCodec.GZIP}
        # What was written before is not stored again, whatever it says now.
        for source in self._SOURCES:
            self._write_again(clients, source, notes["seqno"])
        assert sorted(self._read(clients, "audit", len(notes["all"]), commit=False)) == sorted(notes["all"])
        unread = sorted(set(notes["all"]) - set(notes["read"]))
        assert sorted(self._read(clients, "reader", len(unread), commit=False)) == unread

    def add(self, clients: Clients, notes: Notes) -> None:
        unread = len(notes["all"]) - len(notes["read"])
        if unread:
            notes["read"] += self._read(clients, "reader", unread, commit=True)
        self._write(clients, notes)
        if not notes["read"]:
            notes["read"] += self._read(clients, "reader", len(notes["all"]), commit=True)
            self._write(clients, notes)

    def _write(self, clients: Clients, notes: Notes) -> None:
        notes["seqno"] += 1
        for source in self._SOURCES:
            text = f"{source} {notes['seqno']}"
            with clients.ydb.writer(self._PATH, producer_id=source, auto_seqno=False, codec=ydb.TopicCodec.GZIP) as writer:
                writer.write_with_ack(ydb.TopicWriterMessage(text, seqno=notes["seqno"]))
            notes["all"].append(text)

    def _write_again(self, clients: Clients, source: str, seqno: int) -> None:
        """Write the last message of a source again, which its SDK would refuse to do."""
        token = str(clients.ydb_credentials().get_auth_token())
        with RawStream(str(clients.port("ydb")), "StreamWrite", token) as stream:
            stream.send(init_request={"path": self._PATH, "producer_id": source})
            assert stream.receive().init_response.last_seq_no == seqno
            message = {"seq_no": seqno, "data": b"written again", "created_at": timestamp(int(time.time() * 1000))}
            stream.send(write_request={"messages": [message], "codec": ydb.TopicCodec.RAW})
            (ack,) = stream.receive().write_response.acks
            assert ack.WhichOneof("message_write_status") == "skipped"

    def _read(self, clients: Clients, consumer: str, count: int, *, commit: bool) -> list[str]:
        found: list[str] = []
        with clients.ydb.reader(self._PATH, consumer=consumer) as reader:
            while len(found) < count:
                batch = reader.receive_batch(timeout=20)
                found += [message.data.decode() for message in batch.messages]
                if commit:
                    reader.commit_with_ack(batch)
        return found


class Streams:
    """Subjects with sequences, durable consumers and a payload of its own file."""

    name = "streams"
    _SUBJECT: Final = "subject"
    _FILES: Final = "files"
    _SIZE: Final = 3 << 20

    def write(self, clients: Clients, notes: Notes) -> None:
        notes["messages"], notes["files"], notes["acknowledged"] = [], [], 0
        self.add(clients, notes)
        clients.stream.configure("members", self._SUBJECT, ack_wait_s=30.0, tries_max=3, dead_letter="dead")

    def check(self, clients: Clients, notes: Notes) -> None:
        client = clients.stream
        found = [[message.sequence, message.data.decode()] for message in client.read(self._SUBJECT)]
        assert found == notes["messages"]
        assert client.last_sequence(self._SUBJECT) == notes["messages"][-1][0]
        assert ("durable", notes["acknowledged"]) in client.consumers(self._SUBJECT)
        unread = [message.sequence for message in client.fetch(self._SUBJECT, "durable")]
        assert unread == [sequence for sequence, _ in notes["messages"] if sequence > notes["acknowledged"]]
        for sequence, number in notes["files"]:
            assert b"".join(client.download(sequence)) == self._payload(number)

    def add(self, clients: Clients, notes: Notes) -> None:
        client = clients.stream
        last = max((sequence for sequence, _ in notes["messages"] + notes["files"]), default=0)
        for _ in range(3):
            text = f"message {len(notes['messages'])}"
            notes["messages"].append([client.publish(self._SUBJECT, text.encode()).sequence, text])
        number = len(notes["files"])
        payload = self._payload(number)
        chunks = [payload[at : at + (1 << 20)] for at in range(0, len(payload), 1 << 20)]
        notes["files"].append([client.upload(self._FILES, chunks).sequence, number])
        assert notes["messages"][-3][0] > last
        assert notes["files"][-1][0] > notes["messages"][-1][0]
        notes["acknowledged"] = notes["messages"][-2][0]
        assert client.ack("durable", self._SUBJECT, notes["acknowledged"])

    def _payload(self, number: int) -> bytes:
        return (b"payload %d; " % number * (self._SIZE // 10))[: self._SIZE]
