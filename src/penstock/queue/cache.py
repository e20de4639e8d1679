"""The blob cache of a node, shared by all its partitions: recently written or read runs of batches."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from penstock.queue.piece import Piece

DEFAULT_BYTES = 256 << 20


class BlobCache:
    """An LRU cache of pieces, bounded by the memory they pin: a piece may consist of views of larger buffers, which it may share
    with other pieces."""

    def __init__(self, bytes_max: int = DEFAULT_BYTES) -> None:
        self.bytes_max = bytes_max
        self._set_aside = 0
        self._pieces: OrderedDict[Hashable, Piece] = OrderedDict()
        self._views: dict[int, int] = {}  # of each buffer, how many there are
        self.bytes_held = 0
        self.hits = 0
        self.misses = 0

    def get(self, key: Hashable) -> Piece | None:
        """The piece, if it is cached."""
        piece = self._pieces.get(key)
        if piece is None:
            self.misses += 1
            return None
        self.hits += 1
        self._pieces.move_to_end(key)
        return piece

    def put(self, key: Hashable, piece: Piece) -> None:
        """Cache a piece, evicting the least recently used ones."""
        self.drop(key)
        self._pieces[key] = piece
        views = self._views
        for buffer in piece.buffers:
            owner = buffer.obj if isinstance(buffer, memoryview) else buffer
            known = views.get(id(owner), 0)
            views[id(owner)] = known + 1
            if not known:
                self.bytes_held += memoryview(owner).nbytes
        self._shrink()

    def drop(self, key: Hashable) -> None:
        """Evict a piece that was deleted from its partition."""
        piece = self._pieces.pop(key, None)
        if piece is not None:
            self._evict(piece)

    def set_aside(self, size: int) -> None:
        """Give up `size` bytes of the cache's budget, at most half of it."""
        self._set_aside = min(size, self.bytes_max // 2)
        self._shrink()

    def _shrink(self) -> None:
        while self.bytes_held > self.bytes_max - self._set_aside and self._pieces:
            self._evict(self._pieces.popitem(last=False)[1])

    def _evict(self, piece: Piece) -> None:
        views = self._views
        for buffer in piece.buffers:
            owner = buffer.obj if isinstance(buffer, memoryview) else buffer
            views[id(owner)] -= 1
            if not views[id(owner)]:
                del views[id(owner)]
                self.bytes_held -= memoryview(owner).nbytes
