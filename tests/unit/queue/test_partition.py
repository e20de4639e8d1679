"""Writing to a partition: offsets, dedup, cycles that fail, overflow, several partitions of a tablet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from penstock.core.errors import FencedError, InvalidRequestError, UnavailableError
from penstock.queue import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidBatchError,
    Partition,
    PartitionConfig,
    PartitionFullError,
    SequenceError,
    SourceWrite,
    StaleEpochError,
    UnknownPartitionError,
    WriteQueueFullError,
    WriteResult,
)
from penstock.queue.change_lock import ChangeLock
from penstock.queue.partition_writer import PATIENCE_S
from penstock.queue.sources import SOURCE_SIZE_MAX
from penstock.tablet.key_index import Chain
from penstock.testing.batches import make_batch, make_marker
from tests.sim_tablet import ANSWER_LOST, DATA, ERROR, FINE, FULL, LOG, Fate, SimNode, content, history, on_node, turns

TINY = PartitionConfig(low_watermark=3000)
"""Bodies form after a few kilobytes."""


def _batch(*values: bytes) -> bytes:
    return make_batch(values)


async def _write(partition: Partition, values: list[bytes], source: bytes = b"s", seqno: int = 0) -> WriteResult:
    return await partition.write(make_batch(values), SourceWrite(source, seqno))


async def _new(node: SimNode, config: PartitionConfig | None = None, first_offset: int = 0) -> Partition:
    return await (await node.queue(1, config)).add_partition(0, first_offset)


@pytest.mark.parametrize("first_offset", [0, 1, 12_345_678_901])
def test_offsets_are_numbered_through_from_any_first_one(first_offset: int) -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, TINY, first_offset)
        assert (partition.start_offset, partition.end_offset) == (first_offset, first_offset)
        offset = first_offset
        for count in (1, 3, 2, 10, 1):
            assert await partition.write(_batch(*[content(300)] * count)) == WriteResult(offset, duplicate=False)
            offset += count
            assert partition.end_offset == offset
        assert [place for place, _ in await history(partition)] == list(range(first_offset, offset))
        again = (await node.queue(2, TINY)).partition(0)
        assert (again.start_offset, again.end_offset) == (first_offset, offset)
        assert (await again.write(_batch(b"next"))).base_offset == offset

    on_node(scenario)


def test_what_was_written_is_read_back_in_order_before_and_after_a_restart() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, TINY)
        expected = [(number, content(10 + number * 7, number)) for number in range(100)]
        for number in range(0, 100, 4):
            await partition.write(_batch(*(value for _, value in expected[number : number + 4])))
        assert partition.size > 5 * 3000
        assert await history(partition) == expected
        for generation in (2, 3):
            again = (await node.queue(generation, TINY)).partition(0)
            assert again.size == partition.size
            for bytes_max in (1, 500, 1 << 20):
                assert await history(again, bytes_max) == expected

    on_node(scenario)


def test_writes_that_wait_are_committed_together_in_the_order_they_came() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        before = len([blob for blob in node.hooked.puts if blob.channel == LOG])
        results = await asyncio.gather(*(partition.write(_batch(b"%d" % i)) for i in range(200)))
        assert [result.base_offset for result in results] == list(range(200))
        assert await history(partition) == [(i, b"%d" % i) for i in range(200)]
        assert len([blob for blob in node.hooked.puts if blob.channel == LOG]) - before <= 2

    on_node(scenario)


def test_a_duplicate_is_acknowledged_with_its_known_offset() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, first_offset=50)
        await _write(partition, [b"a", b"b"], seqno=1)
        await _write(partition, [b"c"], seqno=3)
        await _write(partition, [b"other"], source=b"t", seqno=1)
        assert await _write(partition, [b"a", b"b"], seqno=1) == WriteResult(50, duplicate=True)
        assert await _write(partition, [b"c"], seqno=3) == WriteResult(52, duplicate=True)
        assert partition.end_offset == 54
        again = (await node.queue(2)).partition(0)
        assert await _write(again, [b"c"], seqno=3) == WriteResult(52, duplicate=True)
        assert await _write(again, [b"other"], source=b"t", seqno=1) == WriteResult(53, duplicate=True)
        assert await _write(again, [b"d"], seqno=4) == WriteResult(54, duplicate=False)
        state = again.source(b"s")
        assert state is not None
        assert (state.max_seqno, state.last_offset) == (4, 54)
        assert again.source(b"none") is None

    on_node(scenario)


def test_a_duplicate_of_a_write_in_flight_is_acknowledged_only_when_that_is_durable() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        gate = asyncio.Event()
        node.hooked.on(LOG, Fate(gate=gate))
        # The same cycle, and the next one.
        asked = [asyncio.create_task(_write(partition, [b"a"], seqno=1)) for _ in range(2)]
        await turns()
        asked.append(asyncio.create_task(_write(partition, [b"a"], seqno=1)))
        await turns()
        assert not any(task.done() for task in asked)
        gate.set()
        answers = await asyncio.gather(*asked)
        assert answers == [WriteResult(0, duplicate=False), WriteResult(0, duplicate=True), WriteResult(0, duplicate=True)]
        assert await history(partition) == [(0, b"a")]

    on_node(scenario)


def test_a_duplicate_of_a_write_that_fails_fails_with_it() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        node.hooked.on(LOG, ERROR)
        answers = await asyncio.gather(*(_write(partition, [b"a"], seqno=1) for _ in range(3)), return_exceptions=True)
        assert [type(answer) for answer in answers] == [UnavailableError] * 3
        node.hooked.on(LOG, FINE)
        assert await _write(partition, [b"a"], seqno=1) == WriteResult(0, duplicate=False)
        assert await history(partition) == [(0, b"a")]

    on_node(scenario)


@pytest.mark.parametrize("fate", [ERROR, ANSWER_LOST], ids=["refused", "answer lost"])
@pytest.mark.parametrize("channel", [DATA, LOG])
def test_a_failed_entry_fails_what_is_queued_behind_and_a_retry_is_written_once(
    channel: int, fate: Fate, monkeypatch: pytest.MonkeyPatch
) -> None:
    if channel == DATA:
        monkeypatch.setattr("penstock.queue.partition_writer.APPEND_BYTES_MAX", 1000)

    async def scenario(node: SimNode) -> None:
        partition = await _new(node, TINY)
        values = [content(5000, number) for number in range(6)]
        await _write(partition, [b"before"], seqno=1)
        gate = asyncio.Event()
        fates = [fate._replace(gate=gate)]
        node.hooked.fate = lambda blob: fates.pop() if blob.channel == channel and fates else FINE
        failing = asyncio.create_task(_write(partition, [values[0]], seqno=2))
        await turns()
        behind = [asyncio.create_task(_write(partition, [values[i]], seqno=2 + i)) for i in range(1, 6)]
        await turns()
        gate.set()
        answers = await asyncio.gather(failing, *behind, return_exceptions=True)
        assert [type(answer) for answer in answers] == [UnavailableError] * 6
        assert await history(partition) == [(0, b"before")]
        retried = await asyncio.gather(*(_write(partition, [values[i]], seqno=2 + i) for i in range(6)))
        assert retried == [WriteResult(1 + i, duplicate=False) for i in range(6)]
        expected = [(0, b"before"), *((1 + i, values[i]) for i in range(6))]
        assert await history(partition) == expected
        assert await history((await node.queue(2, TINY)).partition(0)) == expected

    on_node(scenario)


@pytest.mark.parametrize("fate", [ERROR, ANSWER_LOST], ids=["refused", "answer lost"])
def test_a_gap_behind_a_write_that_may_be_stored_is_not_told_as_one(fate: Fate) -> None:
    def write(partition: Partition, seqno: int) -> Awaitable[WriteResult]:
        return partition.write(make_batch([b"v%d" % seqno]), SourceWrite(b"k", seqno, 0, contiguous=True))

    async def scenario(node: SimNode) -> None:
        partition = await _new(node, TINY)
        await write(partition, 0)
        fates = [fate]
        node.hooked.fate = lambda blob: fates.pop() if blob.channel == LOG and fates else FINE
        with pytest.raises(UnavailableError):
            await write(partition, 1)
        with pytest.raises(UnavailableError, match="send it again first"):
            await write(partition, 2)
        assert await write(partition, 1) == WriteResult(1, duplicate=False)
        with pytest.raises(SequenceError):
            await write(partition, 3)
        assert await write(partition, 2) == WriteResult(2, duplicate=False)
        assert await history((await node.queue(2, TINY)).partition(0)) == [(0, b"v0"), (1, b"v1"), (2, b"v2")]

    on_node(scenario)


@pytest.mark.parametrize("epoch", [0, 1], ids=["same epoch", "new epoch"])
def test_a_gap_after_a_start_is_not_told_as_one_until_the_producer_has_written_or_a_while_has_passed(epoch: int) -> None:
    def write(partition: Partition, seqno: int, source: bytes = b"k", epoch: int = 0) -> Awaitable[WriteResult]:
        return partition.write(make_batch([b"v%d" % seqno]), SourceWrite(source, seqno, epoch, contiguous=True))

    async def scenario(node: SimNode) -> None:
        before = await _new(node, TINY)
        await write(before, 0)
        await write(before, 0, b"other")
        # Write 1, or the first of the new epoch, is refused by a node that does not run the partition yet; what was sent behind
        # it comes when that node does.
        partition = (await node.queue(2, TINY)).partition(0)
        refused = 0 if epoch else 1
        with pytest.raises(UnavailableError, match="send it again first"):
            await write(partition, refused + 1, epoch=epoch)
        assert await write(partition, refused, epoch=epoch) == WriteResult(2, duplicate=False)
        assert await write(partition, refused + 1, epoch=epoch) == WriteResult(3, duplicate=False)
        with pytest.raises(SequenceError):
            await write(partition, refused + 3, epoch=epoch)
        with pytest.raises(SequenceError):  # part of it is there: it has overtaken nothing
            await partition.write(make_batch([b"x", b"y"]), SourceWrite(b"other", 0, 0, contiguous=True))
        await asyncio.sleep(PATIENCE_S)
        with pytest.raises(SequenceError):
            await write(partition, 2, b"other")

    on_node(scenario)


def test_a_gap_of_a_producer_that_has_not_written_since_a_write_failed_is_not_told_as_one() -> None:
    def write(partition: Partition, seqno: int) -> Awaitable[WriteResult]:
        return partition.write(make_batch([b"v%d" % seqno]), SourceWrite(b"k", seqno, 0, contiguous=True))

    async def scenario(node: SimNode) -> None:
        partition = await _new(node, TINY)
        await write(partition, 0)
        fates = [ERROR]
        node.hooked.fate = lambda blob: fates.pop() if blob.channel == LOG and fates else FINE
        with pytest.raises(UnavailableError):
            await write(partition, 1)
        await partition.write(make_batch([b"of another"]))  # says that the entry does not count: nothing is in doubt any more
        with pytest.raises(UnavailableError, match="send it again first"):
            await write(partition, 2)
        assert await write(partition, 1) == WriteResult(2, duplicate=False)
        assert await write(partition, 2) == WriteResult(3, duplicate=False)

    on_node(scenario)


@pytest.mark.parametrize("by", ["queue", "limit"])
def test_a_gap_behind_a_write_that_was_refused_for_want_of_room_is_not_told_as_one(by: str) -> None:
    def write(partition: Partition, seqno: int, size: int = 10) -> Awaitable[WriteResult]:
        source = SourceWrite(b"k", seqno, 0, contiguous=True)
        return asyncio.ensure_future(partition.write(make_batch([content(size, seqno)]), source))

    async def scenario(node: SimNode) -> None:
        partition = await _new(
            node, PartitionConfig(limit_messages=2) if by == "limit" else PartitionConfig(waiting_bytes_max=5000)
        )
        gate = asyncio.Event()
        node.hooked.on(LOG, Fate(gate=gate))
        stored = [write(partition, 0), write(partition, 1)]
        with pytest.raises(PartitionFullError if by == "limit" else WriteQueueFullError):
            await write(partition, 2, 5000)
        gate.set()
        await asyncio.gather(*stored)
        await partition.trim(2)
        with pytest.raises(UnavailableError, match="send it again first"):
            await write(partition, 3)
        assert await write(partition, 2, 5000) == WriteResult(2, duplicate=False)
        assert await write(partition, 3) == WriteResult(3, duplicate=False)

    on_node(scenario)


def test_a_small_message_needs_no_blob_of_its_own_and_all_of_a_body_is_in_blobs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, PartitionConfig(low_watermark=40_000))
        index = partition.tablet.index
        await _write(partition, [content(2000)], seqno=1)
        assert not index.references
        monkeypatch.setattr("penstock.queue.partition_writer.APPEND_BYTES_MAX", 5000)
        await _write(partition, [content(5000)], seqno=2)
        assert len(index.references) == 1
        # Bodies of pieces of either kind, with small ones before, between and behind the large ones.
        for seqno in range(3, 60):
            await _write(partition, [content(200 + 1900 * (seqno % 4), seqno)], seqno=seqno)
        assert len(partition.bodies) > 1
        for body in partition.bodies:
            value = index.values[body.key]
            assert isinstance(value, Chain)
            assert not any(isinstance(piece, bytes) for piece in value.pieces[:-1]), "only the marks may be in the log"
        assert len(await history(partition)) == 59
        await partition.roll_head()
        assert await history((await node.queue(2)).partition(0)) == await history(partition)

    on_node(scenario)


def test_a_change_that_is_cancelled_while_it_waits_or_as_it_is_let_in_leaves_the_way_free() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        lock = ChangeLock(partition.tablet, 0)
        done: list[int] = []

        async def change(number: int) -> None:
            async with lock:
                done.append(number)

        assert lock.take() is None
        waiting = [asyncio.create_task(change(number)) for number in range(3)]
        await turns()
        waiting[0].cancel()
        lock.leave()
        waiting[1].cancel()  # its turn has come, and it does not know yet
        await asyncio.gather(*waiting, return_exceptions=True)
        assert done == [2]
        assert lock.take() is None
        await _write(partition, [b"a"], seqno=1)  # the tablet was not stopped

    on_node(scenario)


def test_a_wrong_write_fails_alone() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        await _write(partition, [b"a", b"b", b"c"], seqno=1)
        answers = await asyncio.gather(
            _write(partition, [b"d"], seqno=4),
            _write(partition, [b"c", b"d", b"e"], seqno=3),
            partition.write(_batch(b"x"), SourceWrite(b"k", 0, contiguous=True)),
            partition.write(_batch(b"y"), SourceWrite(b"k", 5, contiguous=True)),
            partition.write(make_batch([b""], key=b"\0\0\0\7", attributes=0x30, producer_id=1)),
            _write(partition, [b"e"], seqno=5),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [
            WriteResult,
            SequenceError,
            WriteResult,
            SequenceError,
            InvalidBatchError,
            WriteResult,
        ]
        assert [value for _, value in await history(partition)] == [b"a", b"b", b"c", b"d", b"x", b"e"]

    on_node(scenario)


@pytest.mark.parametrize(
    ("raw", "source", "error"),
    [
        (b"garbage", None, InvalidBatchError),
        (make_batch([b"v"])[:-1] + b"?", None, CorruptBatchError),
        (make_batch([b"v" * 3000]), None, BatchTooLargeError),
        (make_batch([b"v"], attributes=0x10), None, InvalidBatchError),
        (make_batch([b"v"]), SourceWrite(b"s" * (SOURCE_SIZE_MAX + 1), 1), InvalidRequestError),
        (make_batch([b"v"]), SourceWrite(b"s", -5), SequenceError),
        (make_batch([b"v"]), SourceWrite(b"s", 1 << 64), SequenceError),
    ],
)
def test_a_batch_that_cannot_be_stored_is_refused_at_once(raw: bytes, source: SourceWrite | None, error: type[Exception]) -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, PartitionConfig(batch_bytes_max=2000))
        good, bad = await asyncio.gather(partition.write(_batch(b"good")), partition.write(raw, source), return_exceptions=True)
        assert isinstance(bad, error)
        assert good == WriteResult(0, duplicate=False)
        assert await history(partition) == [(0, b"good")]

    on_node(scenario)


def test_an_older_owner_of_a_source_is_shut_out() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        await partition.write(_batch(b"a"), SourceWrite(b"s", 1, epoch=1))
        await partition.write(_batch(b"b"), SourceWrite(b"s", 2, epoch=2))
        with pytest.raises(StaleEpochError):
            await partition.write(_batch(b"c"), SourceWrite(b"s", 3, epoch=1))
        assert await partition.write(_batch(b"b"), SourceWrite(b"s", 2, epoch=2)) == WriteResult(1, duplicate=True)
        assert await history(partition) == [(0, b"a"), (1, b"b")]

    on_node(scenario)


def test_a_writer_that_goes_away_does_not_stop_the_others() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        asked = [asyncio.create_task(_write(partition, [b"%d" % i], seqno=i)) for i in range(4)]
        await asyncio.sleep(0)
        asked[1].cancel()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(answers[1], asyncio.CancelledError)
        written = [value for _, value in await history(partition)]
        assert [value for value in written if value != b"1"] == [b"0", b"2", b"3"]
        assert written == sorted(written)

    on_node(scenario)


def test_a_fenced_partition_fails_all_its_writes() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        await partition.write(_batch(b"old"))
        newer = (await node.queue(2)).partition(0)
        answers = await asyncio.gather(*(partition.write(_batch(b"late")) for _ in range(5)), return_exceptions=True)
        assert [type(answer) for answer in answers] == [FencedError] * 5
        with pytest.raises(FencedError):
            await partition.commit("reader", 0)
        await newer.write(_batch(b"new"))
        assert await history(newer) == [(0, b"old"), (1, b"new")]

    on_node(scenario)


def test_too_many_messages_are_an_overflow_until_some_are_gone() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, PartitionConfig(limit_messages=10), first_offset=1000)
        for _ in range(2):
            await partition.write(_batch(*[b"v"] * 5))
        with pytest.raises(PartitionFullError, match="10 messages"):
            await partition.write(_batch(b"v"))
        await partition.trim(1001)
        await partition.write(_batch(b"v"))
        with pytest.raises(PartitionFullError):
            await partition.write(_batch(b"v"))

    on_node(scenario)


def test_too_many_bytes_are_an_overflow_until_some_are_gone() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, PartitionConfig(limit_bytes=5000))
        await partition.write(_batch(content(3000)))
        await partition.write(_batch(content(3000)))
        with pytest.raises(PartitionFullError, match="its limit is 5000"):
            await partition.write(_batch(b"v"))
        await partition.trim(1)
        assert (await partition.write(_batch(b"v"))).base_offset == 2

    on_node(scenario)


@pytest.mark.parametrize("config", [PartitionConfig(limit_messages=20), PartitionConfig(limit_bytes=20 * len(_batch(b"v")))])
def test_limits_count_what_is_on_its_way_to_the_disk(config: PartitionConfig) -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node, config)
        gate = asyncio.Event()
        node.hooked.on(LOG, Fate(gate=gate))
        writing = [asyncio.create_task(partition.write(_batch(b"v"))) for _ in range(15)]
        await turns()  # a cycle is with the disk
        writing += [asyncio.create_task(partition.write(_batch(b"v"))) for _ in range(15)]
        await turns()
        gate.set()
        outcomes = await asyncio.gather(*writing, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [WriteResult] * 20 + [PartitionFullError] * 10
        assert partition.end_offset == 20
        await partition.trim(20)
        await partition.write(_batch(b"v"))

    on_node(scenario)


def test_a_raised_limit_makes_a_full_partition_writable() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.queue(1, PartitionConfig(limit_messages=1))
        partition = await tablet.add_partition(0)
        await partition.write(_batch(b"v"))
        with pytest.raises(PartitionFullError):
            await partition.write(_batch(b"v"))
        tablet.set_config(PartitionConfig(limit_messages=2))
        await partition.write(_batch(b"v"))

    on_node(scenario)


def test_a_full_storage_is_an_overflow_until_there_is_space() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        await _write(partition, [b"a"], seqno=1)
        node.hooked.on(LOG, FULL)
        answers = await asyncio.gather(
            *(_write(partition, [content(3000, i)], seqno=2 + i) for i in range(3)), return_exceptions=True
        )
        assert [type(answer) for answer in answers] == [PartitionFullError] * 3
        assert PartitionFullError.retriable
        assert await history(partition) == [(0, b"a")]
        node.hooked.on(LOG, FINE)
        assert await _write(partition, [content(3000)], seqno=2) == WriteResult(1, duplicate=False)
        assert await history(partition) == [(0, b"a"), (1, content(3000))]

    on_node(scenario)


def test_several_partitions_live_on_one_tablet_each_on_its_own() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.queue(1, TINY)
        partitions = [await tablet.add_partition(number, 100 * number) for number in range(4)]
        for i in range(10):
            await asyncio.gather(
                *(partition.write(_batch(b"%d/%d" % (partition.number, i), content(400))) for partition in partitions)
            )
        await partitions[2].trim(210)
        again = await node.queue(2, TINY)
        assert sorted(again.partitions) == [0, 1, 2, 3]
        for number, partition in sorted(again.partitions.items()):
            values = await history(partition)
            first = 100 * number + (10 if number == 2 else 0)
            assert [place for place, _ in values] == list(range(first, 100 * number + 20))
            assert [value for _, value in values[::2]] == [b"%d/%d" % (number, i) for i in range(5 if number == 2 else 0, 10)]

    on_node(scenario)


def test_a_source_may_write_to_several_partitions() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.queue(1)
        first, second = await tablet.add_partition(0), await tablet.add_partition(1)
        await _write(first, [b"a"], seqno=7)
        assert await _write(second, [b"a"], seqno=7) == WriteResult(0, duplicate=False)

    on_node(scenario)


def test_partitions_are_added_once_and_an_unknown_one_is_a_clear_error() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.queue(1)
        await tablet.add_partition(3)
        with pytest.raises(InvalidRequestError, match="there already"):
            await tablet.add_partition(3)
        with pytest.raises(UnknownPartitionError, match=r"no partition 0 on this tablet; it has \[3\]"):
            tablet.partition(0)
        for number, first_offset in ((-1, 0), (1 << 32, 0), (1, -1), (1, 1 << 64)):
            with pytest.raises(InvalidRequestError):
                await tablet.add_partition(number, first_offset)
        await tablet.add_partition((1 << 32) - 2)
        assert sorted((await node.queue(2)).partitions) == [3, (1 << 32) - 2]

    on_node(scenario)


def test_a_partition_asked_for_twice_at_once_is_made_once() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.queue(1)
        made = await asyncio.gather(*(tablet.add_partition(0) for _ in range(3)), return_exceptions=True)
        assert sorted(type(one).__name__ for one in made) == ["InvalidRequestError", "InvalidRequestError", "Partition"]
        assert tablet.partition(0) in made

    on_node(scenario)


def test_the_leader_epoch_in_a_stored_batch_is_the_generation() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await (await node.queue(7)).add_partition(0)
        await partition.write(_batch(b"v"))
        (stored,) = (await partition.read(0, 1)).batches
        assert bytes(memoryview(stored)[12:16]) == b"\0\0\0\7"  # type: ignore[arg-type]  # not a piece of a file

    on_node(scenario)


def test_a_marker_that_is_refused_with_others_of_its_cycle_leaves_the_transaction_open() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await _new(node)
        await partition.write(make_batch([b"t"], attributes=0x10, producer_id=1, producer_epoch=0))
        wrong = make_batch([b""], key=b"\0\0\0\7", attributes=0x30, producer_id=1)
        await asyncio.gather(partition.write(wrong), partition.write(_batch(b"v")), return_exceptions=True)
        assert (partition.end_offset, partition.stable_offset) == (2, 0)
        await partition.write(make_marker(commit=True, producer_id=1))
        assert partition.stable_offset == 3

    on_node(scenario)
