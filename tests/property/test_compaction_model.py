"""Random writes with keys, transactions, compactions, trims, reads and restarts of a partition, compared with a small model."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import ExitStack, suppress
from itertools import pairwise
from random import Random
from typing import Any, TypeVar
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from penstock.queue import BlobCache, PartitionConfig, PassSummary, compact, compaction, head, in_place, piece
from penstock.testing.batches import keyed_records_of, make_keyed_batch, make_marker
from penstock.testing.sim_loop import ProcessDiedError, SimLoop, SimProcess
from tests.keyed_log import KeyedLog, Written, data_records, raw_batches, read_committed, read_log
from tests.sim_tablet import SimNode, content

T = TypeVar("T")

DELETE_RETENTION_MS = 50_000
CONFIG = PartitionConfig(low_watermark=1500, is_compacted=True, delete_retention_ms=DELETE_RETENTION_MS, min_dirty_ratio=0.0)
SMALL = {(head, "BODY_SIZE"): 1600, (head, "LEVELS"): (150, 600), (piece, "MARK_EVERY"): 200, (compaction, "STAGE_BYTES"): 400}
MAPS = [1, 24 * 20, 1 << 20]
"""Bytes for the map of keys: the least there is, some, and more than needed."""

keys = st.sampled_from([b"", b"a", b"b", b"key/c", b"k" * 40]) | st.sampled_from([b"more-%d" % number for number in range(20)])
sizes = st.sampled_from([None, 0, 1, 30, 200, 900])
codecs = st.sampled_from([0, 0, 0, 1, 2, 3, 4])
producers = st.sampled_from([None, None, 1, 2])
batches = st.lists(st.tuples(keys, sizes), min_size=1, max_size=6)


class CompactionMachine(RuleBasedStateMachine):
    """One compacted partition, and the log that it was made of."""

    def __init__(self) -> None:
        super().__init__()
        self.small = ExitStack()
        for (module, name), value in SMALL.items():
            self.small.enter_context(mock.patch.object(module, name, value))
        self.loop = SimLoop(shuffle_ties=True)
        self.node = SimNode(loop=self.loop)
        self.generation = 0
        self.serial = 0
        self.log = KeyedLog()
        self.process = SimProcess(self.loop, "node")

    @initialize(first_offset=st.sampled_from([0, 7, 1 << 40]))
    def begin(self, first_offset: int) -> None:
        self.log = KeyedLog(first_offset)
        self._boot()

    def teardown(self) -> None:
        try:
            if self.generation:
                self._compare()
                self._do(self.node.close())
            self.loop.cancel_leftovers()
        finally:
            self.loop.close()
            self.small.close()
        assert self.loop.unhandled == []

    def _boot(self) -> None:
        self.generation += 1
        self.node.cache = BlobCache(bytes_max=3000)
        self.tablet = self._do(self.node.queue(self.generation, CONFIG))
        if not self.tablet.partitions:
            self._do(self.tablet.add_partition(0, self.log.start))
        self.partition = self.tablet.partition(0)

    def _kill(self) -> None:
        self.process.crash()
        self.process = SimProcess(self.loop, f"node-{self.generation}")
        self.node.start()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(self.process.call(work))

    @property
    def now_ms(self) -> int:
        return int(self.node.clock.wall() * 1000)

    def _compare(self) -> None:
        found = self._do(read_log(self.partition, 1500))
        self.log.judge(self.partition, found, now_ms=self.now_ms)
        for bytes_max in (700, 1 << 20):
            assert self._do(read_committed(self.partition, bytes_max)) == self.log.committed_view(found)
        assert self.partition.size == sum(body.size for body in self.partition.bodies) + self.partition.head_size

    async def _compact(self, map_bytes: int) -> PassSummary | None:
        rng = Random(self.serial)
        return await compact(self.partition, clock=self.node.clock, random=rng, offload=in_place, map_bytes=map_bytes)

    def _write(self, pairs: list[tuple[bytes | None, int | None]], codec: int, producer: int | None) -> bytes:
        self.serial += 1
        stamps = [self.now_ms + at * 7 % 20 for at in range(len(pairs))]
        values = [
            (key, None if size is None else b"%d/%d/" % (self.serial, at) + content(size, at))
            for at, (key, size) in enumerate(pairs)
        ]
        written = [Written(key, value, stamp, producer) for (key, value), stamp in zip(values, stamps, strict=True)]
        base = self.log.end
        if producer is None:
            raw = make_keyed_batch(values, timestamps=stamps, codec=codec)
        else:
            raw = make_keyed_batch(
                values, timestamps=stamps, codec=codec, attributes=0x10, producer_id=producer, producer_epoch=0
            )
        self.log.append(written)
        assert self._do(self.partition.write(raw)).base_offset == base
        return raw

    @rule(pairs=batches, codec=codecs, producer=producers)
    def write(self, pairs: list[tuple[bytes | None, int | None]], codec: int, producer: int | None) -> None:
        self._write(pairs, codec, producer)

    @rule(pairs=batches, times=st.integers(2, 8))
    def write_much(self, pairs: list[tuple[bytes | None, int | None]], times: int) -> None:
        for _ in range(times):
            self._write(pairs, 0, None)

    @rule(size=sizes)
    def write_without_a_key(self, size: int | None) -> None:
        """As into a topic that was not compacted then."""
        self._write([(None, size), (b"a", size)], 0, None)

    @rule(commit=st.booleans())
    def end_transaction(self, commit: bool) -> None:
        if self.log.open:
            self._end(min(self.log.open), commit=commit)

    @rule(transactions=st.lists(st.tuples(batches, st.sampled_from([4, 5]), st.booleans()), min_size=1, max_size=4))
    def write_transactions(self, transactions: list[tuple[list[tuple[bytes | None, int | None]], int, bool]]) -> None:
        for pairs, producer, commit in transactions:
            self._write(pairs, 0, producer)
            self._end(producer, commit=commit)

    def _end(self, producer: int, *, commit: bool) -> None:
        self._do(self.partition.write(make_marker(commit=commit, producer_id=producer, timestamp=self.now_ms)))
        self.log.end_transaction(producer, commit=commit)

    @rule(map_bytes=st.sampled_from(MAPS), roll=st.booleans())
    def compact(self, map_bytes: int, roll: bool) -> None:
        if roll:
            self._do(self.partition.roll_head())
        before = self.partition.clean.clean_to
        summary = self._do(self._compact(map_bytes))
        if summary is not None:
            assert summary.is_complete
            assert self.partition.clean.clean_to >= before
            self.log.judge_pass(self.partition, self._do(read_log(self.partition)))
        self._compare()
        assert list(self.tablet.tablet.keys(b"w", b"x")) == []

    @rule()
    def compact_all(self) -> None:
        """Pass after pass until nothing is dirty; what the last leaves alone is merged as far as it goes."""
        self._do(self.partition.roll_head())
        for _ in range(200):
            summary = self._do(self._compact(MAPS[2]))
            if summary is None or self.partition.clean.clean_to >= min(self.log.stable, self._bodies_end()):
                break
        sizes = [body.size for body in self.partition.bodies if body.next_offset <= self.partition.clean.clean_to]
        assert all(one + other > head.BODY_SIZE for one, other in pairwise(sizes)), sizes
        self._compare()

    def _bodies_end(self) -> int:
        eligible = [body.next_offset for body in self.partition.bodies if body.next_offset <= self.log.stable]
        return max(eligible, default=0)

    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log.start, self.log.end))
        assert self._do(self.partition.trim(offset)) == offset
        self.log.start = offset

    @rule(data=st.data(), bytes_max=st.sampled_from([1, 500, 10**6]), is_committed=st.booleans())
    def read(self, data: st.DataObject, bytes_max: int, is_committed: bool) -> None:
        """An offset that fell in a gap gives what comes next."""
        offset = data.draw(st.integers(self.log.start, self.log.end))
        everything = self._do(read_log(self.partition))
        until = self.partition.stable_offset if is_committed else None
        raw, next_offset = self._do(raw_batches(self.partition, offset, bytes_max, until))
        end = self.log.end if until is None else until
        assert next_offset > offset or offset >= end
        found = [record for record in data_records(raw) if record.offset >= offset]
        assert found == [record for record in everything if offset <= record.offset < next_offset]

    @rule(data=st.data())
    def find_time(self, data: st.DataObject) -> None:
        everything = self._do(read_log(self.partition))
        if not everything:
            return
        stamp = data.draw(st.sampled_from(everything)).timestamp + data.draw(st.sampled_from([0, 1]))
        found = self._do(self.partition.find_time(stamp))
        later = [record for record in everything if record.timestamp >= stamp]
        if not later:
            return
        assert found is not None
        if later[0].offset not in (record.offset for record in data_records(bytes(found[1]))):
            # A marker, or a record that was trimmed, is as late and comes before it.
            earlier = keyed_records_of(bytes(found[1]))[0]
            assert earlier.offset in self.log.markers or earlier.offset < self.log.start
            assert earlier.offset < later[0].offset

    @rule(seconds=st.sampled_from([1, 30, 60]))
    def wait(self, seconds: int) -> None:
        self._do(asyncio.sleep(seconds))

    @rule()
    def maintain(self) -> None:
        self._do(self.tablet.tablet.take_snapshot())
        self._do(self.tablet.tablet.collect_garbage())

    @rule(kill=st.booleans())
    def restart(self, kill: bool) -> None:
        clean = self.partition.clean
        if kill:
            self._kill()
        else:
            self._do(self.tablet.stop())
        self._boot()
        assert self.partition.clean == clean
        self._compare()

    @rule(steps=st.integers(0, 200), map_bytes=st.sampled_from(MAPS))
    def crash_while_compacting(self, steps: int, map_bytes: int) -> None:
        self._do(self.partition.roll_head())
        self.process.crash_at_step(self.process.steps + steps)
        with suppress(ProcessDiedError):
            self._do(self._compact(map_bytes))
        self._kill()
        self._boot()
        self._compare()

    @rule(pairs=batches, data=st.data())
    def everything_at_once(self, pairs: list[tuple[bytes | None, int | None]], data: st.DataObject) -> None:
        """Writes, a trim and reads during a pass."""
        offset = data.draw(st.integers(self.log.start, self.log.end))
        does_trim = data.draw(st.booleans())
        self.serial += 1
        values = [(key, None if size is None else content(size, self.serial)) for key, size in pairs]
        raw = make_keyed_batch(values, timestamps=[self.now_ms])

        async def go() -> None:
            reads = [read_log(self.partition, 300) for _ in range(2)]
            trims = [self.partition.trim(offset)] if does_trim else []
            await asyncio.gather(self._compact(MAPS[1]), self.partition.write(raw), *reads, *trims)

        stamp = self.now_ms
        self._do(go())
        self.log.append([Written(key, value, stamp, None) for key, value in values])
        self.log.start = offset if does_trim else self.log.start
        self._compare()


@pytest.mark.parametrize("count", [15, pytest.param(160, marks=(pytest.mark.soak, pytest.mark.timeout(3600)))])
def test_the_compacted_partition_answers_as_the_model_does(count: int) -> None:
    run_state_machine_as_test(
        CompactionMachine,
        settings=settings(
            max_examples=count, stateful_step_count=40, deadline=None, derandomize=True, report_multiple_bugs=False
        ),
    )
