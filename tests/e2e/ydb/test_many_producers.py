"""Many producers: each is known by its own number, also after a restart."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from penstock.gateway.ydb.protos import Status, timestamp, topic
from tests.e2e.running_node import RunningNode
from tests.e2e.ydb.ydb_node import connected, ydb_node, ydb_port

_Write = topic.StreamWriteMessage
PATH = "/local/topic"


def _last_seqno(channel: grpc.Channel, producer: str, seqno: int) -> int:
    """Open a stream as a producer and write one message; the number that was its last before."""
    call = channel.stream_stream(
        "/Ydb.Topic.V1.TopicService/StreamWrite",
        request_serializer=_Write.FromClient.SerializeToString,
        response_deserializer=_Write.FromServer.FromString,
    )
    init = _Write.FromClient(init_request={"path": PATH, "producer_id": producer})
    message = {"seq_no": seqno, "data": b"data", "created_at": timestamp(int(time.time() * 1000))}
    write = _Write.FromClient(write_request={"messages": [message], "codec": 1})
    answers = list(call(iter([init, write]), timeout=60, metadata=[("x-ydb-database", "/local")]))
    assert [answer.status for answer in answers] == [Status.SUCCESS] * 2
    return int(answers[0].init_response.last_seq_no)


def _write_all(node: RunningNode, count: int, seqno: int) -> set[int]:
    def some(first: int) -> set[int]:
        with grpc.insecure_channel(f"127.0.0.1:{ydb_port(node)}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            return {_last_seqno(channel, f"producer-{number}", seqno) for number in range(first, count, 16)}

    with ThreadPoolExecutor(16) as threads:
        return set().union(*threads.map(some, range(16)))


def _check(path: Path, count: int) -> None:
    with ydb_node(path) as node:
        with connected(node) as driver:
            driver.topic_client.create_topic(PATH, min_active_partitions=4)
        assert _write_all(node, count, 7) == {0}
        node.kill()
    with ydb_node(path) as node:
        assert _write_all(node, count, 9) == {7}
        with connected(node) as driver:
            found = driver.topic_client.describe_topic(PATH, include_stats=True)
            assert sum(one.partition_stats.partition_end for one in found.partitions) == 2 * count


def test_hundreds_of_producers_are_known_after_a_kill(tmp_path: Path) -> None:
    _check(tmp_path, 500)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_producers_are_known_after_a_kill(tmp_path: Path) -> None:
    _check(tmp_path, int(os.environ.get("YDB_PRODUCERS", "100000")))
