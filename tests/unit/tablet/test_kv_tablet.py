"""The KV tablet in service: commands, atomic requests, values in blobs, group commit."""

from __future__ import annotations

import asyncio

import pytest

from penstock.core.errors import (
    FencedError,
    InvalidRequestError,
)
from penstock.tablet import (
    Command,
    Concat,
    DeleteRange,
    GetStatus,
    KeyInfo,
    KvTablet,
    RangeResult,
    Read,
    ReadRange,
    ReadResult,
    Request,
    Result,
    TabletStatus,
    Write,
)
from tests.sim_tablet import DATA, LOG, Fate, SimNode, content, on_node, turns

LARGE = content(5000)
OTHER = content(7000)
MIB = 1 << 20


async def _do(tablet: KvTablet, *commands: Command) -> list[Result]:
    return await tablet.execute(Request(commands))


async def _state(tablet: KvTablet) -> dict[bytes, bytes]:
    (listed,) = await _do(tablet, ReadRange(with_values=True))
    assert isinstance(listed, RangeResult)
    return {info.key: bytes(info.value or b"") for info in listed.keys}


def test_written_values_are_read_back_small_and_large() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        assert await _do(tablet, Write(b"small", b"abc"), Write(b"large", LARGE), Write(b"empty", b"")) == [None, None, None]
        results = await _do(tablet, Read(b"small"), Read(b"large"), Read(b"empty"), Read(b"none"))
        assert [result.value for result in results if isinstance(result, ReadResult)] == [b"abc", LARGE, b"", None]

    on_node(scenario)


def test_a_read_may_be_of_a_part_of_a_value() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"a", b"0123456789"), Write(b"b", LARGE))
        await _do(tablet, Concat((b"a", b"b", b"a"), b"c", keep_sources=True))
        whole = b"0123456789" + LARGE + b"0123456789"
        for offset, length in ((0, 3), (8, 4), (9, 5002), (5005, 100), (len(whole), None), (3, 0), (3, None)):
            (result,) = await _do(tablet, Read(b"c", offset, length))
            end = len(whole) if length is None else offset + length
            assert result == ReadResult(whole[offset:end]), (offset, length)

    on_node(scenario)


@pytest.mark.parametrize("command", [Read(b"a", 4), Read(b"a", -1), Read(b"a", 0, -1)])
def test_a_read_outside_a_value_is_refused(command: Read) -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"a", b"abc"))
        with pytest.raises(InvalidRequestError, match="3 bytes"):
            await _do(tablet, command)
        with pytest.raises(InvalidRequestError, match="3 bytes"):
            await _do(tablet, Write(b"b", b"x"), command)
        assert await _state(tablet) == {b"a": b"abc"}

    on_node(scenario)


def test_a_range_lists_keys_in_order_with_values_if_asked_for() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"b", LARGE), Write(b"a", b"1"), Write(b"c", b"3"))
        (listed,) = await _do(tablet, ReadRange(b"a", b"c"))
        assert listed == RangeResult((KeyInfo(b"a", 1), KeyInfo(b"b", 5000)))
        (valued,) = await _do(tablet, ReadRange(b"b", None, with_values=True))
        assert valued == RangeResult((KeyInfo(b"b", 5000, LARGE), KeyInfo(b"c", 1, b"3")))

    on_node(scenario)


def test_each_command_changes_what_it_says() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"a1", LARGE), Write(b"a2", b"two"), Write(b"b", OTHER))
        await _do(tablet, Concat((b"a1",), b"c1", keep_sources=True), Concat((b"a2",), b"c2", keep_sources=True))
        assert await _state(tablet) == {b"a1": LARGE, b"a2": b"two", b"b": OTHER, b"c1": LARGE, b"c2": b"two"}
        await _do(tablet, DeleteRange(b"a", b"b"))
        assert await _state(tablet) == {b"b": OTHER, b"c1": LARGE, b"c2": b"two"}
        await _do(tablet, Concat((b"b",), b"c2"))
        assert await _state(tablet) == {b"c1": LARGE, b"c2": OTHER}
        await _do(tablet, Concat((b"c2", b"c1"), b"d"))
        assert await _state(tablet) == {b"d": OTHER + LARGE}
        (status,) = await _do(tablet, GetStatus())
        assert isinstance(status, TabletStatus)
        assert status == TabletStatus(1, status.step, keys=1, value_bytes=12_000, data_blobs=2)

    on_node(scenario)


def test_moving_commands_put_no_data() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"a", LARGE), Write(b"b", OTHER))
        node.hooked.puts.clear()
        await _do(
            tablet,
            Concat((b"a",), b"xa", keep_sources=True),
            Concat((b"b",), b"xb", keep_sources=True),
            Concat((b"a",), b"y"),
            Concat((b"xa", b"xb"), b"z", keep_sources=True),
        )
        assert [blob.channel for blob in node.hooked.puts] == [LOG]
        assert await _state(tablet) == {b"b": OTHER, b"xa": LARGE, b"xb": OTHER, b"y": LARGE, b"z": LARGE + OTHER}

    on_node(scenario)


def test_reads_of_a_request_see_the_state_before_it() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"a", LARGE))
        results = await _do(tablet, Write(b"a", b"new"), Read(b"a"), DeleteRange(b"a", b"b"), ReadRange())
        assert results == [None, ReadResult(LARGE), None, RangeResult((KeyInfo(b"a", 5000),))]
        assert await _state(tablet) == {}

    on_node(scenario)


def test_reads_of_a_request_see_all_requests_before_it_even_in_one_commit() -> None:
    """A request that reads and changes must see what it changes: the requests queued before it come first."""

    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"a", b"old"))
        gate = asyncio.Event()
        node.hooked.on(LOG, Fate(gate=gate))
        in_flight = asyncio.create_task(_do(tablet, Write(b"x", b"1")))
        await turns()
        before = asyncio.create_task(_do(tablet, Write(b"a", LARGE)))
        asking = asyncio.create_task(_do(tablet, Read(b"a"), Concat((b"a",), b"b")))
        await turns()
        gate.set()
        assert await asking == [ReadResult(LARGE), None]
        await asyncio.gather(in_flight, before)
        assert await _state(tablet) == {b"b": LARGE, b"x": b"1"}

    on_node(scenario)


@pytest.mark.parametrize(
    "wrong",
    [
        Concat((b"gone",), b"x"),
        Write(b"k" * 4001, b"v"),
        Write(b"", b"v"),
    ],
)
def test_one_wrong_command_refuses_the_whole_request(wrong: Command) -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"a", b"1"))
        before = len(node.hooked.puts)
        with pytest.raises(InvalidRequestError):
            await _do(tablet, Write(b"b", LARGE), DeleteRange(b"a", b"b"), wrong)
        assert len(node.hooked.puts) == before
        assert await _state(tablet) == {b"a": b"1"}
        await _do(tablet, Write(b"k" * 4000, b"longest"))

    on_node(scenario)


def test_a_wrong_request_does_not_hurt_those_committed_with_it() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        asked = [_do(tablet, Write(b"a", LARGE)), _do(tablet, Concat((b"none",), b"x")), _do(tablet, Concat((b"a",), b"b"))]
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert results[0] == results[2] == [None]
        assert isinstance(results[1], InvalidRequestError)
        assert await _state(tablet) == {b"b": LARGE}

    on_node(scenario)


def test_requests_that_wait_are_committed_together_in_order() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        gate = asyncio.Event()
        node.hooked.on(LOG, Fate(gate=gate))
        first = asyncio.create_task(_do(tablet, Write(b"k", b"first")))
        await turns()
        rest = [asyncio.create_task(_do(tablet, Write(b"k", b"%d" % i), Write(b"k%d" % i, LARGE))) for i in range(20)]
        await turns()
        gate.set()
        await asyncio.gather(first, *rest)
        logged = [blob.step for blob in node.hooked.puts if blob.channel == LOG]
        assert logged == [1, 2, 3]  # the boot, the first request, all the others
        data = [blob for blob in node.hooked.puts if blob.channel == DATA]
        assert len(set(data)) == len(data) == 20
        state = await _state(tablet)
        assert state.pop(b"k") == b"19"
        assert state == {b"k%d" % i: LARGE for i in range(20)}

    on_node(scenario)


def test_changes_too_many_for_one_entry_are_committed_in_several() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        gate = asyncio.Event()
        node.hooked.on(LOG, Fate(gate=gate))
        requests = [tuple(Write(b"%d/%d" % (i, j), content(1000, j)) for j in range(3000)) for i in range(4)]
        asked = [asyncio.create_task(_do(tablet, Write(b"first", b"1")))]
        await turns()
        asked += [asyncio.create_task(_do(tablet, *request)) for request in requests]
        await turns()
        gate.set()
        await asyncio.gather(*asked)
        assert max(blob.step for blob in node.hooked.puts) == 5  # the start, the first, one, one, and two that fit together
        (status,) = await _do(tablet, GetStatus())
        assert isinstance(status, TabletStatus)
        assert status.keys == 12_001
        with pytest.raises(InvalidRequestError, match="split it"):
            await _do(tablet, *(Write(b"x%d" % i, content(1000)) for i in range(9000)))
        await _do(tablet, Write(b"y", b"lives on"))

    on_node(scenario)


def test_a_value_over_8_mib_is_cut_into_blobs() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        value = content(17 * MIB)
        await _do(tablet, Write(b"v", value, head=b"its head"))
        assert [blob.size for blob in node.hooked.puts if blob.channel == DATA] == [8 * MIB, 8 * MIB, MIB]
        assert await tablet.read(b"v") == value
        assert await tablet.read(b"v", 8 * MIB - 5, 10) == value[8 * MIB - 5 : 8 * MIB + 5]
        assert tablet.head(b"v") == b"its head"

    on_node(scenario)


def test_a_read_answers_at_most_25_mib_and_says_so() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        value = content(25 * MIB) + b"more"
        await _do(tablet, Write(b"v", value))
        whole, rest, exact = await _do(tablet, Read(b"v"), Read(b"v", 4), Read(b"v", 0, 25 * MIB))
        assert whole == ReadResult(value[: 25 * MIB], cut=True)
        assert rest == ReadResult(value[4:], cut=False)
        assert exact == ReadResult(value[: 25 * MIB], cut=False)
        (listed,) = await _do(tablet, ReadRange(with_values=True))
        assert isinstance(listed, RangeResult)
        assert listed.cut
        assert [(info.key, info.size, len(info.value or b"")) for info in listed.keys] == [(b"v", 25 * MIB + 4, 25 * MIB)]

    on_node(scenario)


def test_a_range_answers_at_most_25_mib_and_says_so() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        value = content(10 * MIB)
        for key in (b"a", b"b", b"c"):
            await _do(tablet, Write(key, value))
        cut, full = await _do(tablet, ReadRange(with_values=True), ReadRange())
        assert isinstance(cut, RangeResult)
        assert [info.key for info in cut.keys] == [b"a", b"b"]
        assert cut.cut
        assert isinstance(full, RangeResult)
        assert [info.key for info in full.keys] == [b"a", b"b", b"c"]
        assert not full.cut

    on_node(scenario)


def test_a_value_of_1000_bytes_is_inline_and_one_of_1001_is_not() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"inline", content(1000)), Write(b"headed", content(1000), head=b"h"))
        assert [blob.channel for blob in node.hooked.puts] == [LOG, LOG]
        await _do(tablet, Write(b"blob", content(1001)))
        assert [blob.channel for blob in node.hooked.puts[2:]] == [DATA, LOG]
        assert tablet.head(b"inline") == content(1000)
        assert tablet.head(b"headed") == b"h"
        assert tablet.head(b"blob") == b""
        assert tablet.head(b"none") is None

    on_node(scenario)


def test_a_request_for_another_generation_is_refused() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(3)
        for generation in (2, 4):
            with pytest.raises(FencedError, match=f"generation {generation}"):
                await tablet.execute(Request((Write(b"a", b"1"),), generation))
        await tablet.execute(Request((Write(b"a", b"2"),), 3))
        assert await _state(tablet) == {b"a": b"2"}

    on_node(scenario)
