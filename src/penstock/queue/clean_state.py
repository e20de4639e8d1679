"""How far compaction has come in a partition, and since when. Pure; kept under the key "k" of the partition.

A consumer that reads on from before a tombstone must see it, so a tombstone stays for `delete.retention.ms` after the first pass
that covered it. The time is not stored in the batches: this state records when the last passes ran and how far each came.

     version 1 | clean to 8 | ripe to 8 | for each pass since, the oldest first: clean to 8 | when, in ms 8

All before `clean to` has at most one record of a key. All before `ripe to` has been clean for long enough: no tombstones are left
there, nor markers of transactions of which nothing is left.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from penstock.core.format_version import check_version

VERSION = 1
PASSES_MAX = 64

_FIXED = Struct(">BQQ")
_PASS = Struct(">Qq")


class CleanPass(NamedTuple):
    """A pass: how far it came, and when."""

    clean_to: int
    at_ms: int


class CleanState(NamedTuple):
    """What is known of the passes over a partition."""

    clean_to: int = 0
    ripe_to: int = 0
    passes: tuple[CleanPass, ...] = ()

    def ripened(self, now_ms: int, delay_ms: int) -> int:
        """Up to where everything has been clean for `delay_ms` by now."""
        ripe = [clean_pass.clean_to for clean_pass in self.passes if clean_pass.at_ms + delay_ms <= now_ms]
        return max([self.ripe_to, *ripe])

    def is_ripe(self, now_ms: int, delay_ms: int) -> bool:
        """Whether there are tombstones or markers to delete, and all of them are old enough."""
        return bool(self.passes) and self.ripened(now_ms, delay_ms) >= self.passes[-1].clean_to

    def after(self, clean_to: int, ripe_to: int, now_ms: int, *, is_waiting: bool) -> CleanState:
        """The state after a pass that cleaned up to `clean_to` and deleted the tombstones before `ripe_to`. `is_waiting` tells
        whether it left tombstones or markers for a later pass."""
        clean_to = max(clean_to, self.clean_to)
        if not is_waiting:
            return CleanState(clean_to, ripe_to)
        passes = [clean_pass for clean_pass in self.passes if clean_pass.clean_to > ripe_to]
        if clean_to > max([ripe_to, *(clean_pass.clean_to for clean_pass in passes)]):
            passes.append(CleanPass(clean_to, now_ms))
        # Of too many, every second is forgotten: its tombstones wait for the time of the next pass.
        if len(passes) > PASSES_MAX:
            passes = passes[1::2] if len(passes) % 2 == 0 else [*passes[1::2], passes[-1]]
        return CleanState(clean_to, ripe_to, tuple(passes))

    def pack(self) -> bytes:
        """The stored form."""
        return _FIXED.pack(VERSION, self.clean_to, self.ripe_to) + b"".join(_PASS.pack(*clean_pass) for clean_pass in self.passes)

    @classmethod
    def unpack(cls, raw: bytes) -> CleanState:
        """The state whose stored form this is."""
        check_version(raw[0] if raw else 0, VERSION, "how far compaction has come")
        _, clean_to, ripe_to = _FIXED.unpack_from(raw)
        return cls(clean_to, ripe_to, tuple(CleanPass(*fields) for fields in _PASS.iter_unpack(raw[_FIXED.size :])))
