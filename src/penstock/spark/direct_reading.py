"""Reads stored batches from the broker's files when they are on this machine, bypassing the broker.

The broker returns their locations. An open file stays readable after its deletion; what cannot be opened is fetched.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from penstock.core.errors import PenstockError
from penstock.kafka.client import BlockingClient, BlockingConnection, ReceiveBuffer
from penstock.kafka.protocol import ZERO_UUID, private_keys
from penstock.kafka.protocol.private_reads import FindPiecesRequest, FindPiecesResponse, FoundPiece
from penstock.kernels.arrow_decode import find_end
from penstock.spark.fetching import BatchSpan, FetchSource
from penstock.spark.options import ReadOptions
from penstock.spark.ranges import OffsetRange

FILES_MAX: Final = 64
OFFSETS_MIN: Final = 64
"""Fewer, as in the micro-batches of a slow stream, are fetched: that takes no longer than to ask where they are, and the newest
records are in no file yet."""

_log = logging.getLogger(__name__)


class DirectSource(FetchSource):
    """Reads an offset range from files where possible, and fetches it otherwise."""

    def __init__(self, client: BlockingClient, options: ReadOptions, offset_range: OffsetRange) -> None:
        super().__init__(client, options, offset_range)
        self._is_direct = offset_range.topic_id != ZERO_UUID
        self._files = OpenFiles()

    def spans(self) -> Iterator[BatchSpan]:
        """See `ByteSource`."""
        try:
            yield from super().spans()
        finally:
            self._files.close()

    def _fetch_some(self, position: int, buffer: ReceiveBuffer) -> BatchSpan:
        span = self._read_pieces(position, buffer) if self._is_direct else None
        return super()._fetch_some(position, buffer) if span is None else span

    def _read_pieces(self, position: int, buffer: ReceiveBuffer) -> BatchSpan | None:
        """Read the batches from `position` on from files. Returns None if they must be fetched."""
        if self._leader is None or position >= self._range.stop:
            return None
        try:
            connection = self._client.connect(self._leader)
            answer = self._find(connection, position)
        except PenstockError:
            # The fetch that follows meets the same error and handles it.
            self._client.forget(self._leader)
            return None
        if answer is None or not answer.pieces:
            return None
        view = buffer.room(sum(piece.length for piece in answer.pieces))
        try:
            self._files.read(answer.pieces, view)
        except OSError as error:
            _log.info("reading %s by fetching, not from files: %s", self._range.topic_partition, error)
            self._is_direct = False
            return None
        end, used = find_end(view)
        if used != len(view) or end != answer.next_offset:
            return None
        self._record_bytes = max(used / max(end - position, 1), 1.0)
        aborted = [(transaction.producer_id, transaction.first_offset) for transaction in answer.aborted_transactions]
        return BatchSpan(view.toreadonly(), aborted, position, end)

    def _find(self, connection: BlockingConnection, position: int) -> FindPiecesResponse | None:
        if connection.version_of(private_keys.FIND_PIECES) < 0:
            self._is_direct = False
            return None
        request = FindPiecesRequest(
            topic_id=self._range.topic_id,
            partition=self._range.topic_partition.partition,
            offset=position,
            bytes_max=self._bytes_wanted(position),
            isolation_level=int(self._options.is_committed),
        )
        return connection.call(private_keys.FIND_PIECES, request, FindPiecesResponse)


class OpenFiles:
    """A cache of open files. Not thread-safe."""

    def __init__(self) -> None:
        self._files: OrderedDict[tuple[str, int], int] = OrderedDict()

    def read(self, pieces: list[FoundPiece], view: memoryview) -> None:
        """Fill a view with consecutive pieces. OSError if a file is missing or is another file."""
        at = 0
        for piece in pieces:
            file = self._open(piece)
            end, position = at + piece.length, piece.position
            while at < end:
                count = os.preadv(file, [view[at:end]], position)
                if count == 0:
                    raise OSError(0, f"{piece.path} is shorter than the broker says")
                at += count
                position += count

    def close(self) -> None:
        """Close all files."""
        while self._files:
            os.close(self._files.popitem()[1])

    def _open(self, piece: FoundPiece) -> int:
        key = (piece.path, piece.inode)
        file = self._files.get(key)
        if file is None:
            file = os.open(piece.path, os.O_RDONLY | os.O_CLOEXEC)
            if os.fstat(file).st_ino != piece.inode:
                os.close(file)
                raise FileNotFoundError(0, f"{piece.path} is another file here than at the broker")
            self._files[key] = file
            while len(self._files) > FILES_MAX:
                os.close(self._files.popitem(last=False)[1])
        self._files.move_to_end(key)
        return file
