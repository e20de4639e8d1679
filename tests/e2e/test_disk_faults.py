"""Real nodes on disks that hang, fail, vanish, or come back with less than they had."""

from __future__ import annotations

import json
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.e2e.running_node import RunningNode, penstock, running_node

pytestmark = pytest.mark.slow

FAULTY = (sys.executable, "-m", "tests.e2e.faulty_disk_node")
NOTICED_S = 30.0  # seconds on an idle machine; this one may be busy
ENDS_S = 7.0  # after this long a running node has noted how far its log goes
DISK_TIMEOUT_S = 1.0


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that says what is wrong with which disk; see faulty_disk_node."""
    path = tmp_path / "faults"
    path.write_text("")
    monkeypatch.setenv("FAULTS", str(path))
    return path


def _set(faults: Path, kind: str, *disks: Path) -> None:
    new = faults.with_suffix(".new")
    new.write_text("".join(f"{kind} {disk}\n" for disk in disks))
    new.replace(faults)


def _get(node: RunningNode, path: str) -> tuple[int, str]:
    http = node.ready["listeners"]["http"]
    try:
        with urllib.request.urlopen(f"http://{http['host']}:{http['port']}{path}", timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def _states(node: RunningNode) -> list[str]:
    status, body = _get(node, "/api/v1/storage")
    assert status == 200, body
    return [vdisk["state"] for vdisk in json.loads(body)["groups"][0]["vdisks"]]


def _is_ready(node: RunningNode) -> bool:
    return _get(node, "/readyz")[0] == 200


def _wait(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + NOTICED_S
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


class Writer:
    """Produces numbered messages one at a time and keeps those that were acknowledged, with their offsets."""

    def __init__(self, node: RunningNode) -> None:
        self.acknowledged: dict[int, int] = {}
        self._next = 0
        self.use(node)

    def use(self, node: RunningNode) -> None:
        """Go on with another run of the node."""
        self._producer = Producer({"bootstrap.servers": node.bootstrap, "message.timeout.ms": 3000, "linger.ms": 0})

    def write(self, count: int = 1) -> int:
        """Produce so many more; how many of them were acknowledged."""
        before = len(self.acknowledged)
        for _ in range(count):
            self._producer.produce("t", b"%d" % self._next, partition=0, on_delivery=self._delivered)
            self._next += 1
        assert self._producer.flush(60) == 0, "a message is neither acknowledged nor refused"
        return len(self.acknowledged) - before

    def check(self, node: RunningNode) -> None:
        """Everything that was acknowledged is there, at its offset."""
        consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "check", "enable.partition.eof": True})
        consumer.assign([TopicPartition("t", 0, 0)])
        found: dict[int, int] = {}
        while (message := consumer.poll(30)) is not None and message.error() is None:
            found[message.offset() or 0] = int(message.value() or b"-1")
        consumer.close()
        assert {offset: found.get(offset) for offset in self.acknowledged} == self.acknowledged

    def _delivered(self, error: object, message: Message) -> None:
        if error is None:
            self.acknowledged[message.offset() or 0] = int(message.value() or b"-1")


def _argv(tmp_path: Path, disks: int = 1) -> list[str]:
    argv = ["--data-dir", str(tmp_path / "data"), "--http-port", "0", "--disk-timeout-s", str(DISK_TIMEOUT_S)]
    paths = [word for number in range(disks) for word in ("--disk", str(tmp_path / f"disk{number}"))]
    return [*argv, "--erasure", "block-4-2", *paths] if disks > 1 else argv


def test_disks_that_hang_cost_errors_in_time_and_nothing_else(tmp_path: Path, faults: Path) -> None:
    with running_node(tmp_path / "log", _argv(tmp_path, 8), FAULTY) as node:
        writer = Writer(node)
        assert writer.write(100) == 100
        hung = [tmp_path / f"disk{number}" for number in (1, 4, 6)]
        _set(faults, "hang", hung[0])
        assert writer.write(100) == 100
        _wait(lambda: _states(node)[1] == "failing", "a disk that hangs is not shown")
        assert _is_ready(node)
        _set(faults, "hang", *hung)
        began = time.monotonic()
        while writer.write():
            assert time.monotonic() < began + NOTICED_S
        _wait(lambda: not _is_ready(node), "the node says it is ready though nothing can be written")
        assert "the storage is read-only" in _get(node, "/readyz")[1]
        _set(faults, "hang")
        _wait(lambda: _is_ready(node) and set(_states(node)) == {"serving"}, "disks that answer again are not used again")
        _wait(lambda: writer.write() == 1, "writes are not taken again")
        writer.check(node)
        _set(faults, "hang", hung[1])
        assert writer.write(10) == 10
        assert node.stop() == 0
    _set(faults, "hang")
    with running_node(tmp_path / "log", _argv(tmp_path, 8), FAULTY) as node:
        writer.check(node)


def test_a_replaced_disk_is_refilled_while_another_hangs_from_the_start_on(tmp_path: Path, faults: Path) -> None:
    with running_node(tmp_path / "log", _argv(tmp_path, 8), FAULTY) as node:
        writer = Writer(node)
        assert writer.write(200) == 200
        assert node.stop() == 0
    shutil.rmtree(tmp_path / "disk3")
    _set(faults, "hang", tmp_path / "disk5")
    with running_node(tmp_path / "log", _argv(tmp_path, 8), FAULTY) as node:
        _wait(lambda: _states(node)[3] == "serving", "the replaced disk is not refilled")
        assert _states(node)[5] in ("out", "failing")
        writer.use(node)
        assert writer.write(10) == 10
        _set(faults, "hang")
        _wait(lambda: set(_states(node)) == {"serving"}, "the disk that hung is not used again")
        writer.check(node)


def test_errors_of_the_only_disk_are_logged_shown_and_over_when_they_are(tmp_path: Path, faults: Path) -> None:
    disk = tmp_path / "data" / "disk0"
    with running_node(tmp_path / "log", _argv(tmp_path), FAULTY) as node:
        writer = Writer(node)
        assert writer.write(100) == 100
        _set(faults, "eio", disk)
        assert writer.write() == 0
        _wait(lambda: not _is_ready(node), "the node says it is ready though every write fails")
        assert _states(node) == ["failing"]
        assert "writing failed, it will be retried: [Errno 5]" in (tmp_path / "log").read_text()
        _set(faults, "eio")
        _wait(lambda: _is_ready(node), "a disk that is mended is not used again")
        _wait(lambda: writer.write() == 1, "writes are not taken again")
        writer.check(node)
        node.kill()
    with running_node(tmp_path / "log", _argv(tmp_path), FAULTY) as node:
        writer.check(node)


def test_disks_that_are_deleted_under_the_node_are_out_and_no_write_is_acknowledged_on_them_alone(tmp_path: Path) -> None:
    argv = _argv(tmp_path, 8)
    with running_node(tmp_path / "log", argv) as node:
        writer = Writer(node)
        assert writer.write(100) == 100
        for number in (2, 5):
            shutil.rmtree(tmp_path / f"disk{number}")
        _wait(lambda: [number for number, state in enumerate(_states(node)) if state == "out"] == [2, 5], "they are not shown")
        assert writer.write(100) == 100
        assert _is_ready(node)
        # One more that only is away: nothing can be written until it is back, and then without a restart.
        (tmp_path / "disk7").rename(tmp_path / "away")
        began = time.monotonic()
        while writer.write():
            assert time.monotonic() < began + NOTICED_S
        _wait(lambda: not _is_ready(node), "the node says it is ready with three disks out")
        (tmp_path / "away").rename(tmp_path / "disk7")
        _wait(lambda: _is_ready(node), "a disk that is back is not used again")
        _wait(lambda: writer.write() == 1, "writes are not taken again")
        writer.check(node)
        node.kill()
    with running_node(tmp_path / "log", argv) as node:
        writer.check(node)


def test_the_only_disk_deleted_under_the_node_is_noticed_by_the_next_write(tmp_path: Path) -> None:
    with running_node(tmp_path / "log", _argv(tmp_path)) as node:
        writer = Writer(node)
        assert writer.write(100) == 100
        shutil.rmtree(tmp_path / "data" / "disk0")
        assert writer.write() == 0
        _wait(lambda: not _is_ready(node), "the node says it is ready without its disk")
        assert "the storage is lost" in _get(node, "/readyz")[1]
        assert not list((tmp_path / "data" / "disk0").glob("*")), "an empty disk was begun in the place of the lost one"


def test_a_disk_that_cannot_be_used_at_the_start_comes_back_by_itself(tmp_path: Path) -> None:
    argv = _argv(tmp_path, 8)
    with running_node(tmp_path / "log", argv) as node:
        writer = Writer(node)
        assert writer.write(100) == 100
        assert node.stop() == 0
    (tmp_path / "disk3").rename(tmp_path / "away")
    (tmp_path / "disk3").write_text("not a directory")
    with running_node(tmp_path / "log", argv) as node:
        assert _states(node)[3] == "out"
        writer.use(node)
        assert writer.write(100) == 100
        (tmp_path / "disk3").unlink()
        (tmp_path / "away").rename(tmp_path / "disk3")
        _wait(lambda: set(_states(node)) == {"serving"}, "the disk is not used again")
        writer.check(node)


def _chunk(tmp_path: Path) -> Path:
    return max((tmp_path / "data" / "disk0").rglob("*.chunk"))


def test_deleted_and_cut_files_are_refused_until_they_are_restored(tmp_path: Path) -> None:
    argv = _argv(tmp_path)
    with running_node(tmp_path / "log", argv) as node:
        writer = Writer(node)
        assert writer.write(3000) == 3000
        time.sleep(ENDS_S)
        node.kill()
    chunk = _chunk(tmp_path)
    content = chunk.read_bytes()
    written = len(content.rstrip(b"\0"))
    for left in (None, written // 2):
        chunk.unlink()
        if left is not None:
            chunk.write_bytes(content[:left])
        refused = penstock("up", "--kafka-port", "0", *argv)
        assert refused.returncode == 6, refused.stderr
        assert b"files of the only copy are missing" in refused.stderr
        assert chunk.name.encode() in refused.stderr
        assert b"restore them from a backup" in refused.stderr
        chunk.write_bytes(content)
        with running_node(tmp_path / "log", argv) as node:
            writer.check(node)
            node.kill()
        assert chunk.read_bytes() == content


def test_a_loss_that_is_accepted_is_served_around_and_not_missed_again(tmp_path: Path) -> None:
    argv = _argv(tmp_path)
    with running_node(tmp_path / "log", argv) as node:
        assert Writer(node).write(100) == 100
        assert node.stop() == 0
    chunk = _chunk(tmp_path)
    chunk.write_bytes(chunk.read_bytes()[: chunk.stat().st_size // 2])
    with running_node(tmp_path / "log", [*argv, "--accept-data-loss", "true"]) as node:
        assert f"{chunk.name} has only" in (tmp_path / "log").read_text()
        assert Writer(node).write(10) == 10
        assert node.stop() == 0
    with running_node(tmp_path / "log", argv) as node:
        assert Writer(node).write(10) == 10


def test_a_storage_that_lost_the_catalog_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    argv = _argv(tmp_path)
    with running_node(tmp_path / "log", argv) as node:
        writer = Writer(node)
        assert writer.write(10) == 10
        assert node.stop() == 0
    folder = _chunk(tmp_path).parent
    shutil.copytree(folder, tmp_path / "backup")
    for path in folder.iterdir():
        if path.name not in ("vdisk", "lock"):
            path.unlink()
    refused = penstock("up", "--kafka-port", "0", *argv)
    assert refused.returncode == 6, refused.stderr
    assert b"the catalog of topics is gone" in refused.stderr
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "backup", folder)
    with running_node(tmp_path / "log", argv) as node:
        writer.check(node)
