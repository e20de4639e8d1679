"""Registrations: many to many, overwritten, found from both ends, and there again after a restart."""

from __future__ import annotations

import pytest

from penstock.broker.registrations import Ref, Registration, Registrations
from penstock.core.errors import ConfigError, InvalidRequestError
from penstock.tablet import Request, Write
from tests.sim_tablet import SimNode, on_node

QUEUE, OTHER_QUEUE = Ref("pythia", "//q"), Ref("pythia", "//q2")
CONSUMER, OTHER_CONSUMER = Ref("hume", "//c"), Ref("pythia", "//c")


def test_many_to_many() -> None:
    async def scenario(node: SimNode) -> None:
        registrations = Registrations(await node.kv(1))
        pairs = [(QUEUE, CONSUMER), (QUEUE, OTHER_CONSUMER), (OTHER_QUEUE, CONSUMER)]
        for queue, consumer in pairs:
            await registrations.register(Registration(queue, consumer, vital=False))
        assert {one.consumer for one in registrations.of_queue(QUEUE)} == {CONSUMER, OTHER_CONSUMER}
        assert {one.queue for one in registrations.of_consumer(CONSUMER)} == {QUEUE, OTHER_QUEUE}
        assert await registrations.unregister(QUEUE, CONSUMER)
        assert not await registrations.unregister(QUEUE, CONSUMER)
        assert set(registrations.queues()) == {QUEUE, OTHER_QUEUE}
        assert set(registrations.consumers()) == {CONSUMER, OTHER_CONSUMER}

    on_node(scenario)


def test_the_last_word_on_a_registration_is_what_a_restart_finds() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        registrations = Registrations(tablet)
        await registrations.register(Registration(QUEUE, CONSUMER, vital=True))
        await registrations.register(Registration(QUEUE, CONSUMER, vital=False, partitions=(1, 3)))
        again = Registrations(tablet)
        found = again.registration(QUEUE, CONSUMER)
        assert found == Registration(QUEUE, CONSUMER, vital=False, partitions=(1, 3))
        assert [found.covers(number) for number in range(4)] == [False, True, False, True]
        await registrations.unregister(QUEUE, CONSUMER)
        await again.reload(tablet)
        assert list(again) == []

    on_node(scenario)


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 5000])
def test_names_that_cannot_be_kept_are_refused(path: str) -> None:
    async def scenario(node: SimNode) -> None:
        registrations = Registrations(await node.kv(1))
        with pytest.raises(InvalidRequestError):
            await registrations.register(Registration(Ref("pythia", path), CONSUMER, vital=True))

    on_node(scenario)


def test_a_later_format_is_refused() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await tablet.execute(Request((Write(b"ra\0b\0c\0d", b"", head=b"\2\1\xff\xff\xff\xff"),)))
        with pytest.raises(ConfigError, match="upgrade Penstock"):
            Registrations(tablet)

    on_node(scenario)
