"""Which group a tablet's data is in: for every channel, which group was written to from which generation on.

The histories of all channels of a tablet are stored with its blocks, once it has changed groups (integers big-endian):

    channels 1 | for each: entries 2 | for each: from generation 4 | group 4
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from penstock.blob.blob_id import CHANNEL_MAX, GENERATION_MAX
from penstock.blob.meta import HistoryItem
from penstock.core.errors import InvalidRequestError

_COUNT = Struct(">H")
_ENTRY = Struct(">II")


class Interval(NamedTuple):
    """Generations `first` to `last`, both included, are in `group`."""

    first: int
    last: int
    group: int


class ChannelHistory:
    """The groups of one channel over the generations of its tablet. Immutable: a new group makes a new history."""

    def __init__(self, entries: Iterable[tuple[int, int]]) -> None:
        """`entries` are (from generation, group), in order, the first from generation 0 or 1."""
        self.entries = tuple(entries)
        self._from = [generation for generation, _ in self.entries]
        if not self.entries or self._from[0] > 1 or self._from != sorted(set(self._from)):
            raise InvalidRequestError(f"{self.entries} is no channel history: it must start at generation 0 or 1 and rise")

    def group(self, generation: int) -> int:
        """The group that holds what this generation wrote."""
        at = bisect_right(self._from, generation)
        return self.entries[max(at, 1) - 1][1]

    def then(self, generation: int, group: int) -> ChannelHistory:
        """The history if the tablet writes to `group` from `generation` on."""
        if group == self.entries[-1][1]:
            return self
        return ChannelHistory((*self.entries, (generation, group)))

    def intervals(self) -> Iterator[Interval]:
        """The history as stretches of generations, oldest first."""
        ends = [*(generation - 1 for generation in self._from[1:]), GENERATION_MAX]
        for (first, group), last in zip(self.entries, ends, strict=True):
            yield Interval(first, last, group)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChannelHistory) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    def __repr__(self) -> str:
        return f"ChannelHistory({self.entries!r})"


class TabletInfo(NamedTuple):
    """A tablet's id and the history of each of its channels, by channel number."""

    tablet: int
    channels: tuple[ChannelHistory, ...]

    def group(self, channel: int, generation: int) -> int:
        """The group for (tablet, channel, generation)."""
        return self.history(channel).group(generation)

    def history(self, channel: int) -> ChannelHistory:
        """The history of a channel; InvalidRequestError if the tablet has no such channel."""
        if not 0 <= channel <= min(CHANNEL_MAX, len(self.channels) - 1):
            raise InvalidRequestError(f"tablet {self.tablet} has channels 0..{len(self.channels) - 1}, not {channel}")
        return self.channels[channel]

    @property
    def version(self) -> int:
        """How often a channel has changed groups. Histories are changed one after another, so of two the higher is the newer."""
        return sum(len(history.entries) - 1 for history in self.channels)

    def item(self) -> HistoryItem | None:
        """The histories as a block carries them; None while the tablet is in the groups that it began in."""
        if not self.version:
            return None
        parts = [bytes([len(self.channels)])]
        for history in self.channels:
            parts.append(_COUNT.pack(len(history.entries)))
            parts += (_ENTRY.pack(*entry) for entry in history.entries)
        return HistoryItem(self.tablet.to_bytes(8, "big"), self.version, b"".join(parts))

    @classmethod
    def of_item(cls, item: HistoryItem) -> TabletInfo:
        """The histories that `item` carries."""
        channels: list[ChannelHistory] = []
        at = 1
        for _ in range(item.content[0]):
            (count,) = _COUNT.unpack_from(item.content, at)
            at += _COUNT.size
            channels.append(ChannelHistory(_ENTRY.iter_unpack(item.content[at : at + count * _ENTRY.size])))
            at += count * _ENTRY.size
        return cls(int.from_bytes(item.tablet, "big"), tuple(channels))

    def groups(self) -> list[int]:
        """Every group the tablet has ever written to, each once."""
        groups = {interval.group: None for history in self.channels for interval in history.intervals()}
        return list(groups)
