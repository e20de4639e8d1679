"""New tablets go to the storage group with the most free space per partition."""

from __future__ import annotations

from collections import Counter

from penstock.placement import GroupRoom, choose_groups


def test_an_empty_group_gets_tablets_until_it_is_as_full_as_the_other() -> None:
    rooms = [GroupRoom(1, partitions=10, free_bytes=1000), GroupRoom(2, partitions=0, free_bytes=1000)]
    assert choose_groups(rooms, 10) == [2] * 10
    assert Counter(choose_groups(rooms, 30)) == {1: 10, 2: 20}


def test_a_group_with_three_times_the_space_gets_three_times_the_tablets() -> None:
    rooms = [GroupRoom(1, partitions=0, free_bytes=3000), GroupRoom(2, partitions=0, free_bytes=1000)]
    assert Counter(choose_groups(rooms, 40)) == {1: 30, 2: 10}


def test_a_group_that_accepts_no_writes_is_used_only_if_there_is_no_other() -> None:
    lost = GroupRoom(1, partitions=0, free_bytes=1 << 40, is_writable=False)
    assert choose_groups([lost, GroupRoom(2, partitions=5, free_bytes=1000)], 2) == [2, 2]
    assert choose_groups([lost], 1) == [1]


def test_partitions_alone_count_while_the_space_of_a_group_is_not_known() -> None:
    rooms = [GroupRoom(1, partitions=4, free_bytes=1 << 40), GroupRoom(2, partitions=0)]
    assert choose_groups(rooms, 5) == [2, 2, 2, 2, 1]


def test_full_groups_share_what_comes() -> None:
    rooms = [GroupRoom(1, partitions=0, free_bytes=0), GroupRoom(2, partitions=0, free_bytes=0)]
    assert Counter(choose_groups(rooms, 4)) == {1: 2, 2: 2}
