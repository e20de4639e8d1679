"""Starting a KV tablet: what counts of a log that ends anyhow, phantoms of older generations, rivals, damage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from penstock.blob import BlobId, BlobStorage, GetResult, Reply, Status, TabletInfo
from penstock.blob import RangeResult as ListedRange
from penstock.core.errors import ConfigError, CorruptionError, FencedError, UnavailableError
from penstock.tablet import Command, Concat, DeleteRange, KvTablet, RangeResult, ReadRange, Request, Write
from penstock.tablet.boot import LISTED_AT_FIRST
from penstock.tablet.key_index import BlobRef, Chain
from penstock.tablet.log_format import LogEntry, encode_entry
from penstock.testing.sim_disk import SimDisk
from penstock.testing.sim_loop import ProcessDiedError, SimProcess, current_loop
from tests.sim_tablet import (
    ANSWER_LOST,
    BY_HAND,
    DATA,
    ERROR,
    FINE,
    LOG,
    TABLET,
    Fate,
    HookedStorage,
    SimNode,
    content,
    on_node,
    turns,
)

LARGE = content(5000)
OTHER = content(7000)


async def _do(tablet: KvTablet, *commands: Command) -> None:
    await tablet.execute(Request(commands))


async def _state(tablet: KvTablet) -> dict[bytes, bytes]:
    (listed,) = await tablet.execute(Request((ReadRange(with_values=True),)))
    assert isinstance(listed, RangeResult)
    return {info.key: bytes(info.value or b"") for info in listed.keys}


async def _put_entry(node: SimNode, generation: int, step: int, entry: LogEntry) -> None:
    """Write a log entry past the tablet, as one that comes to light late."""
    raw = bytes(encode_entry(entry))
    await _put_raw(node, generation, step, raw)


async def _put_raw(node: SimNode, generation: int, step: int, raw: bytes) -> None:
    proxy = await node.storage.proxy(0)
    blob = BlobId(TABLET, LOG, generation, step, 0, len(raw))
    link = proxy.group.links[0]
    assert link is not None
    reply = await link.put_replica(proxy.group.generation, blob.pack_part(1), raw)
    assert reply.status is Status.OK, reply


class _SlowStorage(HookedStorage):
    """A storage whose second read of several blobs waits until it is released."""

    def __init__(self, storage: BlobStorage, info: TabletInfo) -> None:
        super().__init__(storage, info)
        self.second_read = asyncio.Event()
        self.released = asyncio.Event()
        self._reads = 0

    async def get_many(self, blobs: Sequence[BlobId]) -> list[GetResult]:
        self._reads += 1
        if self._reads == 2:
            self.second_read.set()
            await self.released.wait()
        return await super().get_many(blobs)


def test_a_new_tablet_is_empty_and_a_second_generation_finds_what_the_first_wrote() -> None:
    async def scenario(node: SimNode) -> None:
        first = await node.kv(1)
        assert await _state(first) == {}
        await _do(first, Write(b"a", LARGE, head=b"head"), Write(b"b", b"small"))
        await _do(first, Concat((b"b",), b"c"))
        second = await node.kv(2)
        assert await _state(second) == {b"a": LARGE, b"c": b"small"}
        assert second.head(b"a") == b"head"
        assert second.index.references == first.index.references
        assert second.index.value_bytes == first.index.value_bytes

    on_node(scenario)


def test_what_a_tablet_begins_with_is_written_with_its_start_or_not_at_all() -> None:
    async def scenario(node: SimNode) -> None:
        first = Request((Write(b"a", b"1"), Write(b"b", LARGE)))
        for number, fate in enumerate((ERROR, ANSWER_LOST)):
            storage = node.tablet(TABLET + 1 + number)
            storage.on(LOG, fate)
            with pytest.raises(UnavailableError):
                await KvTablet.boot(storage, 1, random=Random(1), first=first)
            storage.on(LOG, FINE)
            # The next generation finds all of it or nothing.
            found = await KvTablet.boot(storage, 2, random=Random(2))
            assert await _state(found) == ({} if fate is ERROR else {b"a": b"1", b"b": LARGE})
            await found.stop()
        begun = await KvTablet.boot(node.tablet(), 1, random=Random(1), first=first)
        assert await _state(begun) == {b"a": b"1", b"b": LARGE}
        await _do(begun, Write(b"c", b"3"))
        with pytest.raises(FencedError):
            await KvTablet.boot(node.tablet(), 1, random=Random(2), first=Request((Write(b"a", b"of a rival"),)))
        await begun.stop()
        assert await _state(await node.kv(2)) == {b"a": b"1", b"b": LARGE, b"c": b"3"}

    on_node(scenario)


def test_a_start_reads_no_more_of_the_log_than_the_snapshot_leaves() -> None:
    """Disks may keep what a snapshot covers for a while, until they know that enough others have heard that it can go."""

    class KeptLog(HookedStorage):
        reads = 0

        async def get(self, blob_id: BlobId, *args: Any, **named: Any) -> GetResult:
            self.reads += blob_id.channel == LOG
            return await super().get(blob_id, *args, **named)

        async def collect_garbage(self, *_: Any, **__: Any) -> Reply:
            return Reply(Status.OK)

    async def scenario(node: SimNode) -> None:
        storage = KeptLog(node.storage, node.tablet().info)
        first = await KvTablet.boot(storage, 1, random=Random(1), options=BY_HAND)
        for number in range(500):
            await _do(first, Write(b"k%d" % number, b"1"))
        await first.take_snapshot()
        await _do(first, Write(b"last", b"2"))
        await first.stop()
        second = await KvTablet.boot(storage, 2, random=Random(2), options=BY_HAND)
        assert len(await _state(second)) == 501
        assert storage.reads <= 8 + 1  # of more than 500
        await second.stop()

    on_node(scenario)


def test_what_a_snapshot_covers_is_not_listed() -> None:
    """A listing reads and rewrites every blob of which too few disks show a part: that of old entries is work for nothing."""

    class CountedListing(HookedStorage):
        listed = 0

        async def range(self, *args: Any, **named: Any) -> ListedRange:
            result = await super().range(*args, **named)
            self.listed += len(result.blobs)
            return result

        async def collect_garbage(self, *_: Any, **__: Any) -> Reply:
            return Reply(Status.OK)

    async def scenario(node: SimNode) -> None:
        storage = CountedListing(node.storage, node.tablet().info)
        first = await KvTablet.boot(storage, 1, random=Random(1), options=BY_HAND)
        for number in range(500):
            await _do(first, Write(b"k%d" % number, b"1"))
        await first.take_snapshot()
        await _do(first, Write(b"last", b"2"))
        await first.stop()
        second = await KvTablet.boot(storage, 2, random=Random(2), options=BY_HAND)
        assert len(await _state(second)) == 501
        assert storage.listed <= LISTED_AT_FIRST  # of more than 500
        await second.stop()

    on_node(scenario)


def test_a_log_that_is_listed_in_several_steps_is_replayed_whole() -> None:
    async def scenario(node: SimNode) -> None:
        first = await KvTablet.boot(node.tablet(), 1, random=Random(1), options=BY_HAND)
        for number in range(5 * LISTED_AT_FIRST + 1):
            await _do(first, Write(b"k%d" % number, b"1"))
        await first.stop()
        second = await KvTablet.boot(node.tablet(), 2, random=Random(2), options=BY_HAND)
        assert len(await _state(second)) == 5 * LISTED_AT_FIRST + 1
        await second.stop()

    on_node(scenario)


def test_tablets_that_start_together_share_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    flushes: list[str] = []
    flush = SimDisk.flush

    async def counted(self: SimDisk, name: str) -> None:
        flushes.append(name)
        await flush(self, name)

    monkeypatch.setattr(SimDisk, "flush", counted)

    async def scenario(node: SimNode) -> None:
        for generation in (1, 2):
            flushes.clear()
            boots = (
                KvTablet.boot(node.tablet(TABLET + number), generation, random=Random(number), options=BY_HAND)
                for number in range(200)
            )
            tablets = await asyncio.gather(*boots)
            assert len(flushes) <= 10, f"200 tablets were started with {len(flushes)} syncs"
            await asyncio.gather(*(tablet.stop() for tablet in tablets))

    on_node(scenario)


def test_generations_may_be_left_out_but_not_go_back() -> None:
    async def scenario(node: SimNode) -> None:
        await _do(await node.kv(5), Write(b"a", b"1"))
        await node.kv(9)
        for generation in (8, 9, 5):
            with pytest.raises(FencedError):
                await node.kv(generation)
        assert await _state(await node.kv(10)) == {b"a": b"1"}

    on_node(scenario)


def test_of_two_starts_of_one_generation_one_lives() -> None:
    async def scenario(node: SimNode) -> None:
        storages = [node.tablet() for _ in range(2)]
        boots = [KvTablet.boot(storage, 3, random=Random(i), options=BY_HAND) for i, storage in enumerate(storages)]
        booted = await asyncio.gather(*boots, return_exceptions=True)
        alive = [one for one in booted if isinstance(one, KvTablet)]
        assert [type(one) for one in booted if not isinstance(one, KvTablet)] == [FencedError]
        await _do(alive[0], Write(b"a", b"1"))
        await alive[0].stop()
        assert await _state(await node.kv(4)) == {b"a": b"1"}

    on_node(scenario)


@pytest.mark.parametrize("with_snapshot", [False, True], ids=["log entries", "snapshot pages"])
@pytest.mark.parametrize("give_up", [False, True])
def test_a_start_that_is_overtaken_while_it_reads_is_fenced_and_calls_nothing_damaged(with_snapshot: bool, give_up: bool) -> None:
    async def scenario(node: SimNode) -> None:
        first = await node.kv(1)
        for step in range(20):
            await _do(first, Write(b"%d" % step, content(step + 1)))
        if with_snapshot:
            await first.take_snapshot()
        slow = _SlowStorage(node.storage, node.tablet().info)
        overtaken = asyncio.ensure_future(KvTablet.boot(slow, 2, random=Random(1), options=BY_HAND, give_up=give_up))
        await slow.second_read.wait()
        newest = await node.kv(3)
        await _do(newest, Write(b"more", b""))
        await newest.take_snapshot()
        await newest.collect_garbage()
        slow.released.set()
        with pytest.raises(FencedError):
            await overtaken
        assert len(await _state(newest)) == 21

    on_node(scenario)


@pytest.mark.parametrize("data_there", [False, True])
@pytest.mark.parametrize("log_there", [False, True])
def test_the_last_entry_counts_if_it_and_all_its_data_are_there(data_there: bool, log_there: bool) -> None:
    """A crash between the puts of one commit leaves any of them behind."""

    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"a", b"1"))
        never = Fate(gate=asyncio.Event())
        there = {DATA: data_there, LOG: log_there}
        node.hooked.fate = lambda blob: FINE if there[blob.channel] and blob.cookie == 0 else never
        asking = asyncio.create_task(_do(tablet, DeleteRange(b"a", b"b"), Write(b"b", LARGE)))
        await turns(10)
        await asyncio.sleep(1)
        assert not asking.done() or (data_there and log_there)
        expected = {b"b": LARGE} if data_there and log_there else {b"a": b"1"}
        second = await node.kv(2)
        assert await _state(second) == expected
        await _do(second, Write(b"c", b"3"))
        assert await _state(await node.kv(3)) == expected | {b"c": b"3"}
        asking.cancel()

    on_node(scenario)


def test_an_entry_without_one_of_its_several_blobs_does_not_count() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        never = Fate(gate=asyncio.Event())
        node.hooked.fate = lambda blob: never if (blob.channel, blob.cookie) == (DATA, 1) else FINE
        asking = asyncio.create_task(_do(tablet, Write(b"a", LARGE), Write(b"b", OTHER), Write(b"c", b"small")))
        await asyncio.sleep(1)
        assert await _state(await node.kv(2)) == {}
        asking.cancel()

    on_node(scenario)


def test_a_crash_at_any_step_leaves_a_request_done_or_undone_and_an_acknowledged_one_done() -> None:
    async def write(node: SimNode, acknowledged: list[bytes]) -> None:
        tablet = await node.kv(1)
        for number in range(4):
            key = b"%d" % number
            await _do(tablet, Write(key, content(3000, number)), Write(key + b"+", b"x"), DeleteRange(b"%d+" % (number - 1), key))
            acknowledged.append(key)

    async def scenario(node: SimNode) -> None:
        del node
        steps = 0
        finished = False
        while not finished:
            steps += 3
            node = SimNode()
            acknowledged: list[bytes] = []
            process = SimProcess(current_loop(), f"crash-{steps}")
            process.crash_at_step(steps)
            try:
                await process.call(write(node, acknowledged))
                finished = True
            except ProcessDiedError:
                pass
            process.crash()
            node.start()
            state = await _state(await node.kv(2))
            whole = [key for key in state if not key.endswith(b"+")]
            assert whole[: len(acknowledged)] == acknowledged
            assert len(whole) <= len(acknowledged) + 1
            assert state == {key: content(3000, int(key)) for key in whole} | ({whole[-1] + b"+": b"x"} if whole else {})
            await node.close()
        assert steps > 30

    on_node(scenario)


def test_a_start_that_cannot_write_its_mark_says_so_and_the_next_generation_starts() -> None:
    async def scenario(node: SimNode) -> None:
        await _do(await node.kv(1), Write(b"a", LARGE))
        storage = node.tablet()
        for fate in (ERROR, ANSWER_LOST):
            storage.on(LOG, fate)
            with pytest.raises(UnavailableError, match="start it again"):
                await KvTablet.boot(storage, 2 if fate is ERROR else 3, random=Random(1), options=BY_HAND)
        assert await _state(await node.kv(4)) == {b"a": LARGE}

    on_node(scenario)


def test_a_late_entry_of_an_older_generation_changes_nothing() -> None:
    async def scenario(node: SimNode) -> None:
        await _do(await node.kv(1), Write(b"a", b"1"))
        second = await node.kv(2)
        await _do(second, Write(b"b", b"2"))
        await _put_entry(node, 1, 3, LogEntry(changes=((b"a", None), (b"phantom", b"!"))))
        await _put_entry(node, 1, 9, LogEntry(changes=((b"phantom", b"!"),)))
        assert await _state(await node.kv(3)) == {b"a": b"1", b"b": b"2"}
        assert await _state(await node.kv(4)) == {b"a": b"1", b"b": b"2"}

    on_node(scenario)


def test_a_late_entry_cannot_abort_what_a_newer_generation_took_for_good() -> None:
    async def scenario(node: SimNode) -> None:
        first = await node.kv(1)
        await _do(first, Write(b"a", b"1"))
        node.hooked.on(LOG, ANSWER_LOST)
        with pytest.raises(UnavailableError):
            await _do(first, Write(b"a", b"2"))  # step 3: there, but the tablet does not know
        assert await _state(await node.kv(2)) == {b"a": b"2"}
        await _put_entry(node, 1, 4, LogEntry(aborted=(3,)))
        assert await _state(await node.kv(3)) == {b"a": b"2"}

    on_node(scenario)


def test_a_late_mark_of_a_generation_that_never_served_cannot_undo_what_a_newer_one_took_for_good() -> None:
    async def scenario(node: SimNode) -> None:
        first = await node.kv(1)
        await _do(first, Write(b"a", b"1"))  # step 2
        await node.kv(3)
        await _put_entry(node, 2, 1, LogEntry(boot=(1, 1)))
        assert await _state(await node.kv(4)) == {b"a": b"1"}

    on_node(scenario)


def test_an_entry_that_was_judged_once_stays_judged_when_its_data_is_gone() -> None:
    """The last entry of a generation counted; its data was overwritten and collected since. The rest of it still counts."""

    async def scenario(node: SimNode) -> None:
        await _do(await node.kv(1), Write(b"a", LARGE), Write(b"b", b"kept"))
        second = await node.kv(2)
        await _do(second, Write(b"a", OTHER))
        await second.collect_garbage()
        await _do(second, Write(b"c", b"3"))
        assert len(await node.blobs(DATA)) == 1
        expected = {b"a": OTHER, b"b": b"kept", b"c": b"3"}
        assert await _state(await node.kv(3)) == expected
        assert await _state(await node.kv(4)) == expected

    on_node(scenario)


def test_a_log_whose_older_data_was_collected_is_still_replayed() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        for number in range(5):
            await _do(tablet, Write(b"a", content(2000, number)), Write(b"n%d" % number, b"x"))
        await tablet.collect_garbage()
        await _do(tablet, Write(b"b", b"last"))
        state = await _state(await node.kv(2))
        assert state.pop(b"a") == content(2000, 4)
        assert state == {b"n%d" % number: b"x" for number in range(5)} | {b"b": b"last"}

    on_node(scenario)


def test_a_corrupt_log_entry_stops_the_start() -> None:
    async def scenario(node: SimNode) -> None:
        await _do(await node.kv(1), Write(b"a", b"1"))
        raw = bytearray(encode_entry(LogEntry(changes=((b"b", b"2"),))))
        raw[-1] ^= 1
        await _put_raw(node, 1, 3, bytes(raw))
        with pytest.raises(CorruptionError, match=r"\(1, 3\) does not match its checksum"):
            await node.kv(2)

    on_node(scenario)


def test_a_log_entry_of_a_newer_format_stops_the_start() -> None:
    async def scenario(node: SimNode) -> None:
        await _do(await node.kv(1), Write(b"a", b"1"))
        raw = bytes(encode_entry(LogEntry()))
        await _put_raw(node, 1, 3, raw[:4] + b"\0\7" + raw[6:])
        with pytest.raises(ConfigError, match="format 7"):
            await node.kv(2)

    on_node(scenario)


def test_a_storage_that_cannot_be_read_is_unavailable() -> None:
    async def scenario(node: SimNode) -> None:
        await _do(await node.kv(1), Write(b"a", b"1"))
        storage = node.tablet()
        await storage.block(2, 7)
        node.faults.broken = True
        with pytest.raises(UnavailableError):
            await node.kv(3)
        node.faults.broken = False

    on_node(scenario)


def test_a_reference_to_a_blob_of_an_older_entry_needs_no_proof() -> None:
    """Concat moves no data: the last entry refers to a blob that an older one wrote, and counts."""

    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await _do(tablet, Write(b"a", LARGE))
        await _do(tablet, Concat((b"a",), b"b"))
        assert tablet.index.values[b"b"] == Chain(b"", (BlobRef(BlobId(TABLET, DATA, 1, 2, 0, 5000), 0, 5000),))
        assert await _state(await node.kv(2)) == {b"b": LARGE}

    on_node(scenario)


def test_a_race_in_the_group_is_not_taken_for_a_failure() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        (await node.storage.life(0)).set_generation(2)
        await _do(tablet, Write(b"a", LARGE))
        assert await _state(tablet) == {b"a": LARGE}

    on_node(scenario)
