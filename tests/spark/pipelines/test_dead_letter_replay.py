"""The replay of dead letters in parts: how far it is, and that an interrupted one continues. No Spark is needed for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock.spark.pipelines.dead_letter_replay import replay_dead_letters
from penstock.spark.pipelines.dead_letters import HEADERS
from penstock.spark.pipelines.spec_reading import read_spec
from tests.e2e.running_node import RunningNode, running_node
from tests.spark.pipelines.test_deploy import copy_file
from tests.spark.reads import read

pytestmark = pytest.mark.slow

LETTERS, PART = 2_500, 1_000


class InterruptedReplayError(Exception):
    """Raised in the middle of a replay."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with running_node(tmp_path / "node.log", ["--data-dir", str(tmp_path / "data"), "--durability", "os"]) as running:
        yield running


def test_an_interrupted_replay_tells_how_far_it_is_and_continues(node: RunningNode, tmp_path: Path) -> None:
    spec = read_spec(str(copy_file(tmp_path, "copy", "d1")), node.bootstrap)
    for topic in ("d1", "copy.dead"):
        node.ok("topic", "create", topic)
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(LETTERS):
        origin = ["d1", "0", str(number), "other" if number < 10 else "copy", "not JSON"]  # the first are not of this pipeline
        headers: dict[str, str | bytes | None] = {name: value.encode() for name, value in zip(HEADERS, origin, strict=True)}
        producer.produce("copy.dead", b"%d" % number, headers=headers)
    assert producer.flush(60) == 0
    told: list[tuple[int, int]] = []

    def interrupt(sent: int, total: int) -> None:
        told.append((sent, total))
        if sent:
            raise InterruptedReplayError

    with pytest.raises(InterruptedReplayError):
        replay_dead_letters(spec, interrupt, PART)
    assert told == [(0, LETTERS), (PART - 10, LETTERS - 10)]
    told.clear()
    assert replay_dead_letters(spec, lambda *how_far: told.append(how_far), PART) == LETTERS - PART
    assert told == [(0, 1500), (1000, 1500), (1500, 1500)]
    assert replay_dead_letters(spec) == 0
    rows = read(node.bootstrap, None, subscribe="d1", **{"kafka.isolation.level": "read_committed"})
    assert sorted(int(row["value"]) for row in rows) == list(range(10, LETTERS))
