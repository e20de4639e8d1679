"""Checks of requests to a storage group: each returns what is wrong, as the reason of an ERROR."""

from __future__ import annotations

from penstock.blob.blob_id import BLOB_SIZE_MAX, GENERATION_MAX, STEP_MAX, BlobId
from penstock.blob.vector import Content
from penstock.core.errors import InvalidRequestError


def put_trouble(blob_id: BlobId, data: Content) -> str:
    """Returns what is wrong with a put whose blob id or size is not valid."""
    if blob_id.part:
        return f"{blob_id} names part {blob_id.part}; put takes whole blobs, with part 0"
    if len(data) != blob_id.size:
        return f"{blob_id} says {blob_id.size} bytes, but {len(data)} were given"
    return f"{blob_id} has {blob_id.size} bytes; a blob has 1 to {BLOB_SIZE_MAX}"


def field_trouble(blob_id: BlobId) -> str:
    """Returns which field of a blob id is out of range; empty if none is."""
    try:
        blob_id.check()
    except InvalidRequestError as error:
        return str(error)
    return ""


def get_trouble(blob_id: BlobId, offset: int, length: int | None) -> str:
    """Returns what is wrong with a get; empty if nothing is."""
    if trouble := field_trouble(blob_id):
        return trouble
    if blob_id.part:
        return f"{blob_id} names part {blob_id.part}; get takes whole blobs, with part 0"
    if offset < 0 or (length is not None and length <= 0):
        return f"cannot read {length} bytes from offset {offset}"
    return ""


def collect_trouble(channel: tuple[int, int], flagged: tuple[BlobId, ...], barrier: tuple[int, int] | None, *, hard: bool) -> str:
    """Returns what is wrong with a collection of garbage; empty if nothing is."""
    if barrier is not None and not (0 <= barrier[0] <= GENERATION_MAX and 0 <= barrier[1] <= STEP_MAX):
        return f"barrier {barrier} is out of range: generation and step are 32-bit numbers"
    if hard and flagged:
        return "a hard barrier takes no keep flags: it ends blobs whatever their flags"
    for blob_id in flagged:
        if trouble := field_trouble(blob_id):
            return trouble
        if blob_id[:2] != channel:
            return f"{blob_id} is not in channel {channel[1]} of tablet {channel[0]}"
    return ""
