"""Batches that reach their partition after their transaction has ended, on a node that is not the coordinator's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from penstock.broker.intake import RECORDS_IN_PLACE, Intake
from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.produce import ProduceResponse
from penstock.server.cluster.forwarding import LeaderForwarder
from penstock.testing.batches import make_batch
from tests.e2e.kafka.raw_client import RawClient, produce_request
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.e2e.kafka.test_transaction_requests import TRANSACTIONAL, RawProducer

WAIT_S = 20.0
MANY = RECORDS_IN_PLACE + 1  # messages, which are checked in a thread


class Held:
    """What has come to the place where it is held, and when it may go on."""

    def __init__(self) -> None:
        self.has_come = threading.Event()
        self.may_go = threading.Event()


@contextmanager
def held_at(place: str) -> Iterator[Held]:
    """Hold batches behind their admission by the coordinator, or in the check of their records."""
    held = Held()
    owner: Any
    owner, name = {"admission": (LeaderForwarder, "_ask"), "check": (Intake, "_decode")}[place]
    original = getattr(owner, name)

    async def hold(self: Any, *arguments: Any) -> Any:
        answer = await original(self, *arguments)
        is_admission = place == "check" or arguments[0].name == "ADMIT"
        if is_admission:
            held.has_come.set()
            await asyncio.to_thread(held.may_go.wait, WAIT_S)
        return answer

    with patch.object(owner, name, hold):
        yield held
        held.may_go.set()


@pytest.mark.parametrize("place", ["admission", "check"])
def test_a_batch_is_refused_that_was_on_its_way_when_its_transaction_ended(tmp_path: Path, place: str) -> None:
    """Its producer keeps its epoch, so nothing but the marker fences it. Stored, it would begin a transaction that never ends."""
    with RunningGateway(tmp_path, nodes=3) as cluster:
        cluster.create_topic("late")
        with RawClient(cluster.port) as client, RawClient(cluster.port) as late:
            producer = RawProducer(client, "late", "late")
            assert (producer.init(), producer.add()) == (errors.NONE, errors.NONE)
            if place == "check":
                assert producer.send(b"in time") == errors.NONE  # now the partition knows of the transaction
            with held_at(place) as held:
                batch = make_batch(
                    [b"late"] * MANY,
                    attributes=TRANSACTIONAL,
                    producer_id=producer.id,
                    producer_epoch=producer.epoch,
                    base_sequence=int(place == "check"),
                )
                request = produce_request("late", batch)
                request.transactional_id = "late"
                late.send(keys.PRODUCE, 11, request)
                assert held.has_come.wait(WAIT_S)
                assert producer.end(commit=False) == errors.NONE
                held.may_go.set()
                response = late.receive(keys.PRODUCE, 11, ProduceResponse)[1]
        assert response.responses[0].partition_responses[0].error_code == errors.TRANSACTION_ABORTABLE
        partition = cluster.partition("late")
        assert partition.open_transaction(producer.id) is None
        assert partition.stable_offset == partition.end_offset
