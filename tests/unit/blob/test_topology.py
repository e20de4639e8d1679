"""Shapes of groups, names of VDisks, and the placing of blobs."""

from __future__ import annotations

import pytest

from penstock.blob.blob_id import PREFIX_SIZE, BlobId
from penstock.blob.topology import Erasure, VDiskId, allowed_parts, blob_hash, main_part, subgroup
from penstock.core.errors import InvalidRequestError

HASHES = [*range(72), 0xFFFFFFFF, 0xDEADBEEF]


@pytest.mark.parametrize(
    ("name", "shape"), [("none", (1, 1, 1)), ("block-4-2", (1, 8, 1)), ("mirror-3-dc", (3, 3, 1)), ("mirror-3", (1, 3, 1))]
)
def test_an_erasure_is_found_by_name_and_has_its_shape(name: str, shape: tuple[int, int, int]) -> None:
    assert Erasure(name).shape == shape


def test_a_vdisk_id_writes_its_group_in_hex_and_the_rest_in_decimal() -> None:
    assert str(VDiskId(0x82000000, 1, 0, 0, 0)) == "[82000000:1:0:0:0]"


def test_a_small_group_number_is_written_with_eight_digits() -> None:
    assert str(VDiskId(0xA, 12, 2, 10, 0)) == "[0000000a:12:2:10:0]"


@pytest.mark.parametrize("vdisk_id", [VDiskId(0x82000000, 1, 0, 0, 0), VDiskId(10, 4294967295, 2, 7, 255)])
def test_parse_reads_what_str_writes(vdisk_id: VDiskId) -> None:
    assert VDiskId.parse(str(vdisk_id)) == vdisk_id


@pytest.mark.parametrize(
    "text", ["", "82000000:1:0:0:0", "[82000000:1:0:0]", "[8200000g:1:0:0:0]", "[1:1:0:0:-1]", "[1:1:0:0:0] "]
)
def test_parse_refuses_what_is_not_a_vdisk_id(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="is not a VDisk id"):
        VDiskId.parse(text)


@pytest.mark.parametrize("text", ["[100000000:1:0:0:0]", "[1:4294967296:0:0:0]", "[1:1:256:0:0]", "[1:1:0:0:256]"])
def test_parse_refuses_a_field_wider_than_it_may_be(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="must be within"):
        VDiskId.parse(text)


@pytest.mark.parametrize("erasure", Erasure)
def test_order_numbers_go_both_ways(erasure: Erasure) -> None:
    orders = range(erasure.shape.disks)
    assert [VDiskId.of_order(erasure, 7, 1, order).order(erasure) for order in orders] == list(orders)


def test_order_numbers_count_realm_first() -> None:
    assert VDiskId(7, 1, 2, 1, 0).order(Erasure.MIRROR_3_DC) == 7


def test_a_vdisk_outside_the_shape_has_no_order_number() -> None:
    with pytest.raises(InvalidRequestError, match="outside"):
        VDiskId(7, 1, 1, 0, 0).order(Erasure.BLOCK_4_2)


@pytest.mark.parametrize("order", [-1, 8])
def test_an_order_number_outside_the_group_names_no_vdisk(order: int) -> None:
    with pytest.raises(InvalidRequestError, match="has no VDisk"):
        VDiskId.of_order(Erasure.BLOCK_4_2, 7, 1, order)


def test_the_hash_of_a_blob_is_pinned_since_stored_blobs_are_found_by_it() -> None:
    prefix = BlobId(72075186224047637, 3, 5, 17, 4242, 100).pack()[:PREFIX_SIZE]
    assert blob_hash(prefix) == 0xCD44E6C2


@pytest.mark.parametrize("erasure", Erasure)
def test_a_subgroup_is_a_permutation_of_the_group(erasure: Erasure) -> None:
    assert all(sorted(subgroup(erasure, hashed)) == list(range(erasure.shape.disks)) for hashed in HASHES)


@pytest.mark.parametrize("hashed", HASHES)
def test_a_block_subgroup_starts_at_the_hash_and_goes_round_the_domains(hashed: int) -> None:
    assert subgroup(Erasure.BLOCK_4_2, hashed) == tuple((hashed + index) % 8 for index in range(8))


@pytest.mark.parametrize("hashed", HASHES)
def test_a_mirror_subgroup_has_realms_for_columns_and_domains_for_rows(hashed: int) -> None:
    places = [VDiskId.of_order(Erasure.MIRROR_3_DC, 7, 1, order) for order in subgroup(Erasure.MIRROR_3_DC, hashed)]
    assert [(place.realm, place.domain) for place in places] == [
        ((hashed % 3 + col) % 3, (hashed // 3 % 3 + row) % 3) for row in range(3) for col in range(3)
    ]


@pytest.mark.parametrize("erasure", Erasure)
def test_main_places_of_a_blob_are_in_different_fail_domains(erasure: Erasure) -> None:
    mains = [index for index in range(erasure.shape.disks) if main_part(erasure, index)]
    for hashed in HASHES:
        places = [VDiskId.of_order(erasure, 7, 1, subgroup(erasure, hashed)[index]) for index in mains]
        assert len({(place.realm, place.domain) for place in places}) == len(mains)


@pytest.mark.parametrize("hashed", HASHES)
def test_mirror_mains_are_in_different_realms(hashed: int) -> None:
    assert {order // 3 for order in subgroup(Erasure.MIRROR_3_DC, hashed)[:3]} == {0, 1, 2}


@pytest.mark.parametrize(
    ("erasure", "mains"),
    [
        (Erasure.NONE, [1]),
        (Erasure.BLOCK_4_2, [1, 2, 3, 4, 5, 6, 0, 0]),
        (Erasure.MIRROR_3_DC, [1, 2, 3, 0, 0, 0, 0, 0, 0]),
        (Erasure.MIRROR_3, [1, 2, 3]),
    ],
)
def test_main_parts_are_in_order_and_handoffs_have_none(erasure: Erasure, mains: list[int]) -> None:
    assert [main_part(erasure, index) for index in range(erasure.shape.disks)] == mains


@pytest.mark.parametrize("index", range(6))
def test_a_block_main_takes_its_part_only(index: int) -> None:
    assert allowed_parts(Erasure.BLOCK_4_2, index) == (index + 1,)


@pytest.mark.parametrize("index", [6, 7])
def test_a_block_handoff_takes_any_part(index: int) -> None:
    assert allowed_parts(Erasure.BLOCK_4_2, index) == (1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize("index", range(9))
def test_a_mirror_place_takes_the_part_of_its_column(index: int) -> None:
    assert allowed_parts(Erasure.MIRROR_3_DC, index) == (index % 3 + 1,)
