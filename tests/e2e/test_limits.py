"""Limits of what clients may make in all, on a real node, as clients of each protocol are told of them."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.http.api_client import client_of
from tests.e2e.running_node import running_node

TIMEOUT_S = 30


def test_clients_are_told_which_limit_is_reached(tmp_path: Path) -> None:
    limits = ["--partitions-max", "5", "--topic-partitions-max", "4", "--groups-max", "1"]
    with running_node(tmp_path / "log", ["--data-dir", str(tmp_path / "data"), "--http-port", "0", *limits]) as node:
        admin, api = AdminClient({"bootstrap.servers": node.bootstrap}), client_of(node)
        node.ok("topic", "create", "made", "--partitions", "4")
        refused = _created(admin, NewTopic("wide", 5))
        assert (refused.code(), "topic_partitions_max" in refused.str()) == (KafkaError.INVALID_PARTITIONS, True)
        refused = _created(admin, NewTopic("more", 2))
        assert (refused.code(), "raise partitions_max" in refused.str()) == (KafkaError.POLICY_VIOLATION, True)
        answer = api.call("POST", "/topics", {"name": "more", "partitions": 2})
        assert (answer.status, answer.code) == (422, "LIMIT_REACHED")
        assert _commit(node.bootstrap, "first") is None
        assert _commit(node.bootstrap, "second") == KafkaError.POLICY_VIOLATION
        assert _commit(node.bootstrap, "first") is None
        assert node.stop() == 0


def _created(admin: AdminClient, topic: NewTopic) -> KafkaError:
    (future,) = admin.create_topics([topic], request_timeout=TIMEOUT_S).values()
    try:
        future.result(TIMEOUT_S)
    except KafkaException as error:
        found: KafkaError = error.args[0]
        return found
    raise AssertionError(f"{topic} was made")


def _commit(bootstrap: str, group: str) -> int | None:
    """Set a position of a group; the code of the error, if there is one."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        consumer.commit(offsets=[TopicPartition("made", 0, 0)], asynchronous=False)
    except KafkaException as error:
        code: int = error.args[0].code()
        return code
    finally:
        consumer.close()
    return None
