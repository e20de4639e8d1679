"""What a fuzzer sends on one connection, and ways to damage what was right."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

NASTY: Final = (
    b"",
    b"\0",
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\xff" * 10,
    b"%s%n",
    b"\r\n\r\n",
    "ü水\U0001f6b0".encode(),
)


class Input(NamedTuple):
    """Bytes that are sent on one connection, and whether it is then reset, closed or left open; `reads` bounds what is read."""

    data: bytes
    ends: str = "close"  # or "reset", or "hold"
    reads: bool = True


Generator = Callable[[Random], Input]


def damaged(data: bytes, random: Random) -> bytes:
    """Bytes with a few faults in them."""
    made = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(made) + 1)
        match random.randrange(7):
            case 0:
                made[at : at + 1] = bytes([random.randrange(256)])
            case 1:
                del made[at : at + random.choice((1, 2, 4, 100))]
            case 2:
                made[at:at] = random.randbytes(random.choice((1, 4, 50)))
            case 3:
                made[at : at + 4] = random.choice(NASTY)
            case 4:
                made[at:at] = made[at : at + random.choice((4, 20, 500))]
            case 5:
                del made[at:]
            case _ if at < len(made):
                made[at] ^= 1 << random.randrange(8)
    return bytes(made)


def ending(random: Random) -> str:
    """How a connection ends: most are closed."""
    return random.choices(("close", "reset", "hold"), (7, 2, 1))[0]
