"""Clients that do not keep to the protocol, go away in the middle, or do not read: each gets a clear status, and others are
served."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from penstock.gateway.ydb.protos import Status, timestamp
from tests.e2e.running_node import RunningNode
from tests.e2e.ydb.raw_stream import RawStream
from tests.e2e.ydb.ydb_node import read_all, ydb_port


def _init(path: str, **more: Any) -> dict[str, Any]:
    return {"init_request": {"path": path, "producer_id": "source", **more}}


def _write(*seqnos: int, data: bytes = b"data") -> dict[str, Any]:
    messages = [{"seq_no": seqno, "data": data, "created_at": timestamp(int(time.time() * 1000))} for seqno in seqnos]
    return {"write_request": {"messages": messages, "codec": 1}}


def _init_read(path: str, **more: Any) -> dict[str, Any]:
    return {"init_request": {"topics_read_settings": [{"path": path}], "consumer": "reader", **more}}


WRONG_WRITES: list[tuple[list[dict[str, Any]], str]] = [
    ([_write(1)], "begins with init_request"),
    ([_init("PATH"), _init("PATH")], "is not expected"),
    ([_init("PATH"), {}], "is not expected"),
    ([_init("PATH"), _write()], "without messages"),
    ([_init("PATH"), _write(2, 1)], "numbers begin with 1 and rise"),
    ([_init("PATH"), _write(0)], "numbers begin with 1 and rise"),
    ([_init("PATH"), _write(5), _write(4)], "numbers rise within a stream"),
    ([_init("PATH", partition_id=9)], "has partitions 0..1, not 9"),
    ([_init("PATH"), {"write_request": {"messages": [{"seq_no": 1}], "codec": 3}}], "does not take codec 3"),
    ([_init("PATH"), {"write_request": {"messages": [{"seq_no": 1}], "codec": 10_001}}], "does not take codec 10001"),
]


@pytest.mark.parametrize(("messages", "reason"), WRONG_WRITES)
def test_a_wrong_write_is_a_bad_request(node: RunningNode, path: str, messages: list[dict[str, Any]], reason: str) -> None:
    with RawStream(ydb_port(node), "StreamWrite") as stream:
        for message in messages:
            if message.get("init_request", {}).get("path"):
                message = {"init_request": {**message["init_request"], "path": path}}  # noqa: PLW2901 - the test's own topic
            stream.send(**message)
        last = stream.finish()[-1]
    assert last.status == Status.BAD_REQUEST
    assert reason in last.issues[0].message


WRONG_READS: list[tuple[list[dict[str, Any]], str]] = [
    ([{"read_request": {"bytes_size": 1}}], "begins with init_request"),
    ([{"init_request": {"consumer": "reader"}}], "at least one topic"),
    ([_init_read("PATH"), {"read_request": {"bytes_size": -5}}], "a read_request for -5 bytes"),
    ([_init_read("PATH"), {}], "is not expected"),
    ([_init_read("PATH", consumer="")], "must name its partitions"),
]


@pytest.mark.parametrize(("messages", "reason"), WRONG_READS)
def test_a_wrong_read_is_a_bad_request(node: RunningNode, path: str, messages: list[dict[str, Any]], reason: str) -> None:
    with RawStream(ydb_port(node), "StreamRead") as stream:
        for message in messages:
            if message.get("init_request", {}).get("topics_read_settings"):
                message = {"init_request": {**message["init_request"], "topics_read_settings": [{"path": path}]}}  # noqa: PLW2901
            stream.send(**message)
        last = stream.finish()[-1]
    assert last.status == Status.BAD_REQUEST
    assert reason in last.issues[0].message


def _opened_reader(stream: RawStream, path: str) -> list[int]:
    """A reader that has taken both partitions of a topic; their session ids."""
    stream.send(**_init_read(path))
    assert stream.receive().init_response.session_id
    sessions: list[int] = []
    for _ in range(2):
        started = stream.receive().start_partition_session_request
        sessions.append(started.partition_session.partition_session_id)
        stream.send(start_partition_session_response={"partition_session_id": sessions[-1]})
    return sessions


def test_what_was_not_read_cannot_be_committed(node: RunningNode, path: str) -> None:
    with RawStream(ydb_port(node), "StreamRead") as stream:
        session = _opened_reader(stream, path)[0]
        ranges = [{"start": 0, "end": 5}]
        stream.send(commit_offset_request={"commit_offsets": [{"partition_session_id": session, "offsets": ranges}]})
        answer = stream.receive()
    assert answer.status == Status.BAD_REQUEST
    assert "cannot be committed" in answer.issues[0].message


def test_no_data_is_sent_beyond_the_credit(node: RunningNode, driver: Any, path: str) -> None:
    with driver.topic_client.writer(path, producer_id="source", partition_id=0) as writer:
        for number in range(5):
            writer.write_with_ack(bytes([number]) * 1000)
    with RawStream(ydb_port(node), "StreamRead") as stream:
        session = _opened_reader(stream, path)[0]
        for number in range(5):
            stream.send(partition_session_status_request={"partition_session_id": session})
            assert stream.receive().partition_session_status_response.partition_offsets.end in (0, 5)
            stream.send(read_request={"bytes_size": 1})
            response = stream.receive().read_response
            (message,) = response.partition_data[0].batches[0].message_data
            assert message.data == bytes([number]) * 1000
            # More was sent than there was credit for: only what makes up for it counts again.
            stream.send(read_request={"bytes_size": response.bytes_size - 1})


def test_writers_that_go_away_leave_nothing_behind(node: RunningNode, driver: Any, path: str) -> None:
    for seqno in range(1, 21):
        with RawStream(ydb_port(node), "StreamWrite") as stream:
            stream.send(**_init(path))
            assert stream.receive().init_response.last_seq_no == seqno - 1
            stream.send(**_write(seqno))
            if seqno % 2:
                stream.receive()  # the others are gone before they are told
            else:
                stream.finish()
    assert [message.seqno for message in read_all(driver.topic_client, path, "reader", 20)] == list(range(1, 21))


def test_a_reader_that_does_not_read_costs_little(node: RunningNode, driver: Any, path: str) -> None:
    size = 2_000_000
    with driver.topic_client.writer(path, producer_id="source", partition_id=0, codec=1) as writer:
        for _ in range(30):
            writer.write(bytes(size))
    before = _resident(node)
    streams = [RawStream(ydb_port(node), "StreamRead") for _ in range(10)]
    try:
        for stream in streams:
            request = {"topics_read_settings": [{"path": path, "partition_ids": [0]}]}
            stream.send(init_request=request)
            stream.receive()
            session = stream.receive().start_partition_session_request.partition_session.partition_session_id
            stream.send(start_partition_session_response={"partition_session_id": session})
            stream.send(read_request={"bytes_size": 1 << 40})
        assert len(read_all(driver.topic_client, path, "reader", 30)) == 30
        assert _resident(node) - before < 10 * 20_000_000
    finally:
        for stream in streams:
            stream.__exit__(None, None, None)


def test_readers_that_go_away_in_the_middle_of_data_are_no_error(node: RunningNode, driver: Any, path: str) -> None:
    with driver.topic_client.writer(path, producer_id="source", partition_id=0, codec=1) as writer:
        for _ in range(20):
            writer.write(bytes(1_000_000))
    for _ in range(10):
        with RawStream(ydb_port(node), "StreamRead") as stream:
            stream.send(init_request={"topics_read_settings": [{"path": path, "partition_ids": [0]}]})
            stream.receive()
            session = stream.receive().start_partition_session_request.partition_session.partition_session_id
            stream.send(start_partition_session_response={"partition_session_id": session})
            stream.send(read_request={"bytes_size": 1 << 40})
            stream.receive()
    assert len(read_all(driver.topic_client, path, "reader", 20)) == 20
    assert b" ERROR " not in (Path(node.ready["data_dir"]).parent / "log").read_bytes()


def _resident(node: RunningNode) -> int:
    pages = int(Path(f"/proc/{node.process.pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def test_a_request_that_is_too_large_ends_its_stream_only(node: RunningNode, driver: Any, path: str) -> None:
    with RawStream(ydb_port(node), "StreamWrite") as stream:
        stream.send(**_init(path))
        stream.receive()
        stream.send(**_write(1, data=bytes(65_000_000)))
        with pytest.raises(grpc.RpcError) as raised:
            stream.finish()
        assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    with driver.topic_client.writer(path, producer_id="source") as writer:
        assert writer.write_with_ack("smaller").offset == 0
