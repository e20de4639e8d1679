"""Ports for servers of tests that must know theirs before they start."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress


def free_ports(count: int) -> list[int]:
    """Free ports."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def free_port() -> int:
    """A free port."""
    return free_ports(1)[0]


def ports_in_a_row(count: int) -> int:
    """The first of some free ports that follow each other."""
    while True:
        base = free_port()
        with ExitStack() as stack, suppress(OSError, OverflowError):
            for at in range(count):
                stack.enter_context(socket.create_server(("127.0.0.1", base + at)))
            return base
