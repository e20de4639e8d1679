"""Sends inputs to a port, one connection each; some connections are left open for as long as there is room for them."""

from __future__ import annotations

import socket
from collections import deque
from contextlib import suppress
from random import Random
from struct import Struct
from typing import Final

from tests.fuzz.input import Generator, Input

CONNECT_S: Final = 30.0
READ_S: Final = 0.02
READ_BYTES: Final = 1 << 20
HELD_MAX: Final = 60

_LINGER = Struct("ii")


class Attacker:
    """Attacks one port. Input `number` of `seed` is the same in every run."""

    def __init__(self, port_name: str, port: int, generator: Generator, seed: int) -> None:
        self._name = port_name
        self._port = port
        self._generator = generator
        self._seed = seed
        self._held: deque[socket.socket] = deque()

    def input(self, number: int) -> Input:
        """What is sent on a connection."""
        return self._generator(Random(f"{self._name} {self._seed} {number}"))

    def send(self, number: int) -> None:
        """Send an input. That the node hangs up is as good as an answer; that it cannot be reached is not."""
        sent = self.input(number)
        connection = socket.create_connection(("127.0.0.1", self._port), CONNECT_S)
        try:
            connection.settimeout(READ_S)
            with suppress(OSError):
                connection.sendall(sent.data)
                if sent.reads:
                    self._read(connection)
        finally:
            self._end(connection, sent.ends)

    def close(self) -> None:
        """Close what is left open."""
        while self._held:
            self._held.popleft().close()

    def _read(self, connection: socket.socket) -> None:
        left = READ_BYTES
        while left > 0 and (part := connection.recv(min(left, 1 << 16))):
            left -= len(part)

    def _end(self, connection: socket.socket, how: str) -> None:
        if how == "hold":
            self._held.append(connection)
            connection = self._held.popleft() if len(self._held) > HELD_MAX else connection
            if connection is self._held[-1]:
                return
        if how == "reset":
            with suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER.pack(1, 0))
        connection.close()
