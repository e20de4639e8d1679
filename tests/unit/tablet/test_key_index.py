"""The key index and the overlay: counts of references, and commands that move no data, with no storage at all."""

from __future__ import annotations

import pytest

from penstock.blob import BlobId
from penstock.core.errors import InvalidRequestError
from penstock.tablet import Command, Concat, DeleteRange
from penstock.tablet.key_index import BlobRef, Chain, Change, KeyIndex, Overlay, Value, refs_of, value_size


def _blob(number: int, size: int = 5000) -> BlobId:
    return BlobId(5, 1, 1, number, 0, size)


def _chain(*blobs: int, head: bytes = b"") -> Chain:
    return Chain(head, tuple(BlobRef(_blob(number), 0, 5000) for number in blobs))


def _index(values: dict[bytes, Value]) -> KeyIndex:
    index = KeyIndex()
    assert index.apply(list(values.items())) == []
    return index


def _apply(index: KeyIndex, *commands: Command) -> list[BlobId]:
    overlay = Overlay(index)
    for command in commands:
        overlay.apply(command)
    return index.apply(overlay.changes())


def test_the_size_of_a_value_is_that_of_its_pieces_and_not_of_its_head() -> None:
    assert value_size(b"abc") == 3
    assert value_size(Chain(b"a head", (b"xy", BlobRef(_blob(1), 7, 10)))) == 12
    assert list(refs_of(Chain(b"", (b"xy", BlobRef(_blob(1), 7, 10))))) == [BlobRef(_blob(1), 7, 10)]
    assert list(refs_of(b"small")) == []
    assert list(refs_of(None)) == []


def test_a_blob_dies_with_its_last_reference_and_not_before() -> None:
    index = _index({b"a": _chain(1)})
    assert _apply(index, Concat((b"a",), b"copy/", keep_sources=True)) == []
    assert index.references == {_blob(1): 2}
    assert _apply(index, DeleteRange(b"a", b"b")) == []
    assert index.references == {_blob(1): 1}
    assert _apply(index, DeleteRange(b"copy/", b"d")) == [_blob(1)]
    assert index.references == {}


def test_a_blob_that_only_changes_hands_lives_on() -> None:
    index = _index({b"z": _chain(1)})
    assert _apply(index, Concat((b"z",), b"a")) == []
    assert index.references == {_blob(1): 1}
    assert index.values == {b"a": _chain(1)}


def test_a_blob_used_twice_in_one_value_counts_twice() -> None:
    index = _index({b"a": _chain(1)})
    assert _apply(index, Concat((b"a", b"a"), b"aa", keep_sources=True)) == []
    assert index.references == {_blob(1): 3}
    assert _apply(index, DeleteRange(b"aa", b"ab")) == []
    assert index.references == {_blob(1): 1}


def test_overwriting_releases_the_old_value() -> None:
    index = _index({b"a": _chain(1, 2)})
    assert index.apply([(b"a", _chain(2))]) == [_blob(1)]
    assert index.value_bytes == 5000
    assert index.apply([(b"a", b"small")]) == [_blob(2)]
    assert index.value_bytes == 5


def test_concat_joins_pieces_in_order_and_leaves_heads_behind() -> None:
    index = _index({b"a": _chain(1, head=b"one"), b"b": b"small", b"c": _chain(2, head=b"two")})
    assert _apply(index, Concat((b"c", b"b", b"a"), b"all", head=b"new")) == []
    assert index.values == {b"all": Chain(b"new", (*_chain(2).pieces, b"small", *_chain(1).pieces))}


def test_concat_onto_one_of_its_sources_keeps_the_result() -> None:
    index = _index({b"a": _chain(1), b"b": _chain(2)})
    _apply(index, Concat((b"a", b"b"), b"a"))
    assert index.values == {b"a": _chain(1, 2)}


def test_concat_of_a_key_onto_itself_changes_nothing() -> None:
    index = _index({b"a": _chain(1)})
    assert _apply(index, Concat((b"a",), b"a")) == []
    assert index.values == {b"a": _chain(1)}
    assert index.references == {_blob(1): 1}


def test_concat_takes_the_place_of_what_the_target_held() -> None:
    index = _index({b"a": _chain(1), b"b": _chain(2)})
    assert _apply(index, Concat((b"a",), b"b")) == [_blob(2)]
    assert index.values == {b"b": _chain(1)}


def test_a_range_excludes_its_end_and_a_reversed_one_is_empty() -> None:
    index = _index({b"a": b"1", b"b": b"2", b"c": b"3"})
    assert list(index.keys(b"a", b"c")) == [b"a", b"b"]
    assert list(index.keys(b"b", None)) == [b"b", b"c"]
    assert list(index.keys(b"c", b"a")) == []
    assert Overlay(index).keys(b"c", b"a") == []


def test_the_range_of_one_key_is_that_key_alone() -> None:
    index = _index({b"a": b"1", b"a\0": b"2", b"ab": b"3"})
    _apply(index, DeleteRange(b"a", b"a\0"), DeleteRange(b"none", b"none\0"))
    assert index.values == {b"a\0": b"2", b"ab": b"3"}


def test_later_commands_see_earlier_ones_of_the_request() -> None:
    index = _index({b"a": b"1"})
    _apply(index, Concat((b"a",), b"b"), Concat((b"b",), b"c", keep_sources=True), DeleteRange(b"b", b"c"))
    assert index.values == {b"c": Chain(b"", (b"1",))}


@pytest.mark.parametrize(
    "command",
    [
        Concat((b"gone",), b"x"),
        Concat((b"a", b"gone"), b"x"),
        Concat((b"a",), b"k" * 4001),
        Concat((b"a",), b""),
    ],
)
def test_a_command_that_cannot_be_is_refused(command: Command) -> None:
    overlay = Overlay(_index({b"a": b"1"}))
    with pytest.raises(InvalidRequestError):
        overlay.apply(command)


def test_a_value_of_more_pieces_than_can_be_stored_is_refused() -> None:
    overlay = Overlay(_index({b"a": Chain(b"", (b"x",) * 40_000)}))
    with pytest.raises(InvalidRequestError, match="pieces"):
        overlay.apply(Concat((b"a", b"a"), b"b"))


def test_a_layer_over_a_layer_sees_both_and_is_absorbed_whole() -> None:
    index = _index({b"a": b"1", b"b": b"2"})
    below = Overlay(index)
    below.set(b"a", None)
    above = Overlay(below)
    above.set(b"c", b"3")
    above.set(b"b", None)
    assert above.get(b"a") is None
    assert above.keys(b"", b"z") == [b"c"]
    assert below.keys(b"", b"z") == [b"b"]
    below.absorb(above)
    expected: list[Change] = [(b"a", None), (b"c", b"3"), (b"b", None)]
    assert below.changes() == expected
    assert list(index.keys(b"", None)) == [b"a", b"b"]


def test_loading_counts_references_anew() -> None:
    index = KeyIndex()
    index.load([(b"a", _chain(1)), (b"b", _chain(1, 2)), (b"a", None)])
    index.count_references()
    index.count_references()
    assert index.references == {_blob(1): 1, _blob(2): 1}
    assert index.value_bytes == 10_000
