"""Disks for groups: no two VDisks of a group where one failure takes both."""

from __future__ import annotations

import pytest

from penstock.blob import Erasure
from penstock.blob.placement import PlacedDisk, choose_disks, choose_spare
from penstock.core.errors import ConfigError


def _disks(realms: int, domains: int, per_domain: int) -> list[PlacedDisk]:
    cells = [(realm, domain) for realm in range(realms) for domain in range(domains) for _ in range(per_domain)]
    return [PlacedDisk(number + 1, f"realm{realm}", f"rack{domain}", 0) for number, (realm, domain) in enumerate(cells)]


def test_block_4_2_takes_eight_different_domains() -> None:
    disks = _disks(1, 9, 2)
    chosen = choose_disks(Erasure.BLOCK_4_2, disks)
    by_id = {disk.id: disk for disk in disks}
    assert len({by_id[disk].domain for disk in chosen}) == 8


def test_block_4_2_is_refused_with_seven_domains_however_many_disks() -> None:
    with pytest.raises(ConfigError, match="8 fail domains; there are 7"):
        choose_disks(Erasure.BLOCK_4_2, _disks(1, 7, 4))


def test_mirror_3_dc_takes_three_domains_in_each_of_three_realms_in_order() -> None:
    disks = _disks(4, 3, 2)
    by_id = {disk.id: disk for disk in disks}
    chosen = [by_id[disk] for disk in choose_disks(Erasure.MIRROR_3_DC, disks)]
    rows = [chosen[0:3], chosen[3:6], chosen[6:9]]
    assert all(len({disk.realm for disk in row}) == 1 and len({disk.domain for disk in row}) == 3 for row in rows)
    assert len({row[0].realm for row in rows}) == 3


def test_mirror_3_dc_is_refused_when_a_realm_has_too_few_domains() -> None:
    with pytest.raises(ConfigError, match="only 2 have as many"):
        choose_disks(Erasure.MIRROR_3_DC, [*_disks(2, 3, 1), PlacedDisk(100, "realm9", "rack0", 0)])


def test_the_least_loaded_disk_is_chosen() -> None:
    disks = [PlacedDisk(1, "1", "a", 3), PlacedDisk(2, "1", "b", 1), PlacedDisk(3, "1", "c", 2)]
    assert choose_disks(Erasure.NONE, disks) == (2,)


def test_a_spare_is_in_a_domain_that_no_other_member_uses() -> None:
    disks = _disks(1, 8, 2)
    members = choose_disks(Erasure.BLOCK_4_2, disks)
    by_id = {disk.id: disk for disk in disks}
    spare = by_id[choose_spare(Erasure.BLOCK_4_2, disks, members, 3)]
    assert spare.id not in members
    assert spare.domain == by_id[members[3]].domain


def test_a_spare_of_a_mirror_stays_in_its_realm() -> None:
    disks = _disks(4, 4, 1)
    members = choose_disks(Erasure.MIRROR_3_DC, disks)
    by_id = {disk.id: disk for disk in disks}
    assert by_id[choose_spare(Erasure.MIRROR_3_DC, disks, members, 4)].realm == by_id[members[4]].realm


def test_no_spare_is_an_error_that_says_so() -> None:
    disks = _disks(1, 8, 1)
    with pytest.raises(ConfigError, match="no disk is free"):
        choose_spare(Erasure.BLOCK_4_2, disks, choose_disks(Erasure.BLOCK_4_2, disks), 0)
