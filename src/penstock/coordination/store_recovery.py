"""Brings a store that lost its data, or is an old copy, up to date from what the disks of a cluster know."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from penstock.coordination.identity import (
    ClusterIdentity,
    ClusterMark,
    WrongClusterError,
    decode_identity,
    encode_identity,
)
from penstock.coordination.key_layout import IDENTITY, group_key
from penstock.coordination.port import Compare, CoordinationUnavailableError, KeyStore, Outcome, Put

IsNewer = Callable[[bytes, bytes], bool]
"""Whether the first of two configurations of a group is newer than the second."""


async def recover_store(
    store: KeyStore, identity: ClusterIdentity, mark: ClusterMark, groups: Mapping[int, bytes], is_newer: IsNewer
) -> ClusterIdentity:
    """Write the configurations that the disks have, unless the store has newer ones, and last an identity that says so, upon
    which waiting nodes go on. `mark` is the newest that a node of the cluster keeps."""
    entries = {entry.key: entry for entry in (await store.scan("")).entries}
    existing = entries.get(IDENTITY)
    found = decode_identity(existing) if existing is not None else None
    if found is not None and found.cluster_id != identity.cluster_id:
        raise WrongClusterError(f"the store holds cluster {found.cluster_id}, and the disks are of cluster {identity.cluster_id}")
    recoveries = max(mark.recoveries, found.recoveries if found is not None else 0) + 1
    recovered = msgspec.structs.replace(identity, recoveries=recoveries)
    puts = [Put(group_key(group_id), value) for group_id, value in groups.items()]
    puts = [put for put in puts if put.key not in entries or is_newer(put.value, entries[put.key].value)]
    for put in (*puts, Put(IDENTITY, encode_identity(recovered))):
        known = entries.get(put.key)
        result = await store.commit([Compare(put.key, known.revision if known is not None else 0)], [put])
        if result.outcome is not Outcome.DONE:
            raise CoordinationUnavailableError(f"recovering {put.key} is {result.outcome.value}; run the recovery again")
    return recovered
