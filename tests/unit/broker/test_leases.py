"""Leases: granted for a while, renewed, moved on, released, at most so many; and there again after a restart."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from penstock.broker import TopicPartition
from penstock.broker.errors import LeaseLimitError, LeaseSpentError, UnknownLeaseError
from penstock.broker.leases import LeaseBook, LeaseKey, LeaseOptions, Leases
from penstock.core.errors import ConfigError, InvalidRequestError
from penstock.tablet import Request, Write
from tests.sim_tablet import LOG, Fate, SimNode, on_node

TOPIC, OTHER = UUID(int=1), UUID(int=2)
FIRST, SECOND, FOREIGN = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1), TopicPartition(OTHER, 0)
KEY = LeaseKey(UUID(int=7), "ann")
OPTIONS = LeaseOptions(leases_max=3, partitions_max=2, partitions_in_all_max=4, duration_s_max=60.0, held_s_max=1000.0)


def key(number: int) -> LeaseKey:
    return LeaseKey(UUID(int=number), "ann")


def held(book: LeaseBook, queue: TopicPartition, now_s: float) -> list[int]:
    return sorted(lease.positions[queue] for lease in book.of_partition(queue, now_s))


def test_a_lease_holds_its_partitions_until_it_expires() -> None:
    book = LeaseBook(OPTIONS)
    lease = book.take(KEY, "scan", 30.0, {FIRST: 5, SECOND: 9}, now_s=100.0)
    assert lease.expires_s == 130.0
    assert (held(book, FIRST, 129.9), held(book, SECOND, 129.9), held(book, FOREIGN, 129.9)) == ([5], [9], [])
    assert held(book, FIRST, 130.0) == []
    assert book.expired(129.9) == []
    assert book.expired(130.0) == [KEY]


def test_a_renewal_counts_from_when_it_comes_and_only_while_the_lease_lives() -> None:
    book = LeaseBook(OPTIONS)
    book.take(KEY, "scan", 30.0, {FIRST: 5}, now_s=0.0)
    assert book.renew(KEY, now_s=29.0).expires_s == 59.0
    assert held(book, FIRST, 58.0) == [5]
    with pytest.raises(UnknownLeaseError, match="not renewed in time"):
        book.renew(KEY, now_s=59.0)
    with pytest.raises(UnknownLeaseError):
        book.renew(KEY._replace(user="bob"), now_s=1.0)


def test_no_lease_is_granted_for_longer_than_may_be() -> None:
    assert LeaseBook(OPTIONS).take(KEY, "scan", 1e9, {FIRST: 5}, now_s=0.0).expires_s == 60.0


def test_a_lease_that_moves_on_holds_what_is_left() -> None:
    book = LeaseBook(OPTIONS)
    book.take(KEY, "stream", 30.0, {FIRST: 5, SECOND: 9}, now_s=0.0)
    book.take(KEY, "stream", 30.0, {FIRST: 8}, now_s=1.0)
    book.take(key(8), "another", 30.0, {FIRST: 6}, now_s=1.0)
    assert (held(book, FIRST, 2.0), held(book, SECOND, 2.0)) == ([6, 8], [])
    assert book.drop(KEY)
    assert not book.drop(KEY)
    assert held(book, FIRST, 2.0) == [6]


def test_the_same_messages_are_not_held_forever() -> None:
    book = LeaseBook(OPTIONS)
    book.take(KEY, "stuck", 60.0, {FIRST: 5}, now_s=0.0)
    for now_s in range(50, 1000, 50):
        book.renew(KEY, float(now_s))
    assert held(book, FIRST, 999.0) == [5]
    assert held(book, FIRST, 1000.0) == []
    for attempt in range(5):
        with pytest.raises(LeaseSpentError, match="'stuck' has held the same messages for 1000 s"):
            book.renew(KEY, 1000.0 + 50 * attempt)
        with pytest.raises(LeaseSpentError):
            book.take(KEY, "stuck", 60.0, {FIRST: 5}, now_s=1000.0 + 50 * attempt)
        assert book.expired(1001.0 + 50 * attempt) == []
    assert book.expired(1260.0) == [KEY]
    # After reading on, a lease may protect what comes next.
    book.take(KEY, "stuck", 60.0, {FIRST: 6}, now_s=1260.0)
    assert held(book, FIRST, 1300.0) == [6]


def test_there_are_only_so_many() -> None:
    book = LeaseBook(OPTIONS)
    for number in range(3):
        book.take(key(number), "scan", 30.0, {FIRST: number}, now_s=float(number))
    with pytest.raises(LeaseLimitError, match="there are 3 leases already"):
        book.take(key(3), "scan", 30.0, {FIRST: 3}, now_s=29.0)
    book.take(key(2), "scan", 30.0, {FIRST: 4}, now_s=29.0)
    book.take(key(3), "scan", 30.0, {FIRST: 3}, now_s=30.0)
    assert len(book) == 3
    with pytest.raises(LeaseLimitError, match="of 3 partitions in all, and at most 3 and 4"):
        book.take(key(2), "scan", 30.0, {FIRST: 4, SECOND: 1, FOREIGN: 1}, now_s=30.0)
    assert held(book, FIRST, 30.5) == [1, 3, 4]
    book.take(key(2), "scan", 30.0, {FIRST: 4, SECOND: 1, FOREIGN: 1}, now_s=31.0)
    assert held(book, FIRST, 31.5) == [3, 4]


def test_leases_are_there_again_after_a_restart_and_expire_then() -> None:
    async def scenario(node: SimNode) -> None:
        leases = Leases(await node.kv(1), OPTIONS, node.clock)
        await leases.take(KEY, "stream", 30.0, {FIRST: 5, FOREIGN: 1})
        await leases.take(key(8), "gone", 30.0, {FIRST: 2})
        assert await leases.release(key(8))
        puts = len(node.hooked.puts)
        await leases.take(KEY, "stream", 30.0, {FIRST: 7, FOREIGN: 1})
        assert len(node.hooked.puts) == puts  # moving on is not written
        again = Leases(await node.kv(2), OPTIONS, node.clock)
        assert (again.needed_from(FIRST), again.needed_from(FOREIGN), again.needed_from(SECOND)) == (5, 1, None)
        await again.take(KEY, "stream", 30.0, {FIRST: 9, FOREIGN: 1})
        assert again.needed_from(FIRST) == 9
        await asyncio.sleep(31)
        assert again.needed_from(FIRST) is None
        await again.sweep()
        assert len(again) == 0
        assert len(Leases(await node.kv(3), OPTIONS, node.clock)) == 0

    on_node(scenario)


def test_a_lease_is_taken_anew_as_soon_as_it_holds_what_is_not_stored() -> None:
    async def scenario(node: SimNode) -> None:
        leases = Leases(await node.kv(1), OPTIONS, node.clock)
        await leases.take(KEY, "stream", 30.0, {FIRST: 5})
        await leases.take(KEY, "stream", 30.0, {FIRST: 6, SECOND: 3})
        again = Leases(await node.kv(2), OPTIONS, node.clock)
        assert (again.needed_from(FIRST), again.needed_from(SECOND)) == (6, 3)

    on_node(scenario)


def test_what_is_asked_for_is_held_from_the_first_moment() -> None:
    async def scenario(node: SimNode) -> None:
        leases = Leases(await node.kv(1), OPTIONS, node.clock)
        gate = asyncio.Event()
        node.hooked.on(LOG, Fate(gate=gate))
        taking = asyncio.create_task(leases.take(KEY, "scan", 30.0, {FIRST: 5}))
        await asyncio.sleep(1)
        assert not taking.done()
        assert leases.needed_from(FIRST) == 5
        gate.set()
        await taking

    on_node(scenario)


def test_no_lease_counts_while_there_is_no_room() -> None:
    async def scenario(node: SimNode) -> None:
        is_short = False
        leases = Leases(await node.kv(1), OPTIONS, node.clock, is_short_of_room=lambda: is_short)
        await leases.take(KEY, "scan", 30.0, {FIRST: 5})
        is_short = True
        assert leases.needed_from(FIRST) is None
        is_short = False
        assert leases.needed_from(FIRST) == 5

    on_node(scenario)


def test_what_cannot_be_a_lease_is_refused() -> None:
    async def scenario(node: SimNode) -> None:
        leases = Leases(await node.kv(1), OPTIONS, node.clock)
        for owner, duration_s, positions in (
            ("scan", 30.0, {}),
            ("scan", 30.0, dict.fromkeys([FIRST, SECOND, FOREIGN], 0)),
            ("scan", 0.0, {FIRST: 0}),
            ("scan", 30.0, {FIRST: -1}),
            ("x" * 2000, 30.0, {FIRST: 0}),
        ):
            with pytest.raises(InvalidRequestError):
                await leases.take(KEY, owner, duration_s, positions)
        assert len(leases) == 0

    on_node(scenario)


def test_a_later_format_is_refused() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await Leases(tablet, OPTIONS, node.clock).take(KEY, "scan", 30.0, {FIRST: 5})
        [stored] = tablet.keys(b"l", b"m")
        raw = tablet.head(stored) or b""
        await tablet.execute(Request((Write(stored, b"", head=b"\2" + raw[1:]),)))
        with pytest.raises(ConfigError, match="a lease has format 2"):
            Leases(tablet, OPTIONS, node.clock)

    on_node(scenario)
