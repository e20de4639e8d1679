"""The blob cache of a node, shared by all its partitions: runs of batches that were written or read of late."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from penstock.queue.piece import Piece

DEFAULT_BYTES = 256 << 20


class BlobCache:
    """The most recently used pieces, up to a number of bytes."""

    def __init__(self, bytes_max: int = DEFAULT_BYTES) -> None:
        self._bytes_max = bytes_max
        self._pieces: OrderedDict[Hashable, Piece] = OrderedDict()
        self.bytes_held = 0
        self.hits = 0
        self.misses = 0

    def get(self, key: Hashable) -> Piece | None:
        """The piece, if it is held."""
        piece = self._pieces.get(key)
        if piece is None:
            self.misses += 1
            return None
        self.hits += 1
        self._pieces.move_to_end(key)
        return piece

    def put(self, key: Hashable, piece: Piece) -> None:
        """Hold a piece, at the cost of those not used for longest."""
        self.drop(key)
        self._pieces[key] = piece
        self.bytes_held += piece.size
        while self.bytes_held > self._bytes_max and self._pieces:
            _, oldest = self._pieces.popitem(last=False)
            self.bytes_held -= oldest.size

    def drop(self, key: Hashable) -> None:
        """Let go of a piece: it is gone from the partition."""
        piece = self._pieces.pop(key, None)
        if piece is not None:
            self.bytes_held -= piece.size
