"""The feature level of a cluster: until it is raised, nodes of the version before can be part of it, and nothing is written that
they could not read. An operator raises it when all nodes are new and none is to go back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.coordination import ClusterIdentity, Coordination, Outcome
from penstock.core.errors import ConfigError, UnavailableError

FEATURE_LEVEL_MIN: Final = 1
FEATURE_LEVEL_MAX: Final = 1
RAISE_LEVEL: Final = "raise-level"
"""The request of an operator that the leader answers with `raise_level`."""


def check_feature_level(identity: ClusterIdentity, level_max: int = FEATURE_LEVEL_MAX) -> None:
    """ConfigError if this version cannot be part of the cluster."""
    if not FEATURE_LEVEL_MIN <= identity.feature_level <= level_max:
        raise ConfigError(
            f"the cluster {identity.name} is at feature level {identity.feature_level}, and this version of Penstock knows "
            f"{FEATURE_LEVEL_MIN} to {level_max}; use a version that fits"
        )


async def raise_level(coordination: Coordination, _: Mapping[str, str]) -> str:
    """Raise the level to the highest that all nodes know, as the leader. ConfigError if one of them knows no higher, or does not
    run: what it knows is not certain then."""
    identity, members = coordination.identity, coordination.members()
    running = {member.node_id for member in members}
    for number, node in coordination.nodes().items():
        if number not in running and not node.is_removed:
            raise ConfigError(f"node {number} ({node.name}) is away; start it, or remove it (penstock node remove {number})")
    level = min(member.feature_level_max for member in members)
    if level <= identity.feature_level:
        behind = ", ".join(
            f"node {member.node_id} ({member.name}, version {member.version or '?'})"
            for member in members
            if member.feature_level_max == level
        )
        raise ConfigError(
            f"the cluster is at feature level {identity.feature_level}, and {behind} knows no higher one; upgrade all nodes first"
        )
    result = await coordination.raise_feature_level(level)
    if result.outcome is not Outcome.DONE:
        raise UnavailableError(f"raising the feature level is {result.outcome.value}")
    return f"the cluster is at feature level {level}; versions that do not know it cannot be part of it any more"
