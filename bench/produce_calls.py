"""Python functions called for one produce and for one fetch: what a synchronous 1 KiB produce, and a fetch of one such message
that is there or that it waits for, run on the loop of a whole node.

The node runs on a loop in a thread of its own, its client in another, so that only the calls of the node are counted:
`sys.setprofile` sees one thread. A coroutine that is resumed counts again; compiled functions do not count.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import uvloop

from bench.kafka_frames import create_frame, error_code, fetch_error_at, fetch_frame, produce_error_at, produce_frame
from bench.measure import Row, Setting, limit_row
from penstock.server.config import NodeConfig
from penstock.server.node import Node
from penstock.testing.batches import make_batch

CALLS_GOAL = 60
FETCH_CALLS_GOAL = 40
TOPIC = "calls"
WARM_UP = 300
PRODUCES = 200
VALUE = b"x" * 1024
ARRIVE_S = 0.001  # within which a fetch reaches the node


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
    """A produce without fsync and with it, then a fetch."""
    found = []
    for durability in ("os", "fsync"):
        directory = setting.directory(f"calls-{durability}")
        found.append(await asyncio.to_thread(_counted, directory, durability, setting.rounds(15)))
    return found + await asyncio.to_thread(_fetch_rows, setting.directory("calls-fetch"), setting.rounds(15))


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


def _fetch_rows(directory: Path, rounds: int) -> list[Row]:
    """Calls of a fetch: of a produce and a fetch together, less those of the produce alone."""
    samples: dict[str, list[float]] = {"that is there": [], "that it waits for": []}
    counter = CallCounter()
    config = NodeConfig(data_dir=directory / "data", durability="os", kafka_port=0, http_port=None)

    def calls_of(work: Callable[[], None], on_loop: Callable[[Callable[[], None]], None]) -> float:
        before = counter.calls.total()
        on_loop(counter.start)
        for _ in range(PRODUCES):
            work()
        on_loop(counter.stop)
        return (counter.calls.total() - before) / PRODUCES

    def fetch_from(port: int, on_loop: Callable[[Callable[[], None]], None]) -> None:
        with Client(port) as producer, Client(port) as consumer:
            producer.produce(WARM_UP)
            consumer.offset = WARM_UP

            def produce() -> None:
                producer.produce(1)
                consumer.offset += 1

            def fetch_what_is_there() -> None:
                producer.produce(1)
                consumer.ask()
                consumer.take()

            def fetch_what_comes() -> None:
                consumer.ask()
                time.sleep(ARRIVE_S)
                producer.produce(1)
                consumer.take()

            for _ in range(rounds):
                alone = calls_of(produce, on_loop)
                for kind, work in zip(samples, (fetch_what_is_there, fetch_what_comes), strict=True):
                    samples[kind].append(calls_of(work, on_loop) - alone)

    _with_node(config, fetch_from)
    return [
        limit_row(f"calls: Python functions of one fetch of a 1 KiB message {kind}", found, unit="calls", goal=FETCH_CALLS_GOAL)
        for kind, found in samples.items()
    ]


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
    """A blocking client that produces or fetches one message after another, each acknowledged before the next."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frame = produce_frame(TOPIC, 0, make_batch([VALUE]))
        self.offset = 0  # of the next fetch
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

    def ask(self) -> None:
        """Asks for the message at its offset, and waits for it at the node."""
        self._socket.sendall(fetch_frame(TOPIC, 0, self.offset, max_wait_ms=30_000))

    def take(self) -> None:
        """Takes the message that it has asked for."""
        reply = self._reply()
        if code := error_code(reply, fetch_error_at(TOPIC)):
            raise RuntimeError(f"the node has refused a fetch with error {code}")
        if len(reply) < len(VALUE):
            raise RuntimeError("the node has answered a fetch without the message")
        self.offset += 1

    def _call(self, frame: bytes) -> bytes:
        self._socket.sendall(frame)
        return self._reply()

    def _reply(self) -> bytes:
        head = self._read(4)
        return head + self._read(int.from_bytes(head, "big"))

    def _read(self, size: int) -> bytes:
        data = self._socket.recv(size, socket.MSG_WAITALL)
        if len(data) < size:
            raise RuntimeError("the node has closed the connection")
        return data
