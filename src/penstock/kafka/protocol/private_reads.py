"""An api of Penstock's own: where in its files the broker has the batches of a partition, for readers on the same machine."""

from __future__ import annotations

from penstock.kafka.protocol.fetch import AbortedTransaction
from penstock.kafka.protocol.fields import Message, array, int8, int16, int32, int64, string, uuid


class FindPiecesRequest(Message):
    """Asks for batches from an offset on, at least one and up to so many bytes."""

    topic_id: bytes = uuid()
    partition: int = int32()
    offset: int = int64()
    bytes_max: int = int32()
    isolation_level: int = int8()


class FoundPiece(Message):
    """One item of `FindPiecesResponse.pieces`: a range of a file, which is the one meant if its inode is."""

    path: str = string()
    inode: int = int64()
    position: int = int64()
    length: int = int32()


class FindPiecesResponse(Message):
    """Pieces that are batches one after another, and the offset after them; none where a fetch is the way to go."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    next_offset: int = int64(default=-1)
    aborted_transactions: list[AbortedTransaction] = array(AbortedTransaction)
    pieces: list[FoundPiece] = array(FoundPiece)
