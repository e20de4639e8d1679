"""How a VDisk takes parts that come from its own process, most of them entries of tablets' logs: they are placed in the journal
and indexed at once, and go out with its next write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.blob.blob_id import CHANNEL_KEY_SIZE, PREFIX_SIZE
from penstock.blob.channel import CHUNK_SHIFT, OFFSET_SHIFT, SIZE_PART_SHIFT, Channel
from penstock.blob.record import RecordKind
from penstock.blob.vector import Content

if TYPE_CHECKING:
    from penstock.blob.index import DiskIndex
    from penstock.blob.journal import Journal

PART = int(RecordKind.PART)


def channels_for(index: DiskIndex, parts: Sequence[tuple[bytes, Content]]) -> list[Channel] | None:
    """Returns the channel of each part. None if something is known of a blob already, or a barrier has ended it: then it needs a
    closer look."""
    channels: list[Channel] = []
    for blob_id, _ in parts:
        channel_key = blob_id[:CHANNEL_KEY_SIZE]
        channel = index.channels.get(channel_key)
        if channel is None:
            channel = index.channel(channel_key)
        key = blob_id[CHANNEL_KEY_SIZE:PREFIX_SIZE]
        if key in channel.blobs or channel.refuses(key):
            return None
        channels.append(channel)
    return channels


def place_part(index: DiskIndex, journal: Journal, channel: Channel, blob_id: bytes, body: Content) -> Callable[[], None]:
    """Appends a part of which nothing is known here to the journal, and indexes it. Returns what undoes that, if it does not
    become durable."""
    before = journal.bytes_appended
    place = journal.append(PART, blob_id, body)
    chunk = place[0]
    size_part = int.from_bytes(blob_id[PREFIX_SIZE:], "big")
    entry = chunk << CHUNK_SHIFT | place[1] << OFFSET_SHIFT | size_part << SIZE_PART_SHIFT
    key = blob_id[CHANNEL_KEY_SIZE:PREFIX_SIZE]
    channel.blobs[key] = entry  # as `set_entries` does: nothing is known of it
    channel.fresh.append(key)
    use = index.chunks.get(chunk) or index.chunk_use(chunk)
    use.live += journal.bytes_appended - before
    index.parts += 1
    return partial(index.drop_part, blob_id, entry)


def place_parts(
    index: DiskIndex, journal: Journal, channels: Sequence[Channel], parts: Sequence[tuple[bytes, Content]]
) -> list[Callable[[], None]]:
    """Places several parts in their channels. Returns what undoes that."""
    return [place_part(index, journal, channel, blob_id, body) for channel, (blob_id, body) in zip(channels, parts, strict=True)]
