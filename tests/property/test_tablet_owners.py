"""Ranges of tablets against a plain table of owners: any assignments give the same owners, in transactions that a store takes."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from penstock.coordination import KeyTable, Outcome, OwnerMap
from penstock.coordination.ownership import RANGES_PER_TRANSACTION, TABLET_MAX, TABLETS_PER_TRANSACTION

TABLETS = 40
assignments = st.lists(
    st.tuples(st.integers(0, TABLETS - 1), st.integers(0, TABLETS - 1), st.one_of(st.none(), st.integers(0, 3))), max_size=30
)


def assign(table: KeyTable, owners: OwnerMap, first: int, last: int, node_id: int | None) -> int:
    """Apply an assignment to a store; how many transactions it took."""
    transactions = 0
    for change in owners.plan(first, last, node_id):
        result = table.commit(change.compares, change.changes)
        assert result.outcome is Outcome.DONE
        owners.apply(change, result.revision)
        transactions += 1
        ranges = OwnerMap(table.scan("").entries).ranges()
        assert all(before.last < after.first for before, after in itertools.pairwise(ranges))
    return transactions


@given(assignments)
def test_ranges_and_a_plain_table_agree(steps: list[tuple[int, int, int | None]]) -> None:
    table, owners, plain = KeyTable("t"), OwnerMap(), dict[int, int | None]()
    for a, b, node_id in steps:
        first, last = min(a, b), max(a, b)
        assign(table, owners, first, last, node_id)
        plain.update(dict.fromkeys(range(first, last + 1), node_id))
        stored = OwnerMap(table.scan("").entries)
        assert stored.ranges() == owners.ranges()
        assert [stored.owner_of(tablet) for tablet in range(TABLETS + 1)] == [plain.get(tablet) for tablet in range(TABLETS + 1)]
        for before, after in zip(stored.ranges(), stored.ranges()[1:], strict=False):
            assert before.last + 1 < after.first or before.node_id != after.node_id


@given(assignments, st.dictionaries(st.integers(0, TABLETS - 1), st.one_of(st.none(), st.integers(0, 3))))
def test_single_tablets_share_transactions(steps: list[tuple[int, int, int | None]], wanted: dict[int, int | None]) -> None:
    table, owners = KeyTable("t"), OwnerMap()
    for a, b, node_id in steps:
        assign(table, owners, min(a, b), max(a, b), node_id)
    plain = {tablet: owners.owner_of(tablet) for tablet in range(TABLETS)} | wanted
    transactions = 0
    for change in owners.plan_each(wanted):
        assert len(change.changes) <= RANGES_PER_TRANSACTION
        result = table.commit(change.compares, change.changes)
        assert result.outcome is Outcome.DONE
        owners.apply(change, result.revision)
        transactions += 1
    stored = OwnerMap(table.scan("").entries)
    assert stored.ranges() == owners.ranges()
    assert {tablet: stored.owner_of(tablet) for tablet in range(TABLETS)} == plain
    assert transactions <= -(-len(wanted) // TABLETS_PER_TRANSACTION)


def test_many_ranges_take_several_transactions() -> None:
    table, owners = KeyTable("t"), OwnerMap()
    for tablet in range(0, 1000, 2):
        assign(table, owners, tablet, tablet, tablet % 7)
    assert len(owners.ranges()) == 500
    assert assign(table, owners, 0, TABLET_MAX, 1) >= 500 / RANGES_PER_TRANSACTION
    assert [(owned.first, owned.last) for owned in owners.ranges()] == [(0, TABLET_MAX)]
    assert assign(table, owners, 5, 5, 1) == 0
