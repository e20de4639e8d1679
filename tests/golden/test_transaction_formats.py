"""The stored forms of transactional ids and of positions inside transactions. A change here is a new version of the format."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from penstock.broker import Position, TopicPartition
from penstock.broker.consumers import Consumers
from penstock.broker.transactional_offsets import TransactionalOffsets
from penstock.broker.transactions import Transaction, TransactionState
from penstock.broker.transactions.store import STATES, pack, unpack
from penstock.core.errors import ConfigError
from tests.sim_tablet import SimNode, on_node

FULL = Transaction(
    "id",
    producer_id=0x0102,
    epoch=3,
    last_producer_id=0x0405,
    last_epoch=6,
    next_producer_id=0x0708,
    timeout_ms=60_000,
    state=TransactionState.PREPARE_COMMIT,
    version=2,
    queues=frozenset({TopicPartition(UUID(int=9), 1), TopicPartition(UUID(int=9), 0)}),
    groups=frozenset({"b", "ä"}),
    started_ms=1_700_000_000_000,
    updated_ms=1_700_000_000_001,
)
FULL_HEX = (
    "010202" + "0000000000000102" + "0003" + "0000000000000405" + "0000000000000708" + "0006"
    "0000ea60" + "0000018bcfe56800" + "0000018bcfe56801" + "00000002" + "00000002"
    + "00000000000000000000000000000009" + "00000000"
    + "00000000000000000000000000000009" + "00000001"
    + "0001" + "62" + "0002" + "c3a4"
)  # fmt: skip


def test_a_transactional_id_is_stored_like_this() -> None:
    assert pack(FULL).hex() == FULL_HEX
    assert unpack("id", bytes.fromhex(FULL_HEX)) == FULL


def test_a_new_transactional_id_is_stored_like_this() -> None:
    new = Transaction("id", 5)
    assert pack(new).hex() == (
        "010001" + "0000000000000005" + "ffff" + "ffffffffffffffff" * 2 + "ffff" + "00000000" + "ffffffffffffffff" + "00" * 16
    )
    assert unpack("id", pack(new)) == new


def test_every_state_has_a_number() -> None:
    assert [state.value for state in STATES] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
    ]


def test_a_newer_format_is_refused() -> None:
    with pytest.raises(ConfigError, match="upgrade"):
        unpack("id", b"\2" + bytes.fromhex(FULL_HEX)[1:])


def test_positions_inside_a_transaction_are_stored_like_this() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        consumers = Consumers(tablet, node.clock)
        offsets = TransactionalOffsets(tablet, consumers, node.clock)
        queue = TopicPartition(UUID(int=9), 1)
        await asyncio.sleep(0)
        await offsets.stage(0x0102, "group", [(queue, Position(5, 6, "m"))])
        (key,) = tablet.keys(b"", None)
        assert key.hex() == "78" + "0000000000000102" + b"group\0".hex() + "00000000000000000000000000000009" + "00000001"
        value = (tablet.head(key) or b"").hex()
        assert value.startswith("01" + "0000000000000005" + "00000006")
        assert value.endswith("6d")
        assert consumers.is_unstable("group", queue)
        again = Consumers(tablet, node.clock)
        TransactionalOffsets(tablet, again, node.clock)
        assert again.is_unstable("group", queue)

    on_node(scenario)
