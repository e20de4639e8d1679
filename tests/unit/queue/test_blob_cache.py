"""The cache holds what was used last, and no more memory than it may."""

from __future__ import annotations

from penstock.queue import BlobCache
from penstock.queue.piece import Marks, Piece


def _piece(*buffers: bytes | memoryview) -> Piece:
    return Piece(0, 1, list(buffers), Marks(), (0, 0))


def test_a_piece_counts_as_the_memory_it_keeps_from_being_freed() -> None:
    cache = BlobCache(2500)
    received = memoryview(bytearray(1000))
    cache.put("a", _piece(received[:100], received[500:550], b"x" * 10))
    assert cache.bytes_held == 1010
    cache.put("b", _piece(received[100:200]))
    assert cache.bytes_held == 1010, "the buffer is there once"
    cache.drop("a")
    assert cache.bytes_held == 1000, "the other piece still needs it"
    cache.put("b", _piece(b"y" * 20))
    assert cache.bytes_held == 20
    cache.drop("b")
    assert cache.bytes_held == 0


def test_pieces_not_used_for_longest_make_room() -> None:
    cache = BlobCache(2500)
    for name in ("a", "b"):
        cache.put(name, _piece(memoryview(bytearray(1000))[:10]))
    assert cache.get("a") is not None
    cache.put("c", _piece(memoryview(bytearray(1000))[:10]))
    assert [cache.get(name) is not None for name in ("a", "b", "c")] == [True, False, True]
    assert (cache.bytes_held, cache.hits, cache.misses) == (2000, 3, 1)


def test_it_leaves_memory_to_others_but_not_more_than_half() -> None:
    cache = BlobCache(4000)
    for number in range(4):
        cache.put(number, _piece(bytes(1000)))
    cache.set_aside(999)
    assert cache.bytes_held == 3000
    cache.set_aside(10_000)
    assert cache.bytes_held == 2000
    cache.set_aside(0)
    cache.put(4, _piece(bytes(1000)))
    assert cache.bytes_held == 3000
