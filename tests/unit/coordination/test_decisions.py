"""Decisions of coordination without a store: keys, elections, identity, copies, endpoints, errors of etcd."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from penstock.coordination import EtcdOptions, Event, LeaderRecord, RolledBackError, Snapshot
from penstock.coordination.election import Leader, Step, campaign, leader_of, next_step
from penstock.coordination.etcd.endpoints import EndpointChoice
from penstock.coordination.etcd.failures import Failure, error_of, failure_of
from penstock.coordination.key_layout import cluster_prefix, group_key, number_in
from penstock.coordination.key_mirror import KeyChange, KeyMirror
from penstock.coordination.key_table import KeyTable
from penstock.coordination.members import check_registration
from penstock.coordination.port import (
    CompactedError,
    Compare,
    CoordinationRefusedError,
    CoordinationUnavailableError,
    Entry,
    Position,
    Put,
)
from penstock.core.errors import ConfigError, CorruptionError, InvalidRequestError, OutOfSpaceError

MINE = LeaderRecord(node_id=1, instance_id="a")
OTHER = LeaderRecord(node_id=2, instance_id="b")


@pytest.mark.parametrize(
    ("leader", "lease", "step"),
    [
        (None, 0, Step.WAIT),
        (None, 7, Step.CAMPAIGN),
        (Leader(OTHER, 5, 9), 7, Step.WAIT),
        (Leader(MINE, 5, 7), 7, Step.LEAD),
        (Leader(MINE, 5, 7), 0, Step.WAIT),  # our lease is not believed any more
        (Leader(MINE, 5, 6), 7, Step.CAMPAIGN),  # the key hangs on a lease that we lost
    ],
)
def test_next_step_of_a_candidate(leader: Leader | None, lease: int, step: Step) -> None:
    assert next_step(leader, MINE, lease) is step


def test_a_campaign_compares_what_was_seen() -> None:
    compare, put = campaign(None, MINE, 7)
    assert (compare, put.lease) == (Compare("leader", 0), 7)
    assert campaign(Leader(OTHER, 5, 9), MINE, 7)[0] == Compare("leader", 5)
    assert leader_of(Entry("leader", put.value, 6, 7)) == Leader(MINE, 6, 7)


@pytest.mark.parametrize("value", [b"", b"{}", b"\xff", b'{"node_id": "x", "instance_id": "a"}'])
def test_a_key_that_holds_something_else_is_named(value: bytes) -> None:
    with pytest.raises(CorruptionError, match="the key leader"):
        leader_of(Entry("leader", value, 1))
    with pytest.raises(CorruptionError, match="the key members/1"):
        check_registration(Entry("members/1", value, 1), None)  # type: ignore[arg-type]


def test_numbers_in_keys_sort_as_numbers() -> None:
    numbers = [0, 9, 10, 255, 256, (1 << 64) - 1]
    keys = [group_key(number) for number in numbers]
    assert keys == sorted(keys)
    assert [number_in(key) for key in keys] == numbers
    with pytest.raises(InvalidRequestError):
        group_key(1 << 64)


@pytest.mark.parametrize("name", ["", "/", "a/b", "-a", "a b", "x" * 64, "ы"])
def test_names_that_cannot_be_part_of_a_key(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="name of a cluster"):
        cluster_prefix(name)


def entry(key: str, revision: int) -> Entry:
    return Entry(key, str(revision).encode(), revision)


def snapshot(revision: int, *entries: Entry) -> Snapshot:
    return Snapshot(entries, Position("s", revision))


def test_a_copy_takes_each_change_once() -> None:
    mirror = KeyMirror()
    a1, a2, b1 = entry("a", 3), entry("a", 6), entry("b", 4)
    assert mirror.apply_listing(snapshot(5, a1, b1)) == [KeyChange("a", None, a1), KeyChange("b", None, b1)]
    assert mirror.apply_events([Event("b", 4, b1)]) == []
    assert mirror.apply_events([Event("a", 6, a2), Event("b", 6, None)]) == [KeyChange("a", a1, a2), KeyChange("b", b1, None)]
    assert mirror.apply_events([Event("a", 6, a2)]) == []
    assert (mirror.revision, mirror.scan("")) == (6, [a2])


def test_a_listing_after_a_gap_gives_the_differences() -> None:
    mirror = KeyMirror()
    a1, b1, c1, a2, d1 = entry("a", 1), entry("b", 2), entry("c", 3), entry("a", 7), entry("d", 8)
    mirror.apply_listing(snapshot(5, a1, b1, c1))
    changes = mirror.apply_listing(snapshot(9, a2, b1, d1))
    assert changes == [KeyChange("a", a1, a2), KeyChange("c", c1, None), KeyChange("d", None, d1)]


def test_a_key_that_went_back_shows_a_restored_store_whatever_its_revision() -> None:
    mirror = KeyMirror()
    mirror.apply_listing(snapshot(9, entry("a", 8)))
    mirror.check_listing(snapshot(20, entry("a", 8)))
    with pytest.raises(RolledBackError, match="the key a was written at revision 8 before and at 5 now"):
        mirror.check_listing(snapshot(20, entry("a", 5)))


def test_history_is_bounded() -> None:
    table = KeyTable("t", history_max=10)
    for _ in range(20):
        table.commit([], [Put("a", b"")])
    with pytest.raises(CompactedError):
        table.changes_after(1, "")
    assert len(table.changes_after(table.revision - 10, "")) == 10


def test_an_endpoint_that_failed_is_asked_last() -> None:
    choice = EndpointChoice(3, first=1)
    assert choice.current == 1
    choice.note_failed(1)
    choice.note_failed(1)  # another call that was in flight there
    assert choice.current == 2
    choice.note_failed(2)
    choice.note_failed(0)
    assert choice.current == 1


@pytest.mark.parametrize(
    ("code", "details", "failure", "error"),
    [
        ("UNAVAILABLE", "etcdserver: request timed out", Failure.ELSEWHERE, CoordinationUnavailableError),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", Failure.ELSEWHERE, CoordinationUnavailableError),
        ("UNKNOWN", "etcdserver: leader changed", Failure.ELSEWHERE, CoordinationUnavailableError),
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", Failure.FULL, OutOfSpaceError),
        ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", Failure.NOT_DONE, CoordinationUnavailableError),
        ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted", Failure.COMPACTED, CompactedError),
        ("UNAUTHENTICATED", "etcdserver: invalid auth token", Failure.SIGN_IN, CoordinationRefusedError),
        (
            "INVALID_ARGUMENT",
            "etcdserver: authentication failed, invalid user ID or password",
            Failure.REFUSED,
            CoordinationRefusedError,
        ),
        ("PERMISSION_DENIED", "etcdserver: permission denied", Failure.REFUSED, CoordinationRefusedError),
        ("INVALID_ARGUMENT", "etcdserver: duplicate key given in txn request", Failure.INVALID, InvalidRequestError),
    ],
)
def test_what_errors_of_etcd_mean(code: str, details: str, failure: Failure, error: type[Exception]) -> None:
    assert failure_of(grpc.StatusCode[code], details) is failure
    assert isinstance(error_of(failure, "a call", details), error)


def test_endpoints_are_urls() -> None:
    options = EtcdOptions(("http://a:1", "http://[::1]", "http://b:3/"), "/p/")
    assert options.targets == ("a:1", "[::1]:2379", "b:3")


@pytest.mark.parametrize(
    ("endpoints", "settings", "text"),
    [
        ((), {}, "missing"),
        (("a:2379",), {}, "name URLs"),
        (("http://a", "https://b"), {}, "all of them http or all https"),
        (("http://a:port",), {}, "is not an endpoint"),
        (("http://a/path",), {}, "is not an endpoint"),
        (("http://u:p@a",), {}, "is not an endpoint"),
        (("https://a",), {"cert_file": Path("c")}, "needs its key"),
        (("http://a",), {"ca_file": Path("c")}, "write https"),
        (("http://a",), {"user": "u"}, "needs a password"),
    ],
)
def test_options_that_cannot_work_are_refused(endpoints: tuple[str, ...], settings: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        EtcdOptions(endpoints, "/p/", **settings)  # type: ignore[arg-type]


def test_an_endpoint_that_is_connected_goes_before_those_that_are_not() -> None:
    choice = EndpointChoice(3)
    assert choice.prefer(lambda endpoint: endpoint == 2) == 2
    assert choice.current == 2
    assert choice.prefer(lambda endpoint: False) is None
    choice.note_failed(2)
    assert choice.prefer(lambda endpoint: True) == 0
