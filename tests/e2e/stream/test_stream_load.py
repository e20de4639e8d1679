"""Streams under load: many publishers and one follower, files far larger than memory may grow, messages that expire meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.core.checksum import crc32c
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.stream.stream_client import StreamClient

PUBLISHERS = 100
EACH = 20
MIB = 1 << 20
GROWTH_MAX = 200 * MIB


def address_of(node: RunningNode) -> str:
    """Where the stream listener of a node is."""
    return f"127.0.0.1:{node.ready['listeners']['stream']['port']}"


def memory_of(node: RunningNode, what: str) -> int:
    """Bytes of memory of a node: VmRSS now, VmHWM at most."""
    lines = Path(f"/proc/{node.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(what))


def test_a_follower_sees_every_message_of_many_publishers_once_and_in_order(tmp_path: Path) -> None:
    argv = ["--stream-port", "0", "--data-dir", str(tmp_path / "data")]
    with running_node(tmp_path / "log", argv) as node, StreamClient(address_of(node)) as client:
        seen: list[tuple[int, bytes]] = []

        def follow() -> None:
            for message in client.read(">", follow=True, limit=PUBLISHERS * EACH):
                seen.append((message.sequence, message.data))

        follower = threading.Thread(target=follow)
        follower.start()
        started = threading.Barrier(PUBLISHERS)

        def publish(name: int) -> list[tuple[int, bytes]]:
            started.wait(30)
            bodies = [b"%d/%d" % (name, at) for at in range(EACH)]
            return [(client.publish(f"load.{name % 7}", body).sequence, body) for body in bodies]

        with ThreadPoolExecutor(PUBLISHERS) as pool:
            told = [one for published in pool.map(publish, range(PUBLISHERS)) for one in published]
        follower.join(60)
        assert seen == sorted(told)
        assert [sequence for sequence, _ in seen] == list(range(1, PUBLISHERS * EACH + 1))


def _blocks(size: int) -> Iterator[bytes]:
    """So many bytes, no two blocks alike, without holding them."""
    for number in range(size // MIB):
        yield number.to_bytes(8, "big") * (MIB // 8)


def _round_trip(tmp_path: Path, size: int) -> None:
    argv = ["--stream-port", "0", "--data-dir", str(tmp_path / "data"), "--cache-bytes", "32MiB"]
    with running_node(tmp_path / "log", argv) as node, StreamClient(address_of(node)) as client:
        client.publish("files", b"warm up")
        before = memory_of(node, "VmRSS")
        checksum = 0
        for block in _blocks(size):
            checksum = crc32c(block, checksum)
        sequence = client.upload("files", _blocks(size), size=size, crc32c=checksum).sequence
        came = came_bytes = 0
        for chunk in client.download(sequence):
            came = crc32c(chunk, came)
            came_bytes += len(chunk)
        assert (came_bytes, came) == (size, checksum)
        grown = memory_of(node, "VmHWM") - before
        assert grown < GROWTH_MAX, f"memory grew by {grown / MIB:.0f} MiB"


@pytest.mark.slow
def test_a_large_file_goes_up_and_down_in_little_memory(tmp_path: Path) -> None:
    _round_trip(tmp_path, 256 * MIB)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_gigabyte_goes_up_and_down_in_little_memory(tmp_path: Path) -> None:
    _round_trip(tmp_path, 1024 * MIB)


def test_messages_expire_under_load_while_others_are_read(tmp_path: Path) -> None:
    argv = ["--stream-port", "0", "--data-dir", str(tmp_path / "data"), "--stream-ttl-s", "2"]
    with running_node(tmp_path / "log", argv) as node, StreamClient(address_of(node)) as client:
        deadline = time.monotonic() + 5
        sent: list[tuple[int, float]] = []
        while time.monotonic() < deadline:
            sequence = client.publish("quick", b"x" * 100).sequence
            sent.append((sequence, time.time()))
            if sequence % 50 == 0:
                now = time.time()
                found = [message.sequence for message in client.read("quick")]
                alive = {sequence for sequence, at in sent if at > now - 1}
                dead = {sequence for sequence, at in sent if at < now - 3}
                assert alive <= set(found)
                assert not dead & set(found)
        assert sent[-1][0] == len(sent)
