"""NATS with JetStream as a process. It is built by Go from its published module and kept in bench/results/nats-VERSION.

`synced` has every publish flushed before it is acknowledged; as it comes, NATS flushes every two minutes.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

from bench.kafka_peer.brokers import RESULTS, BrokerProcess, NotInstalledError
from bench.kafka_peer.wires import INBOX, NATS_HELLO, STREAM, create_stream, nats_publish, take_messages

NATS_VERSION = "v2.15.2"


class NatsProcess(BrokerProcess):
    """One server with one stream; the subjects under its name stand for the partitions of a topic."""

    name = "nats"
    wire = "nats"

    @classmethod
    def version(cls) -> str:
        """The server's own word."""
        told = subprocess.run([str(nats_server()), "--version"], capture_output=True, text=True, check=True)
        return f"NATS JetStream {told.stdout.split()[-1]}"

    def create_topic(self, topic: str, partitions: int) -> float:
        """There is one stream for all: subjects need not be created."""
        return 0.0

    def produce_first(self) -> None:
        """Create the stream and publish one message."""
        with socket.create_connection(("127.0.0.1", self.port), 30) as connection:
            connection.sendall(NATS_HELLO + b"SUB %b 1\r\n" % INBOX)
            _call(connection, f"$JS.API.STREAM.CREATE.{STREAM}".encode(), create_stream(STREAM))
            _call(connection, f"{STREAM}.first".encode(), b"x")

    def _prepare(self) -> None:
        sync = ", sync_interval: always" if self._synced else ""
        text = f'listen: "{self.address}"\njetstream {{ store_dir: "{self._directory}/data"{sync} }}\n'
        self._config().write_text(text, encoding="ascii")

    def _command(self) -> list[str]:
        return [str(nats_server()), "-c", str(self._config())]

    def _config(self) -> Path:
        return self._directory / "nats.conf"


def _call(connection: socket.socket, subject: bytes, body: bytes) -> None:
    connection.sendall(nats_publish(subject, INBOX, body))
    received = bytearray()
    while not (replies := take_messages(received)):
        if not (data := connection.recv(1 << 16)):
            raise RuntimeError("the NATS server has closed the connection")
        received += data
    if b'"error"' in replies[0]:
        raise RuntimeError(f"the NATS server refuses {subject!r}: {replies[0]!r}")


def nats_server() -> Path:
    """The server's program, built on first use."""
    home = RESULTS / f"nats-{NATS_VERSION}"
    program = home / "nats-server"
    if not program.exists():
        if shutil.which("go") is None:
            raise NotInstalledError("go is needed to build NATS; install it (Debian: golang)")
        home.mkdir(parents=True, exist_ok=True)
        module = f"github.com/nats-io/nats-server/v2@{NATS_VERSION}"
        built = subprocess.run(
            ["go", "install", module], env={**os.environ, "GOBIN": str(home)}, capture_output=True, text=True, check=False
        )
        if built.returncode != 0:
            raise NotInstalledError(f"NATS does not build: {built.stderr.strip()[-300:]}")
    return program
