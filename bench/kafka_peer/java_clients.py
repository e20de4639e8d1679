"""Kafka's own Java client at work while brokers are killed: an idempotent producer, a transactional one, a member of a group."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.kafka_peer.brokers import java

PROGRAM = Path(__file__).parent / "UnderKills.java"
FAULTS = ("lost", "doubled", "misordered", "failed", "broken", "unread")


class Pauses(NamedTuple):
    """The longest time without an acknowledgement of some partition, and without the end of a transaction."""

    sends_s: float
    transactions_s: float


class JavaClients:
    """The program that runs them, and what it is asked."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def go_on(self) -> None:
        """Wait for more acknowledgements of every partition, and for more transactions."""
        answer = self._ask("more")
        if answer != "ok":
            raise RuntimeError(f"the Java clients do not go on: {answer}")

    def longest_pauses(self) -> Pauses:
        """The longest pauses since this was last asked."""
        return Pauses(*(int(ms) / 1000 for ms in self._ask("pause").split()))

    def end(self) -> dict[str, int]:
        """Wait for what is in flight, and read everything; counts by name. All of FAULTS are 0 if nothing went wrong."""
        words = self._ask("end").split()
        return {name: int(count) for name, _, count in (word.partition("=") for word in words)}

    def _ask(self, command: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        if not answer:
            raise RuntimeError(f"the Java clients have ended with {self._process.wait(10)}")
        return answer


@contextmanager
def running_java_clients(bootstrap: str, log: Path, request_timeout_ms: int) -> Iterator[JavaClients]:
    """The clients, at work on two new topics."""
    command = [*java("-Xmx256m", "-XX:TieredStopAtLevel=1"), str(PROGRAM), bootstrap, str(request_timeout_ms)]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        yield JavaClients(process)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
