"""What strangers do to a node is told in its log, in few lines; and without file descriptors it says so, and goes on later."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.e2e.kafka.raw_client import RawClient
from tests.e2e.kafka.test_produce import batch_of
from tests.e2e.running_node import PENSTOCK, RunningNode, running_node

FLOOD = 200
LINES_MAX = 60  # of one listener; 30 by place in the code, and some have two
TIMEOUT_S = 30.0
FEW_FILES = ("bash", "-c", 'ulimit -n 100 && exec "$@"', "bash", *PENSTOCK)


def _send(port: int, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connected:
        connected.sendall(raw)
        try:
            while connected.recv(1000):
                pass
        except OSError:
            pass


@pytest.mark.parametrize(
    ("listener", "raw"),
    [
        ("kafka", b"\x7f\xff\xff\xff garbage"),
        ("kafka", b"\0\0\0\x0a\x7f\x7f\0\0\0\0\0\1\xff\xff"),
        ("http", b"GET / HTTP/9.9\r\nwhat: \0\r\n\r\n"),
        ("yt", b"\x16\x03\x01 this is not HTTP\r\n\r\n"),
        ("stream_http", b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n"),
    ],
    ids=["frame", "unknown api", "http", "yt", "stream"],
)
def test_bad_input_is_logged_in_few_lines(flooded: RunningNode, log: Path, listener: str, raw: bytes) -> None:
    before = len(log.read_bytes().splitlines())
    for _ in range(FLOOD):
        _send(flooded.ready["listeners"][listener]["port"], raw)
    with RawClient(flooded.ready["listeners"]["kafka"]["port"]) as client:
        assert client.produce("t", batch_of(b"good")).error_code == 0
    assert len(log.read_bytes().splitlines()) - before <= LINES_MAX


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("flooded") / "log"


@pytest.fixture(scope="module")
def flooded(log: Path) -> Iterator[RunningNode]:
    argv = ["--data-dir", str(log.parent / "data"), "--http-port", "0", "--yt-port", "0", "--stream-http-port", "0"]
    with running_node(log, [*argv, "--stream-port", "0"]) as running:
        running.ok("topic", "create", "t")
        yield running


def test_a_node_without_file_descriptors_says_so_and_goes_on_when_it_has_some(tmp_path: Path) -> None:
    log = tmp_path / "log"
    argv = ["--data-dir", str(tmp_path / "data"), "--http-port", "0"]
    with running_node(log, argv, FEW_FILES) as node:
        kafka, http = (node.ready["listeners"][name]["port"] for name in ("kafka", "http"))
        connected = [socket.create_connection(("127.0.0.1", kafka), timeout=TIMEOUT_S) for _ in range(150)]
        _until(lambda: "no file descriptor is left" in log.read_text(), "nothing is logged")
        for one in connected:
            one.close()
        _until(lambda: "file descriptors are free again" in log.read_text(), "there are none again")
        with RawClient(kafka) as client:
            client.produce("t", batch_of(b"first"))
        with urlopen(f"http://127.0.0.1:{http}/metrics", timeout=TIMEOUT_S) as response:
            assert b"penstock_process_fds_exhausted_total 1" in response.read()


def _until(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)
