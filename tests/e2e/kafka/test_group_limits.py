"""Limits of groups that are set where a node is started hold for groups of both protocols."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from penstock.kafka.protocol import errors
from tests.e2e.kafka.raw_client import RawClient
from tests.e2e.kafka.test_consumer_group_requests import Speaker
from tests.e2e.kafka.test_groups import join
from tests.e2e.running_node import RunningNode, penstock, running_node

TIMEOUT_S = 20.0
OPTIONS = ("--group-members-max", "1", "--group-session-timeout-min-ms", "5000", "--group-session-timeout-max-ms", "20000")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    folder = tmp_path_factory.mktemp("limits")
    with running_node(folder / "log", ["--data-dir", str(folder / "data"), *OPTIONS]) as running:
        running.ok("topic", "create", "t")
        yield running


@pytest.fixture
def client(node: RunningNode) -> Iterator[RawClient]:
    with RawClient(node.ready["listeners"]["kafka"]["port"]) as connected:
        yield connected


def test_a_session_timeout_outside_of_the_settings_is_refused(client: RawClient) -> None:
    for timeout_ms in (4999, 20_001):
        assert join(client, "timeouts", session_timeout_ms=timeout_ms).error_code == errors.INVALID_SESSION_TIMEOUT
    assert join(client, "timeouts", session_timeout_ms=5000).error_code == errors.NONE


def test_a_group_of_the_newer_protocol_takes_no_more_members_either(client: RawClient) -> None:
    group = Speaker(client, "t")
    first = group.join("one")
    assert first.error_code == errors.NONE
    assert group.join("two").error_code == errors.GROUP_MAX_SIZE_REACHED
    assert group.beat("one", first.member_epoch).error_code == errors.NONE
    group.beat("one", -1)
    assert group.join("two").error_code == errors.NONE


def test_a_client_is_told_that_its_group_is_full(node: RunningNode) -> None:
    told: list[KafkaError] = []
    settings = {"bootstrap.servers": node.bootstrap, "group.id": "full", "group.protocol": "consumer", "error_cb": told.append}
    first, second = Consumer(settings), Consumer(settings)
    assigned: list[object] = []
    first.subscribe(["t"], on_assign=lambda _, places: assigned.extend(places))
    deadline = time.monotonic() + TIMEOUT_S
    while not assigned and time.monotonic() < deadline:
        first.poll(0.1)
    assert assigned
    second.subscribe(["t"])
    found = ""
    while "maximum size" not in found and time.monotonic() < deadline:
        message = second.poll(0.1)
        errors_now = (*told, None if message is None else message.error())
        found = found + " ".join(error.str() for error in errors_now if error is not None)
    first.close()
    second.close()
    assert "maximum size" in found


def test_the_settings_are_shown_under_the_names_of_kafka(node: RunningNode) -> None:
    resource = ConfigResource(ResourceType.BROKER, "1")
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    found = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    names = ("group.max.size", "group.consumer.max.size", "group.min.session.timeout.ms", "group.max.session.timeout.ms")
    assert [found[name].value for name in names] == ["1", "1", "5000", "20000"]


def test_settings_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    argv = ("--group-session-timeout-min-ms", "10", "--group-session-timeout-max-ms", "9")
    done = penstock("up", "--data-dir", str(tmp_path / "data"), *argv)
    assert done.returncode == 2
    assert b"group_session_timeout_min_ms is 10" in done.stderr
