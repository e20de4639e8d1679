"""Stored bytes of static tables, of the progress of exports, of remembered answers and of leases, pinned: they stay readable.

What is here changes only together with the version in its format and code that still reads the old one.
"""

from __future__ import annotations

from uuid import UUID

from penstock.broker import TopicPartition
from penstock.broker.leases import LeaseKey, LeaseOptions, Leases
from penstock.broker.queue_agent.export_progress import ExportProgress, TabletProgress
from penstock.broker.table_store import Chunk, TableStore
from penstock.gateway.yt.response_keeper import KeptResponse, ResponseKeeper
from penstock.testing.sim_loop import run_simulation
from tests.sim_broker import SimBroker

CHUNK = Chunk(partition=1, first=2, next_offset=5, rows=3, size=4)
CHUNK_KEY = bytes.fromhex("63312d322d33303139312d3400000000010000000000000002")
CHUNK_HEAD = bytes.fromhex("01000000000000000500000000000000030000000000000004")
PROGRESS = ExportProgress("1-2-30191-4", 1700000000, 1700000000123, {0: TabletProgress(7, 1699999999999, 2)})
PROGRESS_RAW = (
    b'{"queue_object_id": "1-2-30191-4", "last_exported_fragment_unix_ts": 1700000000, '
    b'"last_successful_export_unix_ts": 1700000000, '
    b'"tablets": {"0": {"row_count": 7, "max_timestamp": 1699999999999, "lost_row_count": 2}}, "stored_ms": 1700000000123}'
)
LEASE_KEY = b"l" + bytes(15) + b"\x07" + b"ann"
LEASE_HEAD = bytes.fromhex("010000ea60000473" + "63616e" + "00" * 15 + "05" + "00000003" + "0000000000000009")
ANSWER_HEAD = bytes.fromhex("010000000a") + b'{"A": "b"}' + b"body"


def test_a_chunk_of_a_static_table() -> None:
    async def scenario() -> None:
        host = await SimBroker().start()
        tablet = await host.do(host.broker.system_tablet(77))
        store = TableStore(tablet)
        await host.do(store.append("1-2-30191-4", CHUNK, [b"da", b"ta"]))
        assert list(tablet.keys(b"", None)) == [CHUNK_KEY]
        assert tablet.head(CHUNK_KEY) == CHUNK_HEAD
        assert store.chunks("1-2-30191-4") == [CHUNK]
        assert bytes(await host.do(store.read("1-2-30191-4", CHUNK))) == b"data"
        await host.stop()

    run_simulation(scenario(), seed=1)


def test_the_progress_of_an_export() -> None:
    assert PROGRESS.pack() == PROGRESS_RAW
    assert ExportProgress.unpack(PROGRESS_RAW) == PROGRESS


def test_a_remembered_answer() -> None:
    async def scenario() -> None:
        host = await SimBroker().start()
        tablet = await host.do(host.broker.system_tablet(77))
        answers = ResponseKeeper(tablet, host.node.clock)
        await host.do(answers.begin("user/1-2-3-4"))
        answers.end("user/1-2-3-4", KeptResponse(b"body", {"A": "b"}))
        await host.do(answers.stop())
        [key] = tablet.keys(b"", None)
        assert (len(key), key[:1], key[9:].hex()) == (25, b"m", "8920899e9689f7a7d7165165438b1d32")
        assert tablet.head(key) == ANSWER_HEAD
        await host.stop()

    run_simulation(scenario(), seed=1)


def test_a_lease() -> None:
    async def scenario() -> None:
        host = await SimBroker().start()
        tablet = await host.do(host.broker.system_tablet(77))
        key, held = LeaseKey(UUID(int=7), "ann"), {TopicPartition(UUID(int=5), 3): 9}
        await host.do(Leases(tablet, LeaseOptions(), host.node.clock).take(key, "scan", 60.0, held))
        assert list(tablet.keys(b"", None)) == [LEASE_KEY]
        assert tablet.head(LEASE_KEY) == LEASE_HEAD
        (lease,) = Leases(tablet, LeaseOptions(), host.node.clock)
        assert (lease.owner, lease.duration_s, lease.positions) == ("scan", 60.0, held)
        await host.stop()

    run_simulation(scenario(), seed=1)
