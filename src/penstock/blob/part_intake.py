"""How a VDisk takes parts that come from its own process, most of them entries of tablets' logs: they are placed in the journal
and indexed at once, and go out with its next write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.blob.blob_id import CHANNEL_KEY_SIZE, PREFIX_SIZE
from penstock.blob.channel import CHUNK_SHIFT, OFFSET_SHIFT, SIZE_PART_SHIFT, Channel
from penstock.blob.meta import DiskState
from penstock.blob.record import RecordKind
from penstock.blob.vector import Content
from penstock.kernels.log_bytes import part_of

if TYPE_CHECKING:
    from penstock.blob.index import DiskIndex
    from penstock.blob.journal import Journal, Undo
    from penstock.blob.status import Reply, Submitted
    from penstock.blob.topology import VDiskId

TABLET_SIZE = 8

PART = int(RecordKind.PART)
_FRESH = DiskState.FRESH


class PartIntake:
    """The part of a VDisk that decides whether it takes parts; the rest of it is in vdisk.py."""

    id: VDiskId
    index: DiskIndex
    journal: Journal
    closed: bool
    in_step: bool  # whether it has heard what its sisters have blocked and collected since it was open last
    is_cut_off: bool  # links broke, and it has not heard from a quorum since
    full: bool
    bytes_max: int  # how much the journal may take in before the disk is full for blobs

    def takes(self, generation: int, tablet: bytes, tablet_generation: int) -> bool:
        """Whether a command of this generation of the group may change something of this generation of a tablet."""
        if generation != self.id.generation or self.closed or not self.in_step or self.is_cut_off:
            return False
        index = self.index
        if index.state == _FRESH:
            return False
        blocked = index.blocks.get(tablet)
        return blocked is None or tablet_generation > blocked.generation

    def submit(self, generation: int, parts: list[tuple[bytes, Content]], done: Submitted) -> bool:
        """Store parts of different blobs of one tablet, which become durable together; `done` is told then. Returns False, and
        does nothing, if any of them needs a closer look: `put_all` gives each a reply of its own."""
        blob_id = parts[0][0]
        journal = self.journal
        if self.full or journal.bytes_appended > self.bytes_max:
            return False
        tablet_generation = blob_id[9] << 24 | blob_id[10] << 16 | blob_id[11] << 8 | blob_id[12]
        if not self.takes(generation, part_of(blob_id, 0, TABLET_SIZE), tablet_generation):
            return False
        index = self.index
        channels = channels_for(index, parts)
        if channels is None:
            return False
        for at, (blob_id, body) in enumerate(parts):
            journal.undo_on_failure(place_part(index, journal, channels[at], blob_id, body))
        journal.when_durable(done, self)
        return True

    def before_flush(self, compose: Callable[[], None]) -> None:
        """Call back just before the disk is written to next."""
        self.journal.before_flush(compose)

    def reply_for(self, error: OSError) -> Reply:
        """The reply to those whose parts did not become durable."""
        raise NotImplementedError


def channels_for(index: DiskIndex, parts: Sequence[tuple[bytes, Content]]) -> list[Channel] | None:
    """Returns the channel of each part. None if something is known of a blob already, or a barrier has ended it: then it needs a
    closer look."""
    channels: list[Channel] = []
    for blob_id, _ in parts:
        channel_key = part_of(blob_id, 0, CHANNEL_KEY_SIZE)
        channel = index.channels.get(channel_key)
        if channel is None:
            channel = index.channel(channel_key)
        key = part_of(blob_id, CHANNEL_KEY_SIZE, PREFIX_SIZE)
        if key in channel.blobs or channel.refuses(key):
            return None
        channels.append(channel)
    return channels


def place_part(index: DiskIndex, journal: Journal, channel: Channel, blob_id: bytes, body: Content) -> Undo:
    """Appends a part of which nothing is known here to the journal, and indexes it. Returns what undoes that, if it does not
    become durable."""
    before = journal.bytes_appended
    place = journal.append(PART, blob_id, body)
    chunk = place[0]
    size_part = blob_id[21] << 24 | blob_id[22] << 16 | blob_id[23] << 8 | blob_id[24]  # as the docstring of blob_id.py draws it
    entry = chunk << CHUNK_SHIFT | place[1] << OFFSET_SHIFT | size_part << SIZE_PART_SHIFT
    key = part_of(blob_id, CHANNEL_KEY_SIZE, PREFIX_SIZE)
    channel.blobs[key] = entry  # as `set_entries` does: nothing is known of it
    channel.fresh.append(key)
    use = index.chunks.get(chunk) or index.chunk_use(chunk)
    use.live += journal.bytes_appended - before
    index.parts += 1
    return index.drop_part, blob_id, entry
