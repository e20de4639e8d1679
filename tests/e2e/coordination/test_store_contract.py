"""What every store promises: alone, over a socket, in the simulator, and etcd."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from penstock.coordination import (
    CompactedError,
    Compare,
    Delete,
    Event,
    KeyStore,
    Outcome,
    Put,
    RolledBackError,
)
from penstock.core.errors import InvalidRequestError
from tests.e2e.coordination.stores import StoreUnderTest


async def put(store: KeyStore, key: str, value: bytes = b"") -> int:
    result = await store.commit([], [Put(key, value)])
    assert result.outcome is Outcome.DONE
    return result.revision


async def take(store: KeyStore, prefix: str, after: int, batches: int) -> list[tuple[Event, ...]]:
    """So many batches of a watch."""
    taken: list[tuple[Event, ...]] = []
    async with aclosing(store.watch(prefix, after)) as watch:
        async for events in watch:
            taken.append(events)
            if len(taken) == batches:
                break
    return taken


def test_a_key_is_created_once(store: StoreUnderTest) -> None:
    async def test() -> None:
        first, second = store.client(), store.client()
        created = await first.commit([Compare("a/ключ", 0)], [Put("a/ключ", b"\0\xff")])
        assert created.outcome is Outcome.DONE
        assert (await second.commit([Compare("a/ключ", 0)], [Put("a/ключ", b"2")])).outcome is Outcome.REFUSED
        entry = (await second.get("a/ключ")).entry
        assert entry is not None
        assert (entry.key, entry.value, entry.revision, entry.lease) == ("a/ключ", b"\0\xff", created.revision, 0)
        await first.close()
        await second.close()

    store.run(test())


def test_a_transaction_is_done_whole_or_not_at_all(store: StoreUnderTest) -> None:
    async def test() -> None:
        client = store.client()
        a, b = await put(client, "a"), await put(client, "b")
        stale = await client.commit([Compare("a", a), Compare("b", a)], [Put("a", b"2"), Delete("b"), Put("c", b"2")])
        assert stale.outcome is Outcome.REFUSED
        assert [entry.key for entry in (await client.scan("")).entries] == ["a", "b"]
        done = await client.commit([Compare("a", a), Compare("b", b)], [Put("a", b"2"), Delete("b"), Put("c", b"2")])
        assert done.outcome is Outcome.DONE
        entries = (await client.scan("")).entries
        assert [(entry.key, entry.value, entry.revision) for entry in entries] == [
            ("a", b"2", done.revision),
            ("c", b"2", done.revision),
        ]
        await client.close()

    store.run(test())


def test_revisions_grow_with_each_change_and_with_nothing_else(store: StoreUnderTest) -> None:
    async def test() -> None:
        client = store.client()
        first = await put(client, "a")
        assert (await client.commit([], [Delete("missing")])).outcome is Outcome.DONE
        assert (await client.commit([Compare("a", 0)], [Delete("a")])).outcome is Outcome.REFUSED
        assert (await client.get("a")).position.revision == first
        assert await put(client, "a") == first + 1
        await client.close()

    store.run(test())


def test_a_scan_has_all_keys_of_a_prefix_in_order(store: StoreUnderTest) -> None:
    async def test() -> None:
        client = store.client()
        for first in range(0, 700, 100):
            changes = [Put(f"many/{number:04}", str(number).encode()) for number in range(first, first + 100)]
            assert (await client.commit([], changes)).outcome is Outcome.DONE
        last = await put(client, "many0")
        snapshot = await client.scan("many/")
        assert [entry.key for entry in snapshot.entries] == [f"many/{number:04}" for number in range(700)]
        assert snapshot.position.revision == last
        assert (await client.scan("none/")).entries == ()
        await client.close()

    store.run(test())


def test_a_watch_has_every_change_once_and_in_order(store: StoreUnderTest) -> None:
    async def test() -> None:
        client = store.client()
        before = await put(client, "w/a")
        watching = asyncio.create_task(take(client, "w/", before, 3))
        await asyncio.sleep(0.05)
        both = (await client.commit([], [Put("w/b", b"1"), Put("w/a", b"2"), Put("other", b"")])).revision
        await put(client, "other")
        gone = (await client.commit([], [Delete("w/b")])).revision
        last = await put(client, "w/c")
        batches = await watching
        told = [sorted((event.key, event.revision, event.entry and event.entry.value) for event in events) for events in batches]
        assert told == [[("w/a", both, b"2"), ("w/b", both, b"1")], [("w/b", gone, None)], [("w/c", last, b"")]]
        resumed = await take(client, "w/", both, 2)
        assert [events[0].revision for events in resumed] == [gone, last]
        await client.close()

    store.run(test())


def test_a_watch_from_revisions_that_are_gone_says_so(store: StoreUnderTest) -> None:
    async def test() -> None:
        client = store.client()
        first = await put(client, "a")
        await put(client, "a")
        last = await put(client, "a")
        store.compact(last)
        with pytest.raises(CompactedError):
            await take(client, "", first, 1)
        watching = asyncio.create_task(take(client, "", last, 1))
        await asyncio.sleep(0.05)
        newest = await put(client, "a")
        assert [events[0].revision for events in await watching] == [newest]
        await client.close()

    store.run(test())


def test_a_watch_beyond_the_newest_revision_says_that_the_store_was_rolled_back(store: StoreUnderTest) -> None:
    async def test() -> None:
        client = store.client()
        last = await put(client, "a")
        with pytest.raises(RolledBackError):
            await take(client, "", last + 100, 1)
        await client.close()

    store.run(test())


def test_the_keys_of_a_lease_live_as_long_as_it_is_renewed(store: StoreUnderTest) -> None:
    async def test() -> None:
        client = store.client()
        lease = await client.grant(store.lease_s)
        assert lease.ttl_s == store.lease_s
        put_at = (await client.commit([], [Put("leased", b"", lease.id)])).revision
        deleted = asyncio.create_task(take(client, "leased", put_at, 1))
        for _ in range(4):
            await asyncio.sleep(lease.ttl_s / 3)
            assert await client.renew(lease.id, 5.0) == lease.ttl_s
        entry = (await client.get("leased")).entry
        assert entry is not None
        assert entry.lease == lease.id
        ((event,),) = await deleted
        assert event.entry is None
        assert await client.renew(lease.id, 5.0) == 0
        assert (await client.commit([], [Put("late", b"", lease.id)])).outcome is Outcome.REFUSED
        await client.close()

    store.run(test())


def test_a_revoked_lease_takes_its_keys_along(store: StoreUnderTest) -> None:
    async def test() -> None:
        client = store.client()
        lease = await client.grant(60)
        await client.commit([], [Put("leased", b"", lease.id), Put("kept", b"")])
        await client.revoke(lease.id)
        await client.revoke(lease.id)
        assert [entry.key for entry in (await client.scan("")).entries] == ["kept"]
        await client.close()

    store.run(test())


def test_the_largest_transaction_is_done_and_a_larger_one_refused(store: StoreUnderTest) -> None:
    async def test() -> None:
        client = store.client()
        changes = [Put(f"{number:03}", bytes(10_000)) for number in range(128)]
        assert (await client.commit([Compare(change.key, 0) for change in changes], changes)).outcome is Outcome.DONE
        with pytest.raises(InvalidRequestError, match="split it"):
            await client.commit([], [*changes, Put("one more", b"")])
        with pytest.raises(InvalidRequestError, match="split it"):
            await client.commit([], [Put("large", bytes(1_500_000))])
        with pytest.raises(InvalidRequestError, match="twice"):
            await client.commit([], [Put("a", b""), Delete("a")])
        assert len((await client.scan("")).entries) == 128
        await client.close()

    store.run(test())


def test_rivals_count_without_losing_one(store: StoreUnderTest) -> None:
    async def add(client: KeyStore, times: int) -> None:
        done = 0
        while done < times:
            entry = (await client.get("counter")).entry
            value = int(entry.value) if entry is not None else 0
            compare = Compare("counter", entry.revision if entry is not None else 0)
            result = await client.commit([compare], [Put("counter", str(value + 1).encode())])
            done += result.outcome is Outcome.DONE

    async def test() -> None:
        clients = [store.client() for _ in range(3)]
        await asyncio.gather(*(add(client, 20) for client in clients))
        entry = (await clients[0].get("counter")).entry
        assert entry is not None
        assert entry.value == b"60"
        for client in clients:
            await client.close()

    store.run(test())
