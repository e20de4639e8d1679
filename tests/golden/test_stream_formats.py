"""Stored bytes of streams, pinned: data written by an older Penstock must stay readable.

A file here changes only together with the version in its format and code that still reads the old one.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from penstock.broker.streams.payload_store import PayloadStore
from penstock.broker.streams.positions import DeliveryRule, Positions
from penstock.broker.streams.records import Content, Payload, StoredMessage, batch_of, messages_of
from penstock.broker.streams.sequence_index import Run, SubjectRuns
from penstock.broker.streams.sequencer import Subject
from penstock.broker.system_tablet import SystemTablet
from penstock.core.errors import ConfigError
from penstock.tablet import KvTablet
from tests.sim_tablet import SimNode, on_node

FOLDER = Path(__file__).parent
TOPIC = UUID(int=0x0102030405060708090A0B0C0D0E0F10)
RUN = Run(0x0102030405060708, 9, 0x1112131415161718, 0x21222324)
CONTENTS = [
    Content(b"hello", {"content-type": "text/plain", "Müller": "ü"}),
    Content(b"", {}),
    Content(b"", {"a": "b"}, Payload("orders/0102", 12345678901, 0x01020304)),
    Content(b"", {}, Payload("minio/orders/1.json")),
]


def _pinned(name: str) -> str:
    return (FOLDER / f"{name}.hex").read_text().strip()


def _dump(tablet: KvTablet) -> str:
    """All keys with their values, a line each."""
    return "\n".join(f"{key.hex()} {(tablet.head(key) or b'').hex()}" for key in tablet.keys(b"", None))


def test_a_run_of_sequences_is_stored_as_ever() -> None:
    assert f"{RUN.key.hex()} {RUN.pack().hex()}" == _pinned("stream_run")
    key, raw = (bytes.fromhex(part) for part in _pinned("stream_run").split())
    assert Run.unpack(key, raw) == RUN
    with pytest.raises(ConfigError, match="upgrade"):
        Run.unpack(key, b"\2" + raw[1:])


def test_a_subject_is_stored_as_ever() -> None:
    subject = Subject(0x01020304, "orders.eu", TOPIC, SubjectRuns())
    assert f"{subject.key.hex()} {subject.pack().hex()}" == _pinned("stream_subject")


def test_messages_are_stored_as_ever() -> None:
    batch = batch_of(CONTENTS, 1_700_000_000_123)
    assert batch.hex() == _pinned("stream_batch_marked")
    _check_contents(list(messages_of(memoryview(batch), 0, 10)))
    # What was written before batches were marked is read as well, up to where marks begin.
    _check_contents(list(messages_of(memoryview(bytes.fromhex(_pinned("stream_batch"))), 0, 10, marked_from=10)))


def _check_contents(found: list[StoredMessage]) -> None:
    assert [(one.data, one.payload) for one in found] == [(content.data, content.payload) for content in CONTENTS]
    assert found[0].headers == CONTENTS[0].headers
    assert found[2].headers["a"] == "b"


def test_positions_are_stored_as_ever() -> None:
    async def scenario(node: SimNode) -> str:
        tablet = await node.kv(1)
        positions = Positions(tablet)
        await positions.move("worker", "orders", 0x0102030405060708)
        await positions.set_rule("Müller", "orders.eu", DeliveryRule(30.5, 7, "dead"))
        await positions.acknowledge_beyond("Müller", "orders.eu", 5, [7, 0x0102030405060708], [])
        again = Positions(tablet)
        assert again.position("worker", "orders") == 0x0102030405060708
        assert again.rule("Müller", "orders.eu") == DeliveryRule(30.5, 7, "dead")
        assert again.acknowledged_beyond("Müller", "orders.eu") == [7, 0x0102030405060708]
        return _dump(tablet)

    assert on_node(scenario) == _pinned("stream_positions")


def test_payloads_are_stored_as_ever() -> None:
    async def scenario(node: SimNode) -> str:
        tablet = await SystemTablet.start(node.tablet(), clock=node.clock, random=Random(1))
        store = PayloadStore(tablet, Random(7))
        claimed, expected = store.begin(TOPIC), store.begin(TOPIC)
        for upload in (claimed, expected):
            await upload.append(b"payload")
            await upload.finish()
        await store.claim(claimed.object_id, TOPIC, 0x0102030405060708)
        await store.expect_message(expected, 0x1112131415161718)
        dumped = _dump(tablet.latest)
        await tablet.stop()
        return dumped

    assert on_node(scenario) == _pinned("stream_payloads")
