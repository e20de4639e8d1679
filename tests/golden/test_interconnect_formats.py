"""Bytes that nodes of different versions exchange, pinned: during an upgrade both kinds run beside each other.

A file here changes only together with the version of the interconnect's frames, or the number of a VDisk's method.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.blob.link import DiskReply, PartsReply
from penstock.blob.meta import BlockItem
from penstock.blob.record import BLOCK_SIZE
from penstock.blob.status import Status
from penstock.blob.vdisk_calls import pack, pack_parts, pack_put, pack_put_all, pack_put_summed
from penstock.blob.vector import SummedBuffer
from penstock.interconnect.frames import HELLO, PING, REPLY
from penstock.interconnect.hello import Hello, NodeIdentity, Role
from penstock.interconnect.outbox import Outbox
from penstock.interconnect.status import CallStatus, pack_error

FOLDER = Path(__file__).parent
BLOB_ID = bytes(range(25))


def frames() -> bytes:
    """One of each kind that has a body, and a ping."""
    outbox = Outbox(checked=True)
    hello = Hello(NodeIdentity(bytes(range(16)), 7, 1 << 40, 3, 5), Role.HEARTBEAT, 0x1122334455667788, 1_700_000_000_000, 9)
    outbox.add(HELLO, parts=(hello.pack(),))
    outbox.add_call(4, 1, (b"body",), 4, destination=0x8200000000000006, timeout_ms=10_000, sent_ms=5, reply_bytes=1 << 20)
    outbox.add(REPLY, CallStatus.FAILED, 1, (pack_error("out_of_space", "the disk is full"),))
    outbox.add(PING, call=2)
    return b"".join(outbox.take(1 << 20)[0])


def calls() -> bytes:
    """Requests and replies of a VDisk, of each form."""
    found = [
        *pack_put(3, BLOB_ID, b"part", from_reserve=True),
        *pack_put_all(3, [(BLOB_ID, b"first"), (BLOB_ID, b"second")], from_reserve=False),
        *pack_parts(PartsReply(Status.OK, ((1, b"one"), (2, b"two")), "", False)),
        pack((3, BlockItem(bytes(8), 5, 77), None)),
        pack(DiskReply(Status.BLOCKED, "a newer one runs", False, False, (1, 2))),
        *pack_put_summed(3, BLOB_ID, SummedBuffer(b"summed part", BLOCK_SIZE), from_reserve=False),
    ]
    return b"".join(found)


@pytest.mark.parametrize(("name", "made"), [("interconnect_frames", frames), ("vdisk_calls", calls)])
def test_exchanged_bytes_stay_as_they_are(name: str, made: Callable[[], bytes]) -> None:
    pinned = bytes.fromhex((FOLDER / f"{name}.hex").read_text(encoding="ascii"))
    assert made() == pinned
