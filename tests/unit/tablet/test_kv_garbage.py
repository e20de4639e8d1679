"""Maintenance of a KV tablet: snapshots that bound its log, unreferenced blobs, leftovers of the last generation."""

from __future__ import annotations

import asyncio

import pytest

from penstock.blob import BlobId, Reply, Status
from penstock.blob import RangeResult as StorageRange
from penstock.core.errors import UnavailableError
from penstock.tablet import (
    Command,
    Concat,
    DeleteRange,
    KvOptions,
    KvTablet,
    RangeResult,
    ReadRange,
    Request,
    Write,
)
from tests.sim_tablet import ANSWER_LOST, DATA, ERROR, FINE, LOG, PAGES, Fate, SimNode, content, on_node, turns

LARGE = content(5000)
OTHER = content(7000)
LOST = Reply(Status.ERROR, "the answer was lost by the test")


async def _do(tablet: KvTablet, *commands: Command) -> None:
    await tablet.execute(Request(commands))


async def _state(tablet: KvTablet) -> dict[bytes, bytes]:
    (listed,) = await tablet.execute(Request((ReadRange(with_values=True),)))
    assert isinstance(listed, RangeResult)
    assert not listed.cut
    return {info.key: bytes(info.value or b"") for info in listed.keys}


async def _assert_only_live_data(node: SimNode, tablet: KvTablet) -> None:
    assert set(await node.blobs(DATA)) == set(tablet.index.references)


def test_after_a_collection_only_blobs_that_are_referred_to_are_left() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"a", LARGE), Write(b"b", OTHER))
        await _do(tablet, Write(b"c", LARGE), DeleteRange(b"a", b"b"))
        assert len(await node.blobs(DATA)) == 3
        await tablet.collect_garbage()
        await _assert_only_live_data(node, tablet)
        await _do(tablet, DeleteRange(b"b", b"c"), Write(b"d", LARGE))  # one that is below the barrier dies, one is born
        await tablet.collect_garbage()
        await _assert_only_live_data(node, tablet)
        assert await _state(tablet) == {b"c": LARGE, b"d": LARGE}

    on_node(scenario)


def _moves(tablet: KvTablet, begin: bytes, end: bytes, letter: bytes) -> list[Command]:
    """Commands that give the keys of a range another first letter."""
    return [Concat((key,), letter + key[1:]) for key in tablet.keys(begin, end)]


def test_copies_and_joined_values_keep_their_blobs() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"a", LARGE), Write(b"b", OTHER))
        await _do(tablet, Concat((b"a",), b"x", keep_sources=True))
        await _do(tablet, DeleteRange(b"a", b"b"), Concat((b"b", b"x"), b"z", keep_sources=True), DeleteRange(b"b", b"c"))
        await tablet.collect_garbage()
        assert await _state(tablet) == {b"x": LARGE, b"z": OTHER + LARGE}
        assert len(await node.blobs(DATA)) == 2
        await _do(tablet, DeleteRange(b"z", b"zz"))
        await tablet.collect_garbage()
        assert await _state(tablet) == {b"x": LARGE}
        await _assert_only_live_data(node, tablet)

    on_node(scenario)


def test_a_value_overwritten_in_the_commit_that_wrote_it_is_garbage() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"a", LARGE), Write(b"a", OTHER))
        await asyncio.gather(*(_do(tablet, Write(b"b", content(3000, i))) for i in range(5)))
        await tablet.collect_garbage()
        await _assert_only_live_data(node, tablet)
        assert await _state(tablet) == {b"a": OTHER, b"b": content(3000, 4)}

    on_node(scenario)


def test_data_of_an_aborted_request_is_garbage_once_another_has_settled() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1, KvOptions(garbage_blobs=1, idle_garbage_s=1e7))
        node.hooked.on(LOG, ERROR)
        for _ in range(3):
            with pytest.raises(UnavailableError):
                await _do(tablet, Write(b"a", LARGE))
        node.hooked.on(LOG, Fate())
        assert len(await node.blobs(DATA)) == 3
        await _do(tablet, Write(b"b", OTHER))
        await asyncio.sleep(1)  # collected in the background, because it is due
        await _assert_only_live_data(node, tablet)

    on_node(scenario)


def test_a_blob_that_dies_while_it_is_flagged_is_dropped_by_the_next_collection() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"a", LARGE))
        collecting = asyncio.create_task(tablet.collect_garbage())
        await asyncio.gather(collecting, _do(tablet, DeleteRange(b"a", b"b")))
        await tablet.collect_garbage()
        assert await node.blobs(DATA) == []

    on_node(scenario)


def test_a_collection_whose_answer_was_lost_leaves_nothing_behind_in_the_end() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"a", LARGE), Write(b"b", OTHER))
        node.hooked.collect_reply = LOST
        with pytest.raises(UnavailableError):
            await tablet.collect_garbage()  # the flags and the barrier are there, and the tablet does not know
        node.hooked.collect_reply = None
        await _do(tablet, DeleteRange(b"a", b"b"))
        await tablet.collect_garbage()
        await _assert_only_live_data(node, tablet)
        assert await _state(tablet) == {b"b": OTHER}

    on_node(scenario)


def test_a_collection_that_no_entry_tells_of_leaves_nothing_behind_after_a_restart() -> None:
    async def scenario(node: SimNode) -> None:
        first = await node.kv(1)
        await _do(first, Write(b"a", LARGE), Write(b"b", OTHER))
        await first.collect_garbage()
        second = await node.kv(2)  # it thinks that nothing was collected yet
        await _do(second, DeleteRange(b"a", b"b"))
        await second.collect_garbage()
        await _assert_only_live_data(node, second)
        assert await _state(second) == {b"b": OTHER}

    on_node(scenario)


def test_leftovers_of_the_last_generation_are_cleaned_after_a_start() -> None:
    async def scenario(node: SimNode) -> None:
        first = await node.kv(1)
        await _do(first, Write(b"a", LARGE), Write(b"b", OTHER))
        await first.collect_garbage()  # both are flagged Keep
        await _do(first, DeleteRange(b"a", b"b"))  # one is dead, which only this process knows
        never = Fate(gate=asyncio.Event())
        node.hooked.fate = lambda blob: never if blob.channel == LOG else FINE
        asking = asyncio.create_task(_do(first, Write(b"c", LARGE)))  # data with no entry
        await asyncio.sleep(1)
        assert len(await node.blobs(DATA)) == 3
        second = await node.kv(2)
        await asyncio.sleep(1)
        await _assert_only_live_data(node, second)
        assert await _state(second) == {b"b": OTHER}
        asking.cancel()

    on_node(scenario)


def test_a_snapshot_takes_the_place_of_the_log_before_it() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        for number in range(30):
            await _do(tablet, Write(b"%02d" % number, content(1500 if number % 2 else 10, number)))
        before = len(await node.blobs(LOG))
        await tablet.take_snapshot()
        after = await node.blobs(LOG)
        assert (before, len(after)) == (31, 1)
        await _do(tablet, Write(b"new", b"1"), DeleteRange(b"00", b"05"))
        expected = await _state(tablet)
        second = await node.kv(2)
        assert await _state(second) == expected
        assert second.index.references == tablet.index.references

    on_node(scenario)


def test_pages_of_older_snapshots_go() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        for number in range(3):
            await _do(tablet, Write(b"a", b"%d" % number))
            await tablet.take_snapshot()
            assert len(await node.blobs(PAGES)) == 1
        assert await _state(await node.kv(2)) == {b"a": b"2"}

    on_node(scenario)


def test_a_snapshot_of_many_pages_taken_while_writes_go_on_is_the_state_with_the_log_after_it() -> None:
    """Pages are of different moments: keys move between the part already written and the part still to come."""

    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        for letter in b"abcdefg":
            await _do(tablet, *(Write(b"%c%03d" % (letter, i), content(900, i)) for i in range(400)))
        page_gate = asyncio.Event()
        node.hooked.fate = lambda blob: Fate(gate=page_gate) if (blob.channel, blob.cookie) == (PAGES, 1) else FINE
        snapshot = asyncio.create_task(tablet.take_snapshot())
        await asyncio.sleep(1)
        await _do(tablet, *_moves(tablet, b"a000", b"a100", b"z"), Write(b"g399", LARGE))
        await _do(tablet, *_moves(tablet, b"g", b"h", b"A"), Write(b"a000", OTHER))
        page_gate.set()
        await snapshot
        assert len(await node.blobs(PAGES)) > 2
        expected = await _state(tablet)
        references = dict(tablet.index.references)
        second = await node.kv(2)
        assert await _state(second) == expected
        assert second.index.references == references

    on_node(scenario)


@pytest.mark.parametrize("channel", [PAGES, LOG])
@pytest.mark.parametrize("fate", [ERROR, ANSWER_LOST], ids=["refused", "answer lost"])
def test_a_snapshot_that_fails_harms_nothing_and_may_be_taken_again(channel: int, fate: Fate) -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"a", LARGE))
        node.hooked.on(channel, fate)
        with pytest.raises(UnavailableError):
            await tablet.take_snapshot()
        node.hooked.on(channel, Fate())
        await _do(tablet, Write(b"b", b"2"))
        await tablet.take_snapshot()
        await _do(tablet, Write(b"c", b"3"))
        expected = {b"a": LARGE, b"b": b"2", b"c": b"3"}
        assert await _state(await node.kv(2)) == expected
        assert await _state(await node.kv(3)) == expected

    on_node(scenario)


def test_a_crash_before_the_log_is_dropped_leaves_the_same_state() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"a", LARGE), Write(b"b", b"2"))
        await _do(tablet, DeleteRange(b"b", b"c"))
        node.hooked.collect_reply = LOST
        with pytest.raises(UnavailableError):
            await tablet.take_snapshot()
        assert await _state(await node.kv(2)) == {b"a": LARGE}

    on_node(scenario)


def test_the_log_stays_bounded_by_itself() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1, KvOptions(snapshot_entries=20, garbage_blobs=10, idle_garbage_s=1.0))
        for number in range(300):
            await _do(tablet, Write(b"%d" % (number % 7), content(1500, number)))
        await asyncio.sleep(5)
        assert len(await node.blobs(LOG)) <= 25
        await _assert_only_live_data(node, tablet)
        expected = await _state(tablet)
        second = await node.kv(2)
        assert await _state(second) == expected
        assert expected == {b"%d" % (number % 7): content(1500, number) for number in range(293, 300)}

    on_node(scenario)


def test_a_little_garbage_is_collected_when_it_has_waited_for_long() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1, KvOptions(idle_garbage_s=5.0))
        await _do(tablet, Write(b"a", LARGE))
        await _do(tablet, Write(b"a", OTHER))
        await asyncio.sleep(4)
        assert len(await node.blobs(DATA)) == 2
        await asyncio.sleep(2)
        await _assert_only_live_data(node, tablet)

    on_node(scenario)


def test_tidying_goes_on_after_the_storage_failed() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1, KvOptions(garbage_blobs=1, snapshot_entries=3, idle_garbage_s=1.0))
        await turns()
        node.hooked.collect_reply = LOST
        node.hooked.on(PAGES, ERROR)
        for number in range(6):
            await _do(tablet, Write(b"a", content(2000, number)))
        await asyncio.sleep(10)
        node.hooked.collect_reply = None
        node.hooked.on(PAGES, Fate())
        await asyncio.sleep(10)
        await _assert_only_live_data(node, tablet)
        assert len(await node.blobs(LOG)) <= 4
        assert not tablet.stopped.is_set()

    on_node(scenario)


def test_snapshots_asked_for_at_once_are_taken_one_after_another() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        for letter in b"abcd":
            await _do(tablet, *(Write(b"%c%03d" % (letter, i), content(900, i)) for i in range(700)))
        gate = asyncio.Event()
        pages: list[BlobId] = []

        def hold_the_second(blob: BlobId) -> Fate:
            if (blob.channel, blob.cookie) != (PAGES, 0):
                return FINE
            pages.append(blob)
            return Fate(gate=gate) if len(pages) == 2 else FINE

        node.hooked.fate = hold_the_second
        snapshots = [asyncio.create_task(tablet.take_snapshot()) for _ in range(2)]
        await turns()
        # Were they of one moment, their pages would have the same names and not the same keys.
        await _do(tablet, DeleteRange(b"b", b"c"), Write(b"b", LARGE))
        gate.set()
        await asyncio.gather(*snapshots)
        expected = await _state(tablet)
        assert await _state(await node.kv(2)) == expected

    on_node(scenario)


def test_a_tablet_that_cannot_find_its_leftovers_looks_for_them_now_and_then_and_not_without_a_pause() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1, KvOptions(garbage_bytes=1, garbage_blobs=1, idle_garbage_s=1.0))
        asked = 0
        real = node.hooked.range

        async def fails(*_: object, **__: object) -> StorageRange:
            nonlocal asked
            asked += 1
            await asyncio.sleep(0)
            return StorageRange(Status.ERROR, (), "failed by the test")

        node.hooked.range = fails  # type: ignore[method-assign]
        for number in range(6):
            await _do(tablet, Write(b"a", content(2000, number)))
        await asyncio.sleep(10)
        assert 5 <= asked <= 15
        node.hooked.range = real  # type: ignore[method-assign]
        await asyncio.sleep(5)
        await _assert_only_live_data(node, tablet)

    on_node(scenario)
