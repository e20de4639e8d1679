"""Starts `node_program` and talks to it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.interconnect import CallStatus, Link, Reply
from tests.e2e.interconnect.node_program import STATUS

ROOT = Path(__file__).resolve().parents[3]
WAIT_S = 20.0


class RunningPeer:
    """A peer that listens at `address`."""

    def __init__(self, process: subprocess.Popen[bytes], address: str) -> None:
        self.process = process
        self.address = address


@contextmanager
def running_peer(node_id: int, address: str, *, tls: Path | None = None, log: Path | None = None) -> Iterator[RunningPeer]:
    """A node in a process of its own, killed at the end."""
    argv = ["tests.e2e.interconnect.node_program", str(node_id), address]
    if tls is not None:
        argv += ["--tls", str(tls)]
    with running_module(argv, log) as peer:
        yield peer


@contextmanager
def running_module(argv: list[str], log: Path | None = None) -> Iterator[RunningPeer]:
    """A module that says its address in its first line, in a process of its own, killed at the end."""
    with open(log or "/dev/null", "ab") as errors:
        process = subprocess.Popen([sys.executable, "-m", *argv], stdout=subprocess.PIPE, stderr=errors, cwd=ROOT)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, "the peer did not start"
        yield RunningPeer(process, json.loads(line)["address"])
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def connected(link: Link, *, within_s: float = WAIT_S) -> Link:
    """Wait for a link to come up."""
    deadline = time.monotonic() + within_s
    while not link.is_connected:
        assert time.monotonic() < deadline, link.why_down
        await asyncio.sleep(0.01)
    return link


async def call(link: Link, method: int, body: bytes = b"", timeout_s: float = 10.0) -> Reply:
    """One call to the only destination of the peer."""
    return await link.call(method, 1, (body,), timeout_s=timeout_s, reply_bytes=len(body))


async def status_of(link: Link) -> dict[str, Any]:
    """What the peer says of itself."""
    reply = await call(link, STATUS)
    assert reply.status is CallStatus.OK, reply
    found: dict[str, Any] = json.loads(bytes(reply.body))
    return found


async def until(link: Link, is_so: Callable[[dict[str, Any]], bool]) -> None:
    """Wait for the peer to say something of itself."""
    deadline = time.monotonic() + WAIT_S
    while not is_so(status := await status_of(link)):
        assert time.monotonic() < deadline, status
        await asyncio.sleep(0.01)
