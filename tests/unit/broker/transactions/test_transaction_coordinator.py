"""The coordinator on a real broker: decisions that survive, fencing at the partitions, timeouts, expiry, several as one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.broker import TopicPartition
from penstock.broker.transactions import V1 as TRANSACTIONS_V1
from penstock.broker.transactions import V2 as TRANSACTIONS_V2
from penstock.broker.transactions import (
    CommitOutcome,
    ConcurrentTransactionsError,
    InvalidTransactionStateError,
    InvalidTransactionTimeoutError,
    NotInTransactionError,
    Producer,
    ProducerFencedError,
    RecordConflictError,
    TransactionCommit,
    TransactionOptions,
    TransactionState,
    UnknownProducerError,
)
from penstock.core.errors import InvalidRequestError, UnavailableError
from penstock.queue import OpenTransactionError, StaleEpochError, WriteResult
from penstock.testing.batches import make_batch
from penstock.testing.sim_loop import run_simulation
from tests.sim_broker import PROMPT, SimBroker, SimProducer, Write, read_committed

A, B = Write("a", 0), Write("b", 1)
RECORD = ("spark/query", b"batch 1")

Scenario = Callable[[SimBroker], Coroutine[Any, Any, None]]

each_version = pytest.mark.parametrize("version", [TRANSACTIONS_V1, TRANSACTIONS_V2])


def _run(scenario: Scenario, options: TransactionOptions = PROMPT) -> None:
    async def main() -> None:
        host = await SimBroker(options).start()
        for name in ("a", "b"):
            await host.do(host.broker.create_topic(name, 2))
        await scenario(host)
        await host.stop()

    run_simulation(main())


async def _begun(
    host: SimBroker, name: str = "id", *, version: int = TRANSACTIONS_V1, values: tuple[bytes, ...] = (b"v",)
) -> SimProducer:
    """A producer with a transaction in both topics."""
    producer = SimProducer(host, name, version=version)
    await producer.initialise()
    for place in (A, B):
        await producer.write(place, list(values))
    return producer


async def _values(host: SimBroker) -> list[list[bytes]]:
    return [(await read_committed(host.partition(*place))).values for place in (A, B)]


def _is_stable(host: SimBroker) -> bool:
    partitions = [host.partition(*place) for place in (A, B)]
    return all(partition.stable_offset == partition.end_offset for partition in partitions)


@each_version
@pytest.mark.parametrize("commit", [True, False])
def test_an_end_is_seen_in_every_partition_when_it_is_answered(version: int, commit: bool) -> None:
    async def scenario(host: SimBroker) -> None:
        producer = await _begun(host, version=version)
        assert not _is_stable(host)
        await producer.end(commit=commit)
        assert _is_stable(host)
        assert await _values(host) == ([[b"v"]] * 2 if commit else [[]] * 2)

    _run(scenario)


@each_version
def test_an_open_transaction_survives_a_crash_and_can_be_committed(version: int) -> None:
    async def scenario(host: SimBroker) -> None:
        producer = await _begun(host, version=version)
        await host.restart()
        await producer.write(A, [b"more"])
        await producer.end(commit=True)
        assert await _values(host) == [[b"v", b"more"], [b"v"]]

    _run(scenario)


def test_positions_are_set_by_the_commit_and_dropped_by_an_abort() -> None:
    async def scenario(host: SimBroker) -> None:
        producer = await _begun(host)
        queue = TopicPartition(host.topic("a").id, 0)
        await producer.set_position("group", A, 3)
        assert host.broker.consumers.is_unstable("group", queue)
        await producer.end(commit=False)
        assert host.broker.consumers.position("group", queue) is None
        assert not host.broker.consumers.is_unstable("group", queue)
        await producer.set_position("group", A, 4)
        await host.restart()
        assert host.broker.consumers.is_unstable("group", queue)
        await producer.end(commit=True)
        position = host.broker.consumers.position("group", queue)
        assert position is not None
        assert position.offset == 4
        assert not host.broker.consumers.is_unstable("group", queue)

    _run(scenario)


def test_positions_of_a_group_that_was_not_added_are_refused() -> None:
    async def scenario(host: SimBroker) -> None:
        producer = await _begun(host)
        transactions = host.broker.transactions
        with pytest.raises(NotInTransactionError):
            await host.do(transactions.set_positions("id", producer.identity, "group", [], adds_group=False))

    _run(scenario)


def test_the_next_producer_aborts_what_the_one_before_left_and_partitions_refuse_it() -> None:
    async def scenario(host: SimBroker) -> None:
        zombie = await _begun(host, values=(b"zombie",))
        heir = SimProducer(host, "id", version=TRANSACTIONS_V1)
        await heir.initialise()
        assert _is_stable(host)
        with pytest.raises(ProducerFencedError):
            await zombie.write(A, [b"late"])
        with pytest.raises(ProducerFencedError):
            await zombie.end(commit=True)
        # Even past the coordinator: the marker has moved the partition on to the newer epoch.
        late = make_batch(
            [b"x"], attributes=0x10, producer_id=zombie.identity.id, producer_epoch=zombie.identity.epoch, base_sequence=1
        )
        with pytest.raises(StaleEpochError):
            await host.do(host.broker.produce(host.topic("a"), 0, late))
        await heir.write(A, [b"heir"])
        await heir.end(commit=True)
        assert await _values(host) == [[b"heir"], []]

    _run(scenario)


def test_a_producer_that_goes_on_after_an_error_loses_only_what_it_had_open() -> None:
    async def scenario(host: SimBroker) -> None:
        producer = await _begun(host)
        old = producer.identity
        transactions = host.broker.transactions
        assert await host.do(transactions.initialise("id", 1000, old)) == (old.id, old.epoch + 2)
        assert await _values(host) == [[], []]

    _run(scenario)


def test_a_zombie_that_wants_to_go_on_does_not_abort_what_its_heir_has_open() -> None:
    async def scenario(host: SimBroker) -> None:
        zombie = await _begun(host)
        heir = await _begun(host, values=(b"heir",))
        with pytest.raises(ProducerFencedError):
            await host.do(host.broker.transactions.initialise("id", 1000, zombie.identity))
        await heir.end(commit=True)
        assert await _values(host) == [[b"heir"]] * 2

    _run(scenario)


def test_in_version_2_a_late_message_never_becomes_part_of_the_next_transaction() -> None:
    async def scenario(host: SimBroker) -> None:
        producer = await _begun(host, version=TRANSACTIONS_V2)
        old = producer.identity
        await producer.end(commit=True)
        assert producer.identity == (old.id, old.epoch + 1)
        await producer.write(A, [b"next"])
        late = make_batch([b"late"], attributes=0x10, producer_id=old.id, producer_epoch=old.epoch, base_sequence=1)
        with pytest.raises(StaleEpochError):
            await host.do(host.broker.produce(host.topic("a"), 0, late))
        await producer.end(commit=True)
        assert await _values(host) == [[b"v", b"next"], [b"v"]]

    _run(scenario)


def test_a_partition_that_is_not_in_the_transaction_takes_no_data_of_it() -> None:
    async def scenario(host: SimBroker) -> None:
        producer = await _begun(host)
        transactions = host.broker.transactions
        elsewhere = TopicPartition(host.topic("a").id, 1)
        with pytest.raises(NotInTransactionError):
            transactions.check_write("id", producer.identity, elsewhere)
        with pytest.raises(UnknownProducerError):
            transactions.check_write(None, producer.identity, elsewhere)
        await producer.end(commit=True)
        with pytest.raises(NotInTransactionError):
            transactions.check_write("id", producer.identity, TopicPartition(host.topic("a").id, 0))

    _run(scenario)


def test_a_producer_with_an_open_transaction_writes_nothing_outside_of_it() -> None:
    async def scenario(host: SimBroker) -> None:
        producer = await _begun(host)
        plain = make_batch([b"x"], producer_id=producer.identity.id, producer_epoch=producer.identity.epoch, base_sequence=1)
        with pytest.raises(OpenTransactionError):
            await host.do(host.broker.produce(host.topic("a"), 0, plain))

    _run(scenario)


def test_writes_that_wait_for_their_partition_keep_their_order() -> None:
    async def scenario(host: SimBroker) -> None:
        producer = SimProducer(host, "id", version=TRANSACTIONS_V2)
        await producer.initialise()
        await host.do(_pipelined(host, producer.identity))
        await producer.end(commit=True)
        assert await _values(host) == [[b"%d" % number for number in range(50)], []]

    _run(scenario)


async def _pipelined(host: SimBroker, producer: Producer) -> None:
    """Fifty batches one behind the other; the first ones find the partition not yet added."""
    broker, queue = host.broker, TopicPartition(host.topic("a").id, 0)
    loop = asyncio.get_running_loop()
    waiting: list[asyncio.Future[WriteResult]] = []
    for number in range(50):
        stored: asyncio.Future[WriteResult] = loop.create_future()
        batch = make_batch(
            [b"%d" % number], attributes=0x10, producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=number
        )

        def registered(trouble: Exception | None, batch: bytes = batch, stored: asyncio.Future[WriteResult] = stored) -> None:
            assert trouble is None
            broker.begin_produce(broker.route("a", 0), batch, stored)

        broker.transactions.register("id", producer, queue, registered)
        waiting.append(stored)
        if number % 3 == 0:
            await asyncio.sleep(0.0005)
    await asyncio.gather(*waiting)


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() -> None:
    async def scenario(host: SimBroker) -> None:
        producer = SimProducer(host, "id", version=TRANSACTIONS_V1)
        await producer.initialise(timeout_ms=3000)
        await producer.write(A, [b"late"])
        await asyncio.sleep(2.5)
        assert host.broker.transactions.transaction("id").state is TransactionState.ONGOING
        await asyncio.sleep(2.0)
        assert host.broker.transactions.transaction("id").state is TransactionState.COMPLETE_ABORT
        assert _is_stable(host)
        with pytest.raises(ProducerFencedError):
            await producer.end(commit=True)

    _run(scenario)


def test_after_a_start_open_transactions_get_a_while_before_they_time_out() -> None:
    async def scenario(host: SimBroker) -> None:
        producer = SimProducer(host, "id", version=TRANSACTIONS_V1)
        await producer.initialise(timeout_ms=3000)
        await producer.write(A, [b"v"])
        host.process.crash()
        await asyncio.sleep(60.0)
        await host.start()
        await asyncio.sleep(5.0)
        await producer.end(commit=True)
        assert await _values(host) == [[b"v"], []]

    _run(scenario, TransactionOptions(restart_grace_s=10.0))


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_transaction_cannot_ask_for_any_time_it_likes(timeout_ms: int) -> None:
    async def scenario(host: SimBroker) -> None:
        with pytest.raises(InvalidTransactionTimeoutError):
            await host.do(host.broker.transactions.initialise("id", timeout_ms))

    _run(scenario)


def test_ids_that_nobody_uses_are_forgotten() -> None:
    async def scenario(host: SimBroker) -> None:
        producer = await _begun(host)
        await producer.end(commit=True)
        open_one = await _begun(host, "open")
        await asyncio.sleep(150.0)
        with pytest.raises(UnknownProducerError):
            await producer.write(A, [b"v"])
        await host.restart()
        assert [one.transactional_id for one in host.broker.transactions.transactions()] == ["open"]
        await open_one.end(commit=True)

    _run(scenario, TransactionOptions(id_expiration_s=100.0, expiry_interval_s=20.0, timeout_max_s=900.0))


def test_a_topic_deleted_meanwhile_does_not_hold_up_the_end() -> None:
    async def scenario(host: SimBroker) -> None:
        producer = await _begun(host)
        await producer.set_position("group", B, 1)
        await host.do(host.broker.delete_topic("b"))
        await producer.end(commit=True)
        assert (await read_committed(host.partition(*A))).values == [b"v"]
        assert host.broker.transactions.transaction("id").state is TransactionState.COMPLETE_COMMIT
        assert host.broker.consumers.positions("group") == {}

    _run(scenario)


def test_a_partition_out_of_reach_is_waited_for() -> None:
    async def scenario(host: SimBroker) -> None:
        producer = await _begun(host)
        host.node.faults.error_rate = {"flush": 0.5}
        for _ in range(20):
            with contextlib.suppress(UnavailableError):
                await producer.end(commit=True)
                break
            await asyncio.sleep(0.5)
        host.node.faults.error_rate = {}
        await asyncio.sleep(10.0)
        await producer.end(commit=True)
        assert _is_stable(host)
        assert await _values(host) == [[b"v"]] * 2

    _run(scenario)


class TestSeveralAsOne:
    def test_all_are_committed_with_the_record(self) -> None:
        async def scenario(host: SimBroker) -> None:
            ends = [TransactionCommit(name, (await _begun(host, name, values=(name.encode(),))).identity) for name in ("x", "y")]
            transactions = host.broker.transactions
            assert await host.do(transactions.commit_together(ends, RECORD, expected=None)) == (
                CommitOutcome.NOW,
                {name: Producer(producer.id, producer.epoch + 1) for name, producer in ends},
            )
            assert await _values(host) == [[b"x", b"y"]] * 2
            assert transactions.application_record(RECORD[0]) == RECORD[1]
            await host.restart()
            assert host.broker.transactions.application_record(RECORD[0]) == RECORD[1]

        _run(scenario)

    def test_done_once_more_it_changes_nothing(self) -> None:
        async def scenario(host: SimBroker) -> None:
            first = await _begun(host, "x", values=(b"first",))
            transactions = host.broker.transactions
            await host.do(transactions.commit_together([TransactionCommit("x", first.identity)], RECORD, expected=None))
            repeated = await _begun(host, "y", values=(b"again",))
            again = transactions.commit_together([TransactionCommit("y", repeated.identity)], RECORD, expected=None)
            assert await host.do(again) == (CommitOutcome.BEFORE, {})
            assert transactions.transaction("y").state is TransactionState.ONGOING
            await repeated.end(commit=False)
            assert await _values(host) == [[b"first"]] * 2

        _run(scenario)

    def test_it_is_refused_if_another_has_committed_in_between(self) -> None:
        async def scenario(host: SimBroker) -> None:
            transactions = host.broker.transactions
            await host.do(transactions.commit_together([], (RECORD[0], b"other"), expected=None))
            producer = await _begun(host, "x")
            with pytest.raises(RecordConflictError):
                await host.do(transactions.commit_together([TransactionCommit("x", producer.identity)], RECORD, expected=None))
            assert transactions.transaction("x").state is TransactionState.ONGOING
            done = transactions.commit_together([TransactionCommit("x", producer.identity)], RECORD, expected=b"other")
            assert (await host.do(done))[0] is CommitOutcome.NOW

        _run(scenario)

    def test_an_empty_value_removes_the_record(self) -> None:
        async def scenario(host: SimBroker) -> None:
            transactions = host.broker.transactions
            key, value = RECORD
            await host.do(transactions.commit_together([], RECORD, expected=None))
            assert (await host.do(transactions.commit_together([], (key, b""), expected=value)))[0] is CommitOutcome.NOW
            assert transactions.application_record(key) is None
            assert (await host.do(transactions.commit_together([], (key, b""), expected=value)))[0] is CommitOutcome.BEFORE

        _run(scenario)

    def test_if_one_is_lost_none_is_committed(self) -> None:
        async def scenario(host: SimBroker) -> None:
            good, lost = await _begun(host, "x"), await _begun(host, "y")
            heir = SimProducer(host, "y", version=TRANSACTIONS_V1)
            await heir.initialise()
            ends = [TransactionCommit("x", good.identity), TransactionCommit("y", lost.identity)]
            with pytest.raises(ProducerFencedError):
                await host.do(host.broker.transactions.commit_together(ends, RECORD, expected=None))
            assert host.broker.transactions.application_record(RECORD[0]) is None
            await good.end(commit=False)
            assert await _values(host) == [[], []]

        _run(scenario)

    def test_what_was_aborted_by_itself_is_not_taken_for_empty(self) -> None:
        async def scenario(host: SimBroker) -> None:
            producer = await _begun(host, "x")
            await producer.end(commit=False)
            with pytest.raises(InvalidTransactionStateError):
                await host.do(
                    host.broker.transactions.commit_together([TransactionCommit("x", producer.identity)], RECORD, expected=None)
                )

        _run(scenario)

    def test_one_that_wrote_nothing_is_let_pass(self) -> None:
        async def scenario(host: SimBroker) -> None:
            idle = SimProducer(host, "idle", version=TRANSACTIONS_V1)
            await idle.initialise()
            producer = await _begun(host, "x")
            ends = [TransactionCommit("idle", idle.identity), TransactionCommit("x", producer.identity)]
            outcome, owners = await host.do(host.broker.transactions.commit_together(ends, RECORD, expected=None))
            assert outcome is CommitOutcome.NOW
            assert owners["idle"] == idle.identity
            assert await _values(host) == [[b"v"]] * 2

        _run(scenario)

    def test_two_producers_of_one_id_are_refused(self) -> None:
        async def scenario(host: SimBroker) -> None:
            ends = [TransactionCommit("x", Producer(1, 0)), TransactionCommit("x", Producer(1, 1))]
            with pytest.raises(InvalidRequestError):
                await host.do(host.broker.transactions.commit_together(ends, RECORD, expected=None))

        _run(scenario)

    def test_prepared_work_survives_a_crash_and_is_not_aborted_before_its_time(self) -> None:
        async def scenario(host: SimBroker) -> None:
            producer = SimProducer(host, "x", version=TRANSACTIONS_V1)
            await producer.initialise(timeout_ms=600_000)
            await producer.write(A, [b"v"])
            await host.restart()
            await asyncio.sleep(500.0)
            done = host.broker.transactions.commit_together([TransactionCommit("x", producer.identity)], RECORD, expected=None)
            assert (await host.do(done))[0] is CommitOutcome.NOW
            assert await _values(host) == [[b"v"], []]

        _run(scenario)


def test_a_request_during_an_end_that_takes_long_is_told_to_come_back() -> None:
    async def scenario(host: SimBroker) -> None:
        producer = await _begun(host)
        await host.break_tablet("b")
        tablets = host.broker.tablets
        keeper = tablets._hosted[host.topic("b").tablets[0]].keeper
        assert keeper is not None
        keeper.cancel()  # it is not started again
        await producer.end(commit=True)  # decided; the markers are still to come
        assert host.broker.transactions.transaction("id").state is TransactionState.PREPARE_COMMIT
        with pytest.raises(ConcurrentTransactionsError):
            await producer.write(A, [b"next"])
        await host.restart()
        await producer.write(A, [b"next"])
        await producer.end(commit=True)
        assert await _values(host) == [[b"v", b"next"], [b"v"]]

    _run(scenario)
