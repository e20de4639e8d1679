"""`penstock consume --group`: members share a topic, commit what they printed, and take over from each other."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.running_node import PENSTOCK, RunningNode, environment, running_node

pytestmark = pytest.mark.slow

WAIT_S = 30.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    base = tmp_path_factory.mktemp("consume-group")
    argv = ["--data-dir", str(base / "data"), "--consumer-heartbeat-interval-s", "0.2", "--default-partitions", "2"]
    with running_node(base / "log", argv) as running:
        yield running


def lags(node: RunningNode, group: str) -> list[str]:
    """How many messages the group is behind, by partition."""
    rows = [line.split("\t") for line in node.ok("group", "describe", group).splitlines()]
    return [row[5] for row in rows if row[0] == "position"]


@contextmanager
def follower(node: RunningNode, topic: str, out: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A member that goes on, and prints into a file."""
    argv = [*PENSTOCK, "consume", topic, "--group", "team", "--follow", "--bootstrap", node.bootstrap]
    with out.open("wb") as file, subprocess.Popen(argv, stdout=file, env=environment()) as process:
        try:
            yield process
        finally:
            process.kill()


def until(node: RunningNode, parts: list[int]) -> None:
    """Wait until the members of the team have so many partitions each."""
    deadline = time.monotonic() + WAIT_S
    while True:
        described = node.run("group", "describe", "team").stdout.decode()
        rows = [line.split("\t") for line in described.splitlines()]
        if sorted(int(row[5]) for row in rows if row[0] == "member") == parts:
            return
        assert time.monotonic() < deadline, described
        time.sleep(0.1)


def test_what_was_printed_is_not_printed_again(node: RunningNode) -> None:
    for number in (0, 1):
        node.ok("produce", "jobs", "-p", str(number), *(f"{number}.{at}" for at in range(3)))
    first = node.ok("consume", "jobs", "--group", "readers", "--count", "4").split()
    second = node.ok("consume", "jobs", "--group", "readers").split()
    assert (len(first), sorted(first + second)) == (4, ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"])
    assert node.ok("consume", "jobs", "--group", "readers") == ""
    assert lags(node, "readers") == ["0", "0"]


def test_a_group_without_a_position_begins_where_it_is_told(node: RunningNode) -> None:
    node.ok("produce", "late", "-p", "0", "old")
    assert node.ok("consume", "late", "--group", "late", "--from", "latest") == ""
    node.ok("produce", "late", "-p", "0", "new")
    assert node.ok("consume", "late", "--group", "late", "--from", "latest") == "new\n", "it has a position by then"
    assert node.ok("consume", "late", "--group", "other") == "old\nnew\n"


def test_members_share_partitions_and_go_on_for_one_that_leaves(node: RunningNode, tmp_path: Path) -> None:
    node.ok("topic", "create", "shared", "--partitions", "2")
    with follower(node, "shared", tmp_path / "a") as first:
        until(node, [2])
        with follower(node, "shared", tmp_path / "b") as second:
            until(node, [1, 1])
            for number in (0, 1):
                node.ok("produce", "shared", "-p", str(number), *(f"{number}.{at}" for at in range(50)))
            deadline = time.monotonic() + WAIT_S
            while sum(len((tmp_path / name).read_bytes().split()) for name in "ab") < 100:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            first.send_signal(signal.SIGINT)
            assert first.wait(WAIT_S) == 0
            until(node, [2])
            node.ok("produce", "shared", "-p", "0", "0.50")
            node.ok("produce", "shared", "-p", "1", "1.50")
            while len((tmp_path / "b").read_bytes().split()) < 52:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            second.send_signal(signal.SIGINT)
            assert second.wait(WAIT_S) == 0
    printed = (tmp_path / "a").read_text().split() + (tmp_path / "b").read_text().split()
    assert sorted(printed) == sorted(f"{number}.{at}" for number in (0, 1) for at in range(51))
    assert lags(node, "team") == ["0", "0"]
