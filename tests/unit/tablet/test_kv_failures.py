"""The KV tablet when its storage fails, fills up or belongs to another by now, and when it is stopped."""

from __future__ import annotations

import asyncio

import pytest

from penstock.blob import Reply, Status
from penstock.core.errors import (
    ClosedError,
    CorruptionError,
    FencedError,
    OutOfSpaceError,
    UnavailableError,
)
from penstock.tablet import (
    Command,
    DeleteRange,
    KvTablet,
    RangeResult,
    Read,
    ReadRange,
    ReadResult,
    Request,
    Result,
    Write,
)
from tests.sim_tablet import ANSWER_LOST, DATA, ERROR, FINE, FULL, LOG, Fate, SimNode, content, on_node, turns

LARGE = content(5000)
OTHER = content(7000)
MIB = 1 << 20


async def _do(tablet: KvTablet, *commands: Command) -> list[Result]:
    return await tablet.execute(Request(commands))


async def _state(tablet: KvTablet) -> dict[bytes, bytes]:
    (listed,) = await _do(tablet, ReadRange(with_values=True))
    assert isinstance(listed, RangeResult)
    return {info.key: bytes(info.value or b"") for info in listed.keys}


@pytest.mark.parametrize("channel", [DATA, LOG])
@pytest.mark.parametrize("fate", [ERROR, ANSWER_LOST], ids=["refused", "answer lost"])
def test_a_failed_put_fails_its_request_which_stays_without_effect(channel: int, fate: Fate) -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"a", LARGE))
        node.hooked.on(channel, fate)
        with pytest.raises(UnavailableError):
            await _do(tablet, Write(b"a", OTHER), Write(b"b", b"1"))
        assert await _state(tablet) == {b"a": LARGE}
        node.hooked.on(channel, Fate())
        await _do(tablet, Write(b"c", b"2"))
        expected = {b"a": LARGE, b"c": b"2"}
        assert await _state(tablet) == expected
        await tablet.stop()
        assert await _state(await node.kv(2)) == expected
        assert await _state(await node.kv(3)) == expected

    on_node(scenario)


@pytest.mark.parametrize("channel", [DATA, LOG])
def test_thousands_of_failed_entries_make_the_next_one_no_longer_and_none_of_them_counts(channel: int) -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"a", LARGE))
        for number in range(3000):
            # Some are there after all, though the tablet was told that they may not be.
            node.hooked.on(channel, ERROR if number % 100 else ANSWER_LOST)
            with pytest.raises(UnavailableError):
                await _do(tablet, Write(b"a", OTHER), Write(b"b", b"1"))
        was_in_doubt = tablet.sequencer.is_in_doubt
        node.hooked.on(channel, FINE)
        await _do(tablet, Write(b"c", b"2"))
        assert (was_in_doubt, tablet.sequencer.is_in_doubt) == (True, False)
        assert max(await node.blobs(LOG), key=lambda blob: blob.step).size < 100
        assert await _state(await node.kv(2)) == {b"a": LARGE, b"c": b"2"}
        assert await _state(await node.kv(3)) == {b"a": LARGE, b"c": b"2"}

    on_node(scenario)


def test_data_of_failed_entries_is_deleted_when_the_storage_is_back() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        node.hooked.on(LOG, ERROR)
        for _ in range(20):
            with pytest.raises(UnavailableError):
                await _do(tablet, Write(b"a", LARGE))
        assert len(await node.blobs(DATA)) == 20
        node.hooked.on(LOG, FINE)
        await _do(tablet, Write(b"b", b"1"))
        await tablet.collect_garbage()
        assert await node.blobs(DATA) == []

    on_node(scenario)


def test_a_full_storage_is_an_error_of_its_own_and_the_tablet_lives_on() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"a", LARGE))
        node.hooked.on(DATA, FULL)
        with pytest.raises(OutOfSpaceError, match="full by order"):
            await _do(tablet, Write(b"b", OTHER))
        await _do(tablet, Write(b"small", b"fits"))
        node.hooked.on(DATA, Fate())
        await _do(tablet, Write(b"b", OTHER))
        assert await _state(tablet) == {b"a": LARGE, b"b": OTHER, b"small": b"fits"}

    on_node(scenario)


def test_a_disk_that_is_full_is_told_apart_from_one_that_fails() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        node.faults.capacity = node.platters[0].used + 2000
        with pytest.raises(OutOfSpaceError):
            await _do(tablet, Write(b"a", content(3 * MIB)))
        node.faults.capacity = 1 << 40
        life = await node.storage.life(0)
        await life.tend()  # the disk learns of its space in its own rounds
        await _do(tablet, Write(b"a", LARGE))
        assert await _state(tablet) == {b"a": LARGE}

    on_node(scenario)


def test_told_blocked_the_tablet_stops_and_so_does_all_that_waits() -> None:
    async def scenario(node: SimNode) -> None:
        old = await node.kv(1)
        hooked = node.hooked
        gate = asyncio.Event()
        hooked.on(LOG, Fate(gate=gate))
        asked = [asyncio.create_task(_do(old, Write(b"a", b"1")))]
        await turns()
        asked += [asyncio.create_task(_do(old, Write(b"b%d" % i, LARGE))) for i in range(3)]
        await turns()
        new = await node.kv(2)
        assert not old.stopped.is_set()
        gate.set()
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(answer, FencedError)
        assert old.stopped.is_set()
        with pytest.raises(FencedError):
            await _do(old, Write(b"c", b"2"))
        with pytest.raises(FencedError):
            await _do(old, Read(b"a"))
        await _do(new, Write(b"d", b"3"))
        assert await _state(new) == {b"d": b"3"}

    on_node(scenario)


def test_a_tablet_blocked_during_maintenance_stops_too() -> None:
    async def scenario(node: SimNode) -> None:
        old = await node.kv(1)
        await node.kv(2)
        with pytest.raises(FencedError):
            await old.take_snapshot()
        with pytest.raises(FencedError):
            await old.collect_garbage()

    on_node(scenario)


def test_a_stopped_tablet_refuses_everything_at_once() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"a", b"1"))
        await tablet.stop()
        assert tablet.stopped.is_set()
        for work in (_do(tablet, Write(b"b", b"2")), _do(tablet, Read(b"a")), tablet.take_snapshot(), tablet.collect_garbage()):
            with pytest.raises(ClosedError):
                await work
        await tablet.stop()

    on_node(scenario)


def test_stopping_finishes_what_is_in_flight_and_refuses_what_waits() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        gate = asyncio.Event()
        node.hooked.on(LOG, Fate(gate=gate))
        in_flight = asyncio.create_task(_do(tablet, Write(b"a", b"1")))
        await turns()
        waiting = asyncio.create_task(_do(tablet, Write(b"b", b"2")))
        await turns()
        stopping = asyncio.create_task(tablet.stop())
        await turns()
        gate.set()
        assert await in_flight == [None]
        with pytest.raises(ClosedError):
            await waiting
        await stopping
        assert await _state(await node.kv(2)) == {b"a": b"1"}

    on_node(scenario)


def test_a_storage_that_breaks_down_fails_requests_and_leaves_none_waiting() -> None:
    class BrokenError(Exception):
        pass

    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)

        def broken(_: object) -> Fate:
            raise BrokenError

        node.hooked.fate = broken
        asked = [asyncio.create_task(_do(tablet, Write(b"a%d" % i, b"1"))) for i in range(3)]
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(answer, ClosedError)
        assert tablet.stopped.is_set()
        await tablet.stop()

    on_node(scenario)


def test_a_failed_read_fails_its_request_alone_and_without_effect() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"a", LARGE))
        node.faults.broken = True
        with pytest.raises((UnavailableError, CorruptionError)):
            await _do(tablet, Read(b"a"), Write(b"b", b"1"))
        node.faults.broken = False
        assert await _do(tablet, Read(b"a"), Read(b"b")) == [ReadResult(LARGE), ReadResult(None)]

    on_node(scenario)


def test_a_cancelled_caller_does_not_stop_the_others() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        asked = [asyncio.create_task(_do(tablet, Write(b"%d" % i, b"1"))) for i in range(3)]
        await asyncio.sleep(0)
        asked[1].cancel()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert answers[0] == answers[2] == [None]
        assert isinstance(answers[1], asyncio.CancelledError)
        await _do(tablet, Write(b"after", b"1"))

    on_node(scenario)


def test_what_a_read_was_asked_for_may_go_while_it_is_read() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"a", LARGE))
        gate = node.hooked.get_gate = asyncio.Event()
        reading = asyncio.create_task(tablet.read(b"a"))
        await turns()
        await _do(tablet, DeleteRange(b"a", b"b"))
        await tablet.collect_garbage()
        gate.set()
        with pytest.raises(UnavailableError, match="deleted while it was read"):
            await reading

    on_node(scenario)


def test_blobs_that_are_referred_to_and_missing_are_corruption() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"a", LARGE))
        assert await node.hooked.collect_garbage(DATA, 1, 100, barrier=(1, 100)) == Reply(Status.OK)
        with pytest.raises(CorruptionError, match="referred to"):
            await tablet.read(b"a")

    on_node(scenario)


def test_two_that_stop_a_tablet_at_once_both_come_to_an_end() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        gate = asyncio.Event()
        node.hooked.on(LOG, Fate(gate=gate))
        asked = asyncio.create_task(tablet.execute(Request((Write(b"a", b"1"),))))
        await turns()
        stopping = [asyncio.create_task(tablet.stop()) for _ in range(2)]
        await turns()
        assert not any(task.done() for task in stopping)
        gate.set()
        await asyncio.wait_for(asyncio.gather(*stopping), 10)
        assert await asked == [None]

    on_node(scenario)
