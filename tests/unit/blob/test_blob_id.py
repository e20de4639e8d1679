"""Blob ids: the seed's fields and widths, byte order as id order, and the text form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.blob.blob_id import ID_SIZE, PREFIX_SIZE, BlobId
from penstock.core.errors import InvalidRequestError

WIDTHS = {"tablet": 64, "channel": 8, "generation": 32, "step": 32, "cookie": 32, "size": 28, "part": 4}

blob_ids = st.builds(BlobId, *(st.integers(0, (1 << width) - 1) for width in WIDTHS.values()))


def test_the_fields_and_their_order_are_the_seeds() -> None:
    assert BlobId._fields == tuple(WIDTHS)
    assert sum(WIDTHS.values()) == ID_SIZE * 8


@pytest.mark.parametrize("field", WIDTHS)
def test_each_field_takes_its_full_width_and_no_more(field: str) -> None:
    widest = BlobId(0, 0, 0, 0, 0, 0, 0)._replace(**{field: (1 << WIDTHS[field]) - 1})
    widest.check()
    assert BlobId.unpack(widest.pack()) == widest
    with pytest.raises(InvalidRequestError, match=f"field {field} is {1 << WIDTHS[field]}"):
        widest._replace(**{field: 1 << WIDTHS[field]}).check()
    with pytest.raises(InvalidRequestError, match=f"field {field} is -1"):
        widest._replace(**{field: -1}).check()


@given(blob_ids, blob_ids)
def test_byte_order_is_id_order(one: BlobId, other: BlobId) -> None:
    assert (one.pack() < other.pack()) == (one < other)


@given(blob_ids)
def test_packed_and_written_ids_are_read_back(blob_id: BlobId) -> None:
    assert len(blob_id.pack()) == ID_SIZE
    assert BlobId.unpack(blob_id.pack()) == blob_id
    assert BlobId.parse(str(blob_id)) == blob_id


def test_the_text_form_has_the_seeds_order() -> None:
    assert str(BlobId(tablet=1, channel=4, generation=2, step=3, cookie=5, size=6, part=7)) == "[1:2:3:4:5:6:7]"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1:2:3:4:5:6:7",
        "[1:2:3:4:5:6]",
        "[1:2:3:4:5:6:7:8]",
        "[1:2:3:4:5:6:-7]",
        "[1:2:3:4:5:6:x]",
        "[1:2:3:4:5:6:7]\n",
        " [1:2:3:4:5:6:7]",
        "[\N{ARABIC-INDIC DIGIT ONE}:2:3:4:5:6:7]",
        pytest.param("[" + "1" * 5000 + ":2:3:4:5:6:7]", id="5000 digits"),
    ],
)
def test_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="is not a blob id"):
        BlobId.parse(text)


@pytest.mark.parametrize(
    ("text", "field"), [("[1:2:3:256:5:6:7]", "channel"), ("[1:2:3:4:5:6:16]", "part"), ("[1:2:3:4:5:268435456:0]", "size")]
)
def test_text_with_a_field_too_wide_is_refused(text: str, field: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"field {field}"):
        BlobId.parse(text)


def test_a_part_shares_its_blobs_prefix() -> None:
    blob_id = BlobId(1, 2, 3, 4, 5, 6)
    part = BlobId.unpack(blob_id.pack_part(3))
    assert part == blob_id._replace(part=3)
    assert part.whole() == blob_id
    assert part.pack()[:PREFIX_SIZE] == blob_id.pack()[:PREFIX_SIZE]
