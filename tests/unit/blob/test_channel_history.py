"""Which group holds which generation."""

from __future__ import annotations

import pytest

from penstock.blob import ChannelHistory, TabletInfo
from penstock.core.errors import InvalidRequestError


def test_each_generation_maps_to_the_group_it_wrote_to() -> None:
    history = ChannelHistory([(0, 10), (5, 11), (9, 10)])
    assert [history.group(generation) for generation in (0, 4, 5, 8, 9, 1_000_000)] == [10, 10, 11, 11, 10, 10]


def test_intervals_cover_all_generations_without_overlap() -> None:
    intervals = list(ChannelHistory([(1, 10), (5, 11)]).intervals())
    assert intervals == [(1, 4, 10), (5, 2**32 - 1, 11)]


def test_a_new_group_starts_a_new_interval_and_the_same_group_does_not() -> None:
    history = ChannelHistory([(0, 10)])
    assert history.then(3, 10) == history
    assert history.then(3, 12).entries == ((0, 10), (3, 12))


@pytest.mark.parametrize("entries", [[], [(2, 1)], [(0, 1), (0, 2)], [(0, 1), (5, 2), (4, 3)]])
def test_a_history_that_does_not_start_at_the_beginning_and_rise_is_refused(entries: list[tuple[int, int]]) -> None:
    with pytest.raises(InvalidRequestError):
        ChannelHistory(entries)


def test_a_tablet_names_every_group_it_has_written_to_once() -> None:
    info = TabletInfo(7, (ChannelHistory([(0, 10), (5, 11)]), ChannelHistory([(0, 11), (2, 12)])))
    assert sorted(info.groups()) == [10, 11, 12]
    assert info.group(1, 3) == 12


def test_a_channel_that_the_tablet_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"channels 0\.\.0"):
        TabletInfo(7, (ChannelHistory([(0, 10)]),)).group(1, 1)
