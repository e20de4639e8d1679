"""Stored bytes of registrations, nodes and weights of rows, pinned: what an older Penstock wrote must stay readable.

A file here changes only together with the version in its format and code that still reads the old one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from penstock.broker.namespace import Kind, MountState, Node, Tree
from penstock.broker.registrations import Ref, Registration, Registrations
from penstock.broker.system_tablet import TableTablet
from penstock.broker.weights import pack_weights
from penstock.tablet import Request, Write
from tests.sim_tablet import SimNode, on_node

FOLDER = Path(__file__).parent
QUEUE, CONSUMER = Ref("pythia", "//tmp/queue"), Ref("hume", "//tmp/consumer")
PLAIN = Registration(QUEUE, CONSUMER, vital=True)
PARTIAL = Registration(QUEUE, CONSUMER, vital=False, partitions=(0, 7))
NODE = Node(
    "//tmp/queue",
    "1-2-30191-4",
    Kind.QUEUE,
    created_ms=1700000000000,
    changed_ms=1700000000001,
    attributes={"auto_trim_config": b'{"enable":true}'},
    mount_state=MountState.MOUNTED,
    topic="tmp.queue",
    topic_id=UUID(int=5, version=4),
)
Writer = Callable[[TableTablet], object]
CASES: dict[str, tuple[object, Callable[[TableTablet], object]]] = {
    "registration": ([PLAIN], lambda tablet: list(Registrations(tablet))),
    "registration_of_partitions": ([PARTIAL], lambda tablet: list(Registrations(tablet))),
    "namespace_node": ([NODE], lambda tablet: Tree(tablet).nodes()),
}


async def write(name: str, tablet: TableTablet) -> None:
    if name == "namespace_node":
        await Tree(tablet).change([NODE])
    else:
        await Registrations(tablet).register(PLAIN if name == "registration" else PARTIAL)


def stored(name: str) -> tuple[bytes, bytes]:
    """A key and its value as they were written once."""
    key, value = (FOLDER / f"{name}.hex").read_text().split()
    return bytes.fromhex(key), bytes.fromhex(value)


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_does_not_drift(name: str) -> None:
    async def scenario(node: SimNode) -> list[tuple[bytes, bytes | None]]:
        tablet = await node.kv(1)
        await write(name, tablet)
        return [(key, tablet.head(key)) for key in tablet.keys(b"", None)]

    assert on_node(scenario) == [stored(name)]


@pytest.mark.parametrize("name", CASES)
def test_what_was_written_is_read(name: str) -> None:
    expected, read = CASES[name]

    async def scenario(node: SimNode) -> object:
        tablet = await node.kv(1)
        key, value = stored(name)
        await tablet.execute(Request((Write(key, b"", head=value),)))
        return read(tablet)

    assert on_node(scenario) == expected


def test_the_weights_of_a_batch_do_not_drift() -> None:
    assert pack_weights(1000, [20, 23]).hex() == "0100000000000003e80000001400000017"
