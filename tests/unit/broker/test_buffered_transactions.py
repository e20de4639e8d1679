"""Transactions that are gathered in memory: all or nothing, over restarts, expired ids and expired transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import pytest

from penstock.broker import Position, TopicPartition
from penstock.broker import buffered_transactions as module
from penstock.broker.buffered_transactions import (
    BufferedTransactions,
    Changes,
    NoSuchTransactionError,
    TransactionLimitError,
    UnsettledPositionsError,
)
from penstock.broker.transactions import Producer, TransactionOptions
from penstock.core.errors import InvalidRequestError
from penstock.gateway.ydb.query_sessions import _BatchWriter
from penstock.gateway.ydb.written_batch import WrittenBatch
from penstock.testing.batches import make_batch
from penstock.testing.sim_loop import ProcessDiedError, run_simulation
from tests.sim_broker import PROMPT, SimBroker, Write, read_committed

A, B = Write("a", 0), Write("b", 1)


class Buffered:
    """The transactions of a gateway on a broker that can be killed."""

    def __init__(self, host: SimBroker) -> None:
        self.host = host
        self.transactions = self._of_broker()

    def _of_broker(self) -> BufferedTransactions[WrittenBatch]:
        broker = self.host.broker
        return BufferedTransactions(broker.commits, _BatchWriter(broker), broker.clock, bytes_max_each=1 << 20)

    def queue(self, place: Write) -> TopicPartition:
        return TopicPartition(self.host.topic(place.topic).id, place.number)

    def changes(self, *values: bytes, places: tuple[Write, ...] = (A, B), position: int | None = None) -> Changes[WrittenBatch]:
        found = Changes[WrittenBatch]()
        now_ms = int(self.host.node.clock.wall() * 1000)
        for place in places:
            found.add(self.queue(place), [WrittenBatch(make_batch([value], timestamp=now_ms), 1) for value in values])
        if position is not None:
            found.set_position("consumer", self.queue(A), Position(position))
        return found

    async def commit(self, changes: Changes[WrittenBatch]) -> None:
        await self.host.do(self.transactions.carry_out(changes))

    async def restart(self) -> None:
        await self.host.restart()
        self.transactions = self._of_broker()

    async def values(self) -> list[list[bytes]]:
        return [(await read_committed(self.host.partition(*place))).values for place in (A, B)]

    def offset(self) -> int:
        position = self.host.broker.consumers.position("consumer", self.queue(A))
        return -1 if position is None else position.offset


Scenario = Callable[[Buffered], Coroutine[Any, Any, None]]


def run(scenario: Scenario, options: TransactionOptions = PROMPT) -> None:
    async def main() -> None:
        host = await SimBroker(options).start()
        for name in ("a", "b"):
            await host.do(host.broker.create_topic(name, 2))
        await scenario(Buffered(host))
        await host.stop()

    run_simulation(main())


def test_changes_take_effect_together() -> None:
    async def scenario(buffered: Buffered) -> None:
        await buffered.commit(buffered.changes(b"1", b"2", position=7))
        assert (await buffered.values(), buffered.offset()) == ([[b"1", b"2"]] * 2, 7)

        def fail() -> None:
            raise InvalidRequestError("it is not so any more")

        changes = buffered.changes(b"3", position=8)
        changes.checks.append(fail)
        with pytest.raises(InvalidRequestError):
            await buffered.commit(changes)
        assert (await buffered.values(), buffered.offset()) == ([[b"1", b"2"]] * 2, 7)

    run(scenario)


def test_transactional_ids_that_expired_are_replaced_without_failing_a_commit() -> None:
    async def scenario(buffered: Buffered) -> None:
        # Several at once, so that the pool has several ids.
        await asyncio.gather(*(buffered.commit(buffered.changes(b"%d" % number)) for number in range(3)))
        known = {one.transactional_id for one in buffered.host.broker.transactions.transactions()}
        assert len(known) == 3
        await asyncio.sleep(200)
        assert buffered.host.broker.transactions.transactions() == [], "they are forgotten"
        for number in range(3, 6):
            await buffered.commit(buffered.changes(b"%d" % number))
        assert [sorted(found) for found in await buffered.values()] == [[b"%d" % number for number in range(6)]] * 2

    run(scenario, TransactionOptions(id_expiration_s=100.0, expiry_interval_s=20.0, restart_grace_s=0.0))


def test_ids_are_used_again_also_after_a_restart() -> None:
    async def scenario(buffered: Buffered) -> None:
        for number in range(5):
            await buffered.commit(buffered.changes(b"%d" % number))
        await buffered.restart()
        await buffered.commit(buffered.changes(b"5"))
        assert [one.transactional_id for one in buffered.host.broker.transactions.transactions()] == ["\1tx:1"]
        await buffered.host.break_system_tablet(2)
        await asyncio.sleep(5)
        await buffered.commit(buffered.changes(b"6"))
        assert await buffered.values() == [[b"%d" % number for number in range(7)]] * 2

    run(scenario)


@pytest.mark.parametrize("prefix", [module.ID_PREFIX, *module.OLD_PREFIXES])
def test_what_a_killed_process_left_open_is_settled_at_the_start(prefix: str) -> None:
    async def scenario(buffered: Buffered) -> None:
        host = buffered.host
        coordinator = host.broker.transactions
        producer = await host.do(coordinator.initialise(f"{prefix}7", 60_000))
        queues = frozenset(buffered.queue(place) for place in (A, B))
        await host.do(coordinator.add(f"{prefix}7", producer, queues=queues))
        parts = [WrittenBatch(make_batch([b"never committed"]), 1)]
        await host.do(_BatchWriter(host.broker).write(buffered.queue(A), parts, producer))
        await buffered.restart()
        await asyncio.sleep(5)  # far less than its timeout
        await buffered.commit(buffered.changes(b"after"))
        assert await buffered.values() == [[b"after"]] * 2

    run(scenario)


@pytest.mark.parametrize("step", range(0, 120, 6))
def test_wherever_the_node_dies_a_commit_is_there_as_a_whole_or_not_at_all(step: int) -> None:
    async def scenario(buffered: Buffered) -> None:
        buffered.host.process.crash_at_step(buffered.host.process.steps + step)
        whole: object = ([[b"1"]] * 2, 7)
        nothing: object = ([[], []], -1)
        allowed: tuple[object, ...] = (whole,)
        try:
            await buffered.commit(buffered.changes(b"1", position=7))
        except ProcessDiedError:
            allowed = (whole, nothing)
        await buffered.restart()
        await asyncio.sleep(10)
        assert (await buffered.values(), buffered.offset()) in allowed

    run(scenario)


def test_positions_of_a_transaction_that_is_not_ended_are_not_set() -> None:
    async def scenario(buffered: Buffered) -> None:
        host = buffered.host
        coordinator = host.broker.transactions
        producer: Producer = await host.do(coordinator.initialise("of Kafka", 600_000))
        staged = [(buffered.queue(A), Position(3))]
        await host.do(coordinator.set_positions("of Kafka", producer, "consumer", staged, adds_group=True))
        with pytest.raises(UnsettledPositionsError):
            await buffered.commit(buffered.changes(position=4, places=()))
        assert buffered.offset() == -1

    run(scenario)


def test_a_transaction_ends_when_it_is_not_used() -> None:
    async def scenario(buffered: Buffered) -> None:
        transactions = buffered.transactions
        transactions.start("one", 10.0)
        transactions.gather("one", buffered.changes(b"1"))
        await asyncio.sleep(9)
        transactions.ping("one")
        await asyncio.sleep(9)
        transactions.gather("one", buffered.changes(b"2"))
        await asyncio.sleep(11)
        with pytest.raises(NoSuchTransactionError):
            transactions.gather("one", buffered.changes(b"3"))
        with pytest.raises(NoSuchTransactionError):
            await transactions.commit("one")
        transactions.start("two", 10.0)
        transactions.gather("two", buffered.changes(b"4"))
        await buffered.host.do(transactions.commit("two"))
        assert await buffered.values() == [[b"4"]] * 2
        for ended in ("two", "never begun"):
            with pytest.raises(NoSuchTransactionError):
                transactions.abort(ended)

    run(scenario)


class Large(NamedTuple):
    size: int


def test_what_is_gathered_is_bounded() -> None:
    async def scenario(buffered: Buffered) -> None:
        transactions: BufferedTransactions[Any] = buffered.transactions
        queue = buffered.queue(A)
        transactions.start("one", 10.0)
        transactions.gather("one", Changes({queue: [Large(1 << 20)]}))
        with pytest.raises(TransactionLimitError, match="commit more often"):
            transactions.gather("one", Changes({queue: [Large(1)]}))
        for number in range(module.BYTES_MAX // (1 << 20) - 1):
            transactions.start(str(number), 10.0)
            transactions.gather(str(number), Changes({queue: [Large(1 << 20)]}))
        transactions.start("last", 10.0)
        with pytest.raises(TransactionLimitError, match="open transactions hold"):
            transactions.gather("last", Changes({queue: [Large(1)]}))
        transactions.abort("one")
        transactions.gather("last", Changes({queue: [Large(1)]}))
        for wrong_s in (0.0, -1.0, 1e9):
            with pytest.raises(InvalidRequestError, match="timeout"):
                transactions.start("wrong", wrong_s)

    run(scenario)
