"""Which batches of a partition are marked with the gateway that wrote them (record_format.py), and where the first one is that
was not written by Kafka's. It is stored with the first write, and again with the first batch of another gateway:

version 1 | marked from 8 | first batch of another gateway 8, or 2**64 - 1 if there is none

Batches before `marked_from` were written by versions of Penstock that did not mark them.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from penstock.core.errors import CorruptionError
from penstock.core.format_version import check_version

VERSION: Final = 1
NONE_YET: Final = (1 << 64) - 1

_STORED = Struct(">BQQ")


class Origins(NamedTuple):
    """What is known of the gateways that have written to a partition."""

    marked_from: int
    first_own: int = NONE_YET

    def pack(self) -> bytes:
        """The stored form."""
        return _STORED.pack(VERSION, *self)

    @classmethod
    def unpack(cls, raw: bytes) -> Origins:
        """The origins whose stored form this is."""
        check_version(raw[0] if raw else 0, VERSION, "the origins of a partition")
        if len(raw) != _STORED.size:
            raise CorruptionError(f"the origins of a partition have {len(raw)} bytes, not {_STORED.size}")
        return cls(*_STORED.unpack(raw)[1:])

    def with_own(self, offset: int | None) -> Origins:
        """The state after another gateway's first batch of a cycle was written at `offset`; None leaves it as it is."""
        return self if offset is None or offset >= self.first_own else self._replace(first_own=offset)
