"""Python functions called for one produce: what a synchronous 1 KiB produce runs on the loop of a whole node.

The node runs on a loop in a thread of its own, its client in another, so that only the calls of the node are counted:
`sys.setprofile` sees one thread. A coroutine that is resumed counts again; compiled functions do not count.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import uvloop

from bench.kafka_frames import create_frame, error_code, produce_error_at, produce_frame
from bench.measure import Row, Setting, limit_row
from penstock.server.config import NodeConfig
from penstock.server.node import Node
from penstock.testing.batches import make_batch

CALLS_GOAL = 60
TOPIC = "calls"
WARM_UP = 300
PRODUCES = 200
VALUE = b"x" * 1024


class CallCounter:
    """Counts the Python functions that its thread calls, by function."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()

    def start(self) -> None:
        """Count the calls of the thread that calls this, from now on."""
        sys.setprofile(self._note)

    def stop(self) -> None:
        """Count no more."""
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self.calls[frame.f_code.co_filename, frame.f_code.co_qualname] += 1


async def rows(setting: Setting) -> list[Row]:
    """Without fsync and with it."""
    found = []
    for durability in ("os", "fsync"):
        directory = setting.directory(f"calls-{durability}")
        found.append(await asyncio.to_thread(_counted, directory, durability, setting.rounds(15)))
    return found


def _counted(directory: Path, durability: str, rounds: int) -> Row:
    samples: list[float] = []
    counter = CallCounter()
    config = NodeConfig(data_dir=directory / "data", durability=durability, kafka_port=0, http_port=None)

    def produce_from(port: int, on_loop: Callable[[Callable[[], None]], None]) -> None:
        with Client(port) as client:
            client.produce(WARM_UP)
            for _ in range(rounds):
                before = counter.calls.total()
                on_loop(counter.start)
                client.produce(PRODUCES)
                on_loop(counter.stop)
                samples.append((counter.calls.total() - before) / PRODUCES)

    _with_node(config, produce_from)
    # What runs once in a while is not of a produce: a timer, a snapshot.
    usual = [(file, name) for (file, name), count in counter.calls.items() if count >= rounds * PRODUCES // 2]
    files = len({file for file, _ in usual if file.endswith(".py")})  # not what is generated as text
    label = "no fsync" if durability == "os" else "fsync"
    return limit_row(
        f"calls: Python functions of one synchronous 1 KiB produce, {label}",
        samples,
        unit="calls",
        goal=CALLS_GOAL,
        beside=f"in {files} files",
    )


def _with_node(config: NodeConfig, work: Callable[[int, Callable[[Callable[[], None]], None]], None]) -> None:
    """Start a node on a loop in a thread of its own, and run `work` here with its port and a way to call on its loop."""
    ready: list[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = []
    failures: list[BaseException] = []
    is_up = threading.Event()

    async def serve() -> None:
        node = await Node.start(config)
        stopped = asyncio.Event()
        ready.append((node.listeners["kafka"].port, asyncio.get_running_loop(), stopped))
        is_up.set()
        await stopped.wait()
        await node.stop()

    def run() -> None:
        try:
            uvloop.run(serve())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            failures.append(error)
        finally:
            is_up.set()

    thread = threading.Thread(target=run)
    thread.start()
    is_up.wait()
    if failures:
        raise failures[0]
    port, loop, stopped = ready[0]

    def on_loop(call: Callable[[], None]) -> None:
        asyncio.run_coroutine_threadsafe(_call(call), loop).result(30)

    try:
        work(port, on_loop)
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()
    if failures:
        raise failures[0]


async def _call(call: Callable[[], None]) -> None:
    call()


class Client:
    """A blocking client that produces one message after another, each acknowledged before the next."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frame = produce_frame(TOPIC, 0, make_batch([VALUE]))
        self._call(create_frame(TOPIC))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def produce(self, count: int) -> None:
        """So many messages."""
        for _ in range(count):
            reply = self._call(self._frame)
            if code := error_code(reply, produce_error_at(TOPIC)):
                raise RuntimeError(f"the node has refused a produce with error {code}")

    def _call(self, frame: bytes) -> bytes:
        self._socket.sendall(frame)
        head = self._read(4)
        return head + self._read(int.from_bytes(head, "big"))

    def _read(self, size: int) -> bytes:
        data = self._socket.recv(size, socket.MSG_WAITALL)
        if len(data) < size:
            raise RuntimeError("the node has closed the connection")
        return data
