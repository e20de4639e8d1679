"""Commands of YT's clients when the node dies at any step of them: rows, offsets and sessions change together, and once."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from yt import yson

from penstock.core.errors import PenstockError
from penstock.gateway.yt.call import Call
from penstock.gateway.yt.cluster import Cluster
from penstock.gateway.yt.gateway import COMMANDS
from penstock.gateway.yt.peers import Peers
from penstock.gateway.yt.producer_sessions import recover_sessions
from penstock.testing.sim_loop import ProcessDiedError, run_simulation
from tests.sim_broker import SimBroker

QUEUE, CONSUMER, PRODUCER = "//tmp/queue", "//tmp/consumer", "//tmp/producer"
SCHEMA = [{"name": "data", "type": "string"}]


class SimYt:
    """A broker that can be killed, and the commands of the gateway on it."""

    def __init__(self, host: SimBroker) -> None:
        self.host = host
        self._cluster: Cluster

    async def start(self) -> None:
        """Serve the broker that runs now."""
        self._cluster = Cluster("pythia", self.host.broker, Peers({}), clock=self.host.node.clock, random=Random(1))
        await self.host.do(recover_sessions(self.host.broker))

    async def restart(self) -> None:
        """Kill the process and start another."""
        await self.host.restart()
        await self.start()

    async def ask(self, command: str, rows: list[dict[str, Any]] | None = None, **parameters: Any) -> Any:
        """Carry out a command in the process."""
        body = b"" if rows is None else bytes(yson.dumps(rows, yson_type="list_fragment", yson_format="binary"))
        call = Call(self._cluster, command, {"input_format": "yson", "output_format": "yson", **parameters}, body)
        reply = await self.host.do(_carried_out(call))
        return reply.value if reply.rows is None else list(yson.loads(reply.rows, yson_type="list_fragment"))

    async def make(self, tablets: int) -> None:
        """The objects that tests work with."""
        await self.ask(
            "create", type="table", path=QUEUE, attributes={"dynamic": True, "schema": SCHEMA, "tablet_count": tablets}
        )
        await self.ask("create", type="queue_consumer", path=CONSUMER)
        await self.ask("create", type="queue_producer", path=PRODUCER)
        await self.ask("mount_table", path=QUEUE)

    async def data(self, tablet: int) -> list[str]:
        """What a tablet holds."""
        pulled = await self.ask("pull_queue", queue_path=QUEUE, offset=0, partition_index=tablet)
        return [str(row["data"]) for row in pulled]

    async def offsets(self) -> list[int]:
        """Where the consumer stands."""
        return [int(row["offset"]) for row in await self.ask("select_rows", query=f"* from [{CONSUMER}]")]


async def _carried_out(call: Call) -> Any:
    return await COMMANDS[call.name].handler(call)


async def started(tablets: int) -> SimYt:
    yt = SimYt(await SimBroker().start())
    await yt.start()
    await yt.make(tablets)
    return yt


async def settled(yt: SimYt, tablets: int) -> None:
    """Wait until transactions that were decided are carried out, and those that were not have been aborted."""
    for _ in range(2000):
        partitions = [yt.host.partition("tmp.queue", number) for number in range(tablets)]
        if all(partition.stable_offset == partition.end_offset for partition in partitions):
            return
        await asyncio.sleep(0.1)
    raise AssertionError("a transaction is still open")


@pytest.mark.parametrize("step", range(0, 200, 8))
def test_a_transaction_is_there_as_a_whole_or_not_at_all(step: int) -> None:
    async def scenario() -> None:
        yt = await started(tablets=2)
        transaction = (await yt.ask("start_transaction", type="tablet"))["transaction_id"]
        rows = [{"data": "one", "$tablet_index": 0}, {"data": "two", "$tablet_index": 1}]
        await yt.ask("insert_rows", rows, path=QUEUE, transaction_id=transaction)
        advance: dict[str, Any] = {
            "consumer_path": CONSUMER,
            "queue_path": QUEUE,
            "partition_index": 0,
            "old_offset": 0,
            "new_offset": 7,
        }
        await yt.ask("advance_consumer", **advance, transaction_id=transaction)
        yt.host.process.crash_at_step(yt.host.process.steps + step)
        try:
            await yt.ask("commit_transaction", transaction_id=transaction)
            is_told = True
        except ProcessDiedError:
            is_told = False
        await yt.restart()
        await settled(yt, 2)
        found = (await yt.data(0), await yt.data(1), await yt.offsets())
        assert found == (["one"], ["two"], [7]) or (found == ([], [], []) and not is_told)
        await yt.host.stop()

    run_simulation(scenario(), seed=step)


@pytest.mark.parametrize("step", range(0, 120, 8))
@pytest.mark.parametrize("tablets", [1, 2])
def test_rows_that_are_pushed_until_it_succeeds_are_there_once(step: int, tablets: int) -> None:
    async def scenario() -> None:
        yt = await started(tablets=tablets)
        session: dict[str, Any] = {"producer_path": PRODUCER, "queue_path": QUEUE, "session_id": "s"}
        epoch = (await yt.ask("create_queue_producer_session", **session))["epoch"]
        numbers = [[1, 2], [4, 7], [8]]
        yt.host.process.crash_at_step(yt.host.process.steps + step)
        for part in numbers:
            while True:
                rows = [{"data": str(each), "$sequence_number": each, "$tablet_index": each % tablets} for each in part]
                try:
                    pushed = await yt.ask("push_queue_producer", rows, **session, epoch=epoch)
                except ProcessDiedError:
                    await yt.restart()
                except PenstockError:
                    await asyncio.sleep(0.1)
                else:
                    assert pushed["last_sequence_number"] == part[-1]
                    break
        await yt.restart()
        await settled(yt, tablets)
        found = [int(each) for number in range(tablets) for each in await yt.data(number)]
        assert sorted(found) == [1, 2, 4, 7, 8]
        await yt.host.stop()

    run_simulation(scenario(), seed=step)
