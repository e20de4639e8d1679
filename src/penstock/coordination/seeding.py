"""The keys that a supervisor gives a new store: the cluster of its workers, which are all known from the beginning."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.coordination.identity import ClusterIdentity, encode_identity
from penstock.coordination.key_layout import IDENTITY, group_key, member_key, node_key
from penstock.coordination.memory_store import MemoryStore
from penstock.coordination.node_ids import NodeRecord
from penstock.coordination.port import Put


async def seed_store(
    store: MemoryStore, identity: ClusterIdentity, nodes: Mapping[int, NodeRecord], groups: Mapping[int, bytes]
) -> None:
    """Write the identity of the cluster, its nodes by id and the configurations of its storage groups by id."""
    await store.commit([], [Put(IDENTITY, encode_identity(identity))])
    for node_id, node in nodes.items():
        await store.commit([], [Put(node_key(node_id), msgspec.json.encode(node))])
    for group_id, configuration in groups.items():
        await store.commit([], [Put(group_key(group_id), configuration)])


async def end_member(store: MemoryStore, node_id: int) -> None:
    """End the lease of a node whose process is known to have ended, so that others need not wait for it."""
    entry = (await store.get(member_key(node_id))).entry
    if entry is not None:
        await store.revoke(entry.lease)
