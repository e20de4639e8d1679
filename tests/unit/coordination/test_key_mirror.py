"""The copy of the store's keys, and the owners that are followed from its changes."""

from __future__ import annotations

import pytest

from penstock.coordination.key_layout import number_in, owner_key
from penstock.coordination.key_mirror import KeyMirror
from penstock.coordination.ownership import OwnerMap
from penstock.coordination.port import Entry, Event, Position, Snapshot
from penstock.core.errors import CorruptionError


def mirror_of(*keys: str) -> KeyMirror:
    mirror = KeyMirror()
    entries = tuple(Entry(key, b"x", 1) for key in keys)
    mirror.apply_listing(Snapshot(entries, Position("store", 1)))
    return mirror


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        ("owners/", ["owners/1", "owners/2"]),
        ("", ["leader", "members/1", "owners", "owners/1", "owners/2", "ownersx"]),
        ("members/", ["members/1"]),
        ("kept/", []),
    ],
)
def test_a_scan_finds_the_keys_of_a_prefix_in_order(prefix: str, found: list[str]) -> None:
    mirror = mirror_of("ownersx", "owners/2", "leader", "owners/1", "members/1", "owners")
    assert [entry.key for entry in mirror.scan(prefix)] == found


def test_owners_that_follow_the_changes_are_those_of_the_store() -> None:
    mirror, followed = KeyMirror(), OwnerMap()
    written = OwnerMap()
    for revision, (first, last, node_id) in enumerate([(1000, 1009, 1), (1003, 1005, 2), (1004, 1004, None), (1000, 1002, 2)], 1):
        for change in written.plan(first, last, node_id):
            written.apply(change, revision)
        stored = {stored.first: stored for stored in written.ranges()}
        keys = {entry.key for entry in mirror.scan("")} | {owner_key(begin) for begin in stored}
        events: list[Event] = []
        for key in sorted(keys):
            owned = stored.get(number_in(key))
            entry = None if owned is None else Entry(key, f"[{owned.last},{owned.node_id}]".encode(), revision)
            events.append(Event(key, revision, entry))
        followed.follow(mirror.apply_events(events))
        assert followed.ranges() == written.ranges() == OwnerMap(mirror.scan("")).ranges()


def test_a_key_that_holds_no_range_is_told() -> None:
    changes = KeyMirror().apply_events([Event(owner_key(1000), 1, Entry(owner_key(1000), b"{}", 1))])
    with pytest.raises(CorruptionError, match="does not hold the owner"):
        OwnerMap().follow(changes)
