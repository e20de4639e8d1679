"""Frames of the interconnect, right, nearly right and not at all, from those who know the cluster's id and those who do not."""

from __future__ import annotations

import time
from random import Random
from typing import Final

from penstock.interconnect.frames import CALL, CANCEL, MORE, PIECE, PING, PONG, REFUSED, REPLY, pack_header
from penstock.interconnect.frames import HELLO as HELLO_FRAME
from penstock.interconnect.hello import Hello, NodeIdentity, Role
from tests.e2e.interconnect.node_program import CLUSTER
from tests.fuzz.input import Input, damaged, ending

NODE_IDS: Final = (2, 100, 101, 102)  # 2 is the id of the node that is attacked
HEADS: Final = (b"PSIC", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\1\2\0\1", b"\0" * 44, b"\xff" * 44)


def interconnect_input(random: Random) -> Input:
    """What one connection sends."""
    match random.randrange(8):
        case 0:
            return Input(random.choice(HEADS) + random.randbytes(random.choice((0, 3, 100, 5000))), ending(random))
        case 1:
            return Input(damaged(_hello(random), random), ending(random))
        case 2:
            return Input(_hello(random) + damaged(_frames(random), random), ending(random))
        case 3:
            whole = _hello(random) + _frames(random)
            return Input(whole[: random.randrange(len(whole))], ending(random))
        case 4:
            return Input(_frames(random), ending(random))
    return Input(_hello(random) + _frames(random), ending(random))


def _hello(random: Random) -> bytes:
    """A hello that is mostly of the right cluster; or something else in a frame whose checksum is right."""
    cluster = CLUSTER if random.random() < 0.8 else random.randbytes(16)
    level = random.choice((1, 1, 1, 0, 9, 65535))
    identity = NodeIdentity(cluster, random.choice(NODE_IDS), random.choice((0, 1, 1 << 63)), level, max(level, 1))
    skew_ms = random.choice((0, 0, 0, 0, -(10**6), 10**12))
    wall_ms = int(time.time() * 1000) + skew_ms
    hello = Hello(identity, random.choice((Role.CALLS, Role.CALLS, Role.HEARTBEAT)), random.getrandbits(3), wall_ms)
    body = hello.pack() if random.random() < 0.9 else damaged(hello.pack(), random)
    return pack_header(HELLO_FRAME, 0, 0, (body,), len(body), checked=True, total=len(body)) + body


def _frames(random: Random) -> bytes:
    return b"".join(_frame(random) for _ in range(random.choice((1, 3, 20))))


def _frame(random: Random) -> bytes:
    """A frame whose checksum is right, whatever it says."""
    kinds = (CALL, CALL, CALL, PIECE, PIECE, CANCEL, PING, HELLO_FRAME, REFUSED, REPLY, PONG, 0, 9, 255)
    body = random.randbytes(random.choice((0, 1, 100, 9000, 65536, 65537)))
    length = len(body) if random.random() < 0.9 else random.choice((0, 1, 1 << 16, 1 << 31))
    total = random.choice((len(body), len(body), len(body) + 5, 0, 1 << 20, 64 << 20, (1 << 32) - 1))
    return (
        pack_header(
            random.choice(kinds),
            random.choice((0, 1, 1, 2, 3, 65535)),
            random.choice((0, 1, 2, 3, 1 << 63)),
            (body,),
            length,
            checked=True,
            flags=random.choice((0, 0, MORE, 255)),
            destination=random.choice((0, 1, 1, 1, 2, 1 << 63)),
            total=total,
            timeout_ms=random.choice((0, 1, 10_000, (1 << 32) - 1)),
            sent_ms=random.getrandbits(32),
            reply_bytes=random.choice((0, 0, 100, (1 << 32) - 1)),
        )
        + body
    )
