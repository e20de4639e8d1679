"""Checks that a starting node fits the running ones, before it joins them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from penstock.coordination import DuplicateMemberError, MemberRecord
from penstock.core.errors import ConfigError
from penstock.server.cluster.peers import ADDRESS

PROBE_S: Final = 1.0


async def check_members(own: MemberRecord, members: Sequence[MemberRecord]) -> None:
    """ConfigError if this node cannot be one of them. A node that was killed a moment ago is still registered, and does not
    answer: it is passed over."""
    for member in members:
        is_copy = member.directory_id == own.directory_id and member.addresses.get(ADDRESS) != own.addresses[ADDRESS]
        is_other = member.node_id != own.node_id and member.is_encrypted not in (None, own.is_encrypted)
        if not (is_copy or is_other) or not await _answers(member.addresses.get(ADDRESS, "")):
            continue
        if is_copy:
            raise DuplicateMemberError(
                f"node {member.node_id} ({member.name}) runs at {member.addresses[ADDRESS]} with a copy of this data directory; "
                "stop it, or give this node a directory of its own"
            )
        name = f"node {member.node_id} ({member.name})"
        who, lacks = (name, "this node") if member.is_encrypted else ("this node", name)
        raise ConfigError(
            f"{who} speaks TLS with other nodes, and {lacks} does not: give all nodes interconnect_ca, interconnect_cert and "
            "interconnect_key, or none"
        )


async def _answers(address: str) -> bool:
    """Whether something listens at an address."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, ValueError):  # time-outs are OSErrors
        return False
    writer.close()
    return True
