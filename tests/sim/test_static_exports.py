"""Exports of queues in simulated time: every row is in one table, once, whenever the node dies; trimming waits; tables expire."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from penstock.broker import Position, TopicPartition
from penstock.broker.namespace import Kind, Node, consumer_name
from penstock.broker.registrations import Ref, Registration
from penstock.core.errors import PenstockError
from penstock.testing.batches import make_batch, values_of
from penstock.testing.sim_loop import run_simulation
from tests.sim_broker import SimBroker, SimProducer, Write

HERE = "penstock"
QUEUE, DIRECTORY, CONSUMER = "//tmp/queue", "//tmp/exports", "//tmp/consumer"
PERIOD_S = 10


class Exported:
    """A queue with an export, and what its tables hold."""

    def __init__(self, host: SimBroker) -> None:
        self.host = host

    async def make(self, partitions: int = 1, **more: Any) -> None:
        namespace = self.host.broker.namespace
        await self.host.do(namespace.create(QUEUE, Kind.QUEUE, {}, partitions=partitions, mounted=True))
        await self.host.do(namespace.create(DIRECTORY, Kind.FOLDER, {}))
        await self.set("static_export_config", self.config(**more))

    @staticmethod
    def config(**more: Any) -> dict[str, Any]:
        return {"main": {"export_directory": DIRECTORY, "export_period": PERIOD_S * 1000, **more}}

    async def set(self, name: str, value: Any, path: str = QUEUE) -> None:
        await self.host.do(self.host.broker.namespace.set_attributes(path, {name: json.dumps(value).encode()}))

    async def write(self, *values: bytes, number: int = 0) -> None:
        now_ms = int(self.host.node.clock.wall() * 1000)
        batch = make_batch(list(values), timestamp=now_ms)
        await self.host.do(self.host.broker.produce(self.host.topic("tmp.queue"), number, batch))

    def tables(self) -> list[Node]:
        namespace = self.host.broker.namespace
        return [namespace.node(f"{DIRECTORY}/{name}") for name in namespace.children(DIRECTORY)]

    async def rows(self) -> list[bytes]:
        """The rows of all tables, one after another."""
        found: list[bytes] = []
        for table in self.tables():
            own = 0
            for chunk in self.host.broker.tables.chunks(table.id):
                raw = await self.host.do(self.host.broker.tables.read(table.id, chunk))
                values = [value for offset, value in values_of(raw) if chunk.first <= offset < chunk.next_offset]
                assert len(values) == chunk.rows
                found += values
                own += chunk.rows
            assert own == int(table.attributes["row_count"])
        return found

    async def pass_(self, periods: float = 1.5) -> None:
        await asyncio.sleep(periods * PERIOD_S)

    def status(self) -> dict[str, Any]:
        node = self.host.broker.namespace.node(QUEUE)
        return self.host.broker.queue_agent.queue_status(node, has_timestamp=False, has_weight=False)


def test_rows_are_exported_once_each_period() -> None:
    async def scenario() -> None:
        exported = Exported(await SimBroker().start())
        await exported.make(partitions=2)
        await exported.write(b"1", b"2")
        await exported.write(b"3", number=1)
        await exported.pass_()
        assert await exported.rows() == [b"1", b"2", b"3"]
        await exported.pass_(3)
        assert len(exported.tables()) == 1  # no rows, no table
        await exported.write(b"4")
        await exported.pass_()
        assert await exported.rows() == [b"1", b"2", b"3", b"4"]
        begins = [int(table.name.split("-")[0]) for table in exported.tables()]
        assert all(begin % PERIOD_S == 0 for begin in begins)
        progress = exported.status()["exports"]["main"]["progress"]
        assert progress["last_exported_fragment_unix_ts"] == begins[-1] + PERIOD_S
        assert {number: one["row_count"] for number, one in progress["tablets"].items()} == {"0": 3, "1": 1}
        await exported.host.stop()

    run_simulation(scenario(), seed=1)


@pytest.mark.parametrize("step", range(0, 78, 2))
def test_wherever_the_node_dies_each_row_is_in_one_table_once(step: int) -> None:
    async def scenario() -> None:
        exported = Exported(await SimBroker().start())
        await exported.make(partitions=2)
        for number in range(8):
            await exported.write(b"%d" % number + bytes(1_500_000), number=number % 2)
        await asyncio.sleep(PERIOD_S - exported.host.node.clock.wall() % PERIOD_S - 0.1)
        assert exported.tables() == []
        exported.host.process.crash_at_step(exported.host.process.steps + step)
        await asyncio.sleep(5)
        await exported.host.restart()
        await exported.pass_(2)
        assert sorted(row[:1] for row in await exported.rows()) == [b"%d" % number for number in range(8)]
        # Nothing is left of tables that did not come to be.
        assert exported.host.broker.tables.tables() == {table.id for table in exported.tables()}
        await exported.host.stop()

    run_simulation(scenario(), seed=step)


@pytest.mark.parametrize("tablet", range(5))
def test_an_export_goes_on_when_a_tablet_starts_again(tablet: int) -> None:
    async def scenario() -> None:
        exported = Exported(await SimBroker().start())
        await exported.make()
        for round_ in range(4):
            await exported.write(b"%d" % round_)
            await asyncio.sleep(PERIOD_S - exported.host.node.clock.wall() % PERIOD_S)
            await exported.host.break_system_tablet(tablet)
            await exported.pass_(2)
        assert sorted(await exported.rows()) == [b"0", b"1", b"2", b"3"]
        assert exported.host.broker.tables.tables() == {table.id for table in exported.tables()}
        await exported.host.stop()

    run_simulation(scenario(), seed=tablet)


def test_only_committed_rows_are_exported() -> None:
    async def scenario() -> None:
        exported = Exported(await SimBroker().start())
        await exported.make()
        producer = SimProducer(exported.host, "writer", version=1)
        await producer.initialise()
        await producer.write(Write("tmp.queue", 0), [b"gone"])
        await producer.end(commit=False)
        await producer.write(Write("tmp.queue", 0), [b"here"])
        await exported.pass_(2)
        assert await exported.rows() == []  # it is not committed yet, and what is before it has nothing
        await producer.end(commit=True)
        await exported.pass_(2)
        assert await exported.rows() == [b"here"]
        await exported.host.stop()

    run_simulation(scenario(), seed=1)


def test_trimming_and_retention_wait_for_an_export() -> None:
    async def scenario() -> None:
        exported = Exported(await SimBroker().start())
        await exported.make(export_period=3600_000)
        broker = exported.host.broker
        consumer = await exported.host.do(broker.namespace.create(CONSUMER, Kind.CONSUMER, {}, mounted=True))
        await exported.host.do(broker.registrations.register(Registration(Ref(HERE, QUEUE), Ref(HERE, CONSUMER), vital=True)))
        await exported.write(b"1", b"2")
        place = TopicPartition(exported.host.topic("tmp.queue").id, 0)
        await exported.host.do(broker.consumers.commit(consumer_name(consumer), [(place, Position(2))]))
        await exported.set("auto_trim_config", {"enable": True})
        await asyncio.sleep(5)
        partition = exported.host.partition("tmp.queue", 0)
        assert (partition.start_offset, broker.needed_from(exported.host.topic("tmp.queue"), 0)) == (0, 0)
        await asyncio.sleep(3700)
        assert await exported.rows() == [b"1", b"2"]
        assert exported.host.partition("tmp.queue", 0).start_offset == 2
        # An export that cannot be made needs everything.
        await exported.write(b"3")
        await exported.host.do(broker.consumers.commit(consumer_name(consumer), [(place, Position(3))]))
        await exported.host.do(broker.namespace.remove(DIRECTORY, recursive=True))
        await asyncio.sleep(3700)
        assert exported.host.partition("tmp.queue", 0).start_offset == 2
        assert "no directory" in exported.status()["exports"]["main"]["error"]["message"]
        assert "queue_agent_queue_controller_static_export_failed" in exported.status()["alerts"]
        # It goes on by itself when that is put right.
        await exported.host.do(broker.namespace.create(DIRECTORY, Kind.FOLDER, {}))
        await asyncio.sleep(120)
        assert await exported.rows() == [b"3"]
        assert exported.host.partition("tmp.queue", 0).start_offset == 3
        assert exported.status()["exports"]["main"]["failure_count"] == 0
        await exported.host.stop()

    run_simulation(scenario(), seed=1)


def test_tables_go_when_their_time_is_over() -> None:
    async def scenario() -> None:
        exported = Exported(await SimBroker().start())
        await exported.make(export_ttl=60_000)
        await exported.write(b"1")
        await exported.pass_()
        assert len(exported.tables()) == 1
        await asyncio.sleep(70)
        assert exported.tables() == []
        assert exported.host.broker.tables.tables() == set()
        await exported.write(b"2")
        await exported.pass_()
        assert await exported.rows() == [b"2"]  # progress is not that of the tables
        await exported.host.stop()

    run_simulation(scenario(), seed=1)


def test_a_large_export_is_copied_in_chunks() -> None:
    async def scenario() -> None:
        exported = Exported(await SimBroker().start())
        await exported.make()
        for number in range(12):
            await exported.write(b"%02d" % number + bytes(1 << 20))
        await exported.pass_()
        [table] = exported.tables()
        chunks = exported.host.broker.tables.chunks(table.id)
        assert len(chunks) >= 3
        assert max(chunk.size for chunk in chunks) < 6 << 20
        assert [row[:2] for row in await exported.rows()] == [b"%02d" % number for number in range(12)]
        await exported.host.stop()

    run_simulation(scenario(), seed=1)


def test_rows_that_were_trimmed_before_are_told_and_half_a_batch_is_exported() -> None:
    async def scenario() -> None:
        exported = Exported(await SimBroker().start())
        await exported.make()
        await exported.write(b"1", b"2", b"3")
        await exported.host.do(exported.host.partition("tmp.queue", 0).trim(2))
        await exported.pass_()
        assert await exported.rows() == [b"3"]
        assert exported.status()["exports"]["main"]["progress"]["tablets"]["0"]["lost_row_count"] == 2
        await exported.host.stop()

    run_simulation(scenario(), seed=1)


def test_a_directory_is_of_one_queue() -> None:
    async def scenario() -> None:
        exported = Exported(await SimBroker().start())
        await exported.make()
        await exported.write(b"1")
        await exported.pass_()
        namespace = exported.host.broker.namespace
        await exported.host.do(namespace.create("//tmp/other", Kind.QUEUE, {}, mounted=True))
        await exported.set("static_export_config", exported.config(), "//tmp/other")
        await exported.host.do(
            exported.host.broker.produce(exported.host.topic("tmp.other"), 0, make_batch([b"x"], timestamp=1000))
        )
        await exported.pass_(3)
        assert await exported.rows() == [b"1"]
        other = exported.host.broker.queue_agent.queue_status(
            namespace.node("//tmp/other"), has_timestamp=False, has_weight=False
        )
        assert "another queue" in other["exports"]["main"]["error"]["message"]
        await exported.host.stop()

    run_simulation(scenario(), seed=1)


def test_two_tables_of_one_name_are_an_error_that_is_told() -> None:
    async def scenario() -> None:
        exported = Exported(await SimBroker().start())
        await exported.make(output_table_name_pattern="always-the-same")
        await exported.write(b"1")
        await exported.pass_()
        await exported.write(b"2")
        await exported.pass_()
        assert await exported.rows() == [b"1"]
        assert "already" in exported.status()["exports"]["main"]["error"]["message"]
        await exported.set("static_export_config", exported.config(output_table_name_pattern="%ISO"))
        await exported.pass_(2)
        assert sorted(await exported.rows()) == [b"1", b"2"]
        await exported.host.stop()

    run_simulation(scenario(), seed=1)


def test_what_cannot_be_an_export_is_refused() -> None:
    from penstock.broker.queue_agent import exports_of

    good = {"export_directory": DIRECTORY, "export_period": 1000}
    refused: list[Any] = [
        [],
        {"a": 1},
        {"a": {"export_period": 1000}},
        {"a": {"export_directory": "tmp", "export_period": 1000}},
        {"a": {"export_directory": DIRECTORY}},
        {"a": {**good, "export_period": 1500}},
        {"a": {**good, "export_period": 0}},
        {"a": {**good, "export_cron_schedule": "0 * * * *"}},
        {"a": {"export_directory": DIRECTORY, "export_cron_schedule": "every hour"}},
        {"a": {**good, "export_ttl": -1}},
        {"a": {**good, "output_table_name_pattern": "a/b"}},
        {"a": {**good, "surprise": 1}},
        {"a": good, "b": good},
    ]
    for wrong in refused:
        with pytest.raises(PenstockError):
            exports_of(wrong)
    [hourly] = exports_of({"a": {"export_directory": DIRECTORY, "cron": "30 * * * *"}})
    fragment = hourly.schedule.last(7200.5)
    assert (fragment, hourly.table_name(fragment)) == ((1800, 5400), "1800-3600")
    [upper] = exports_of({"a": {**good, "output_table_name_pattern": "%H:%M %ISO", "use_upper_bound_for_table_names": True}})
    assert upper.table_name(fragment) == "01:30 1970-01-01T01:30:00Z"


def test_nothing_is_left_of_an_export_that_was_called_off() -> None:
    async def scenario() -> None:
        exported = Exported(await SimBroker().start())
        await exported.make()
        for number in range(20):
            await exported.write(b"%02d" % number + bytes(1 << 20))
        store = exported.host.broker.tables
        for _ in range(2000):
            if store.tables():
                break
            await asyncio.sleep(0.01)
        assert store.tables()
        assert exported.tables() == []
        await exported.host.do(exported.host.broker.namespace.set_attributes(QUEUE, {}, ["static_export_config"]))
        await asyncio.sleep(5)
        assert (store.tables(), exported.tables()) == (set(), [])
        await exported.host.stop()

    run_simulation(scenario(), seed=1)
