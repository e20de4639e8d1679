"""Which protocols (assignors) the members of a group have in common, and which of them is used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.broker.groups.errors import InconsistentProtocolError
from penstock.broker.groups.members import JoinRequest, Member


def check_protocols(group: str, protocol_type: str, request: JoinRequest, others: Sequence[Member]) -> None:
    """InconsistentProtocolError unless the member that joins has a protocol in common with all others."""
    if not request.protocol_type or not request.protocols:
        raise InconsistentProtocolError("a member names the type of its protocol and at least one way to divide partitions")
    if not others:
        return
    if request.protocol_type != protocol_type:
        raise InconsistentProtocolError(f"group {group!r} is of type {protocol_type!r}, not {request.protocol_type!r}")
    if not any(all(member.offers(offered.name) for member in others) for offered in request.protocols):
        names = ", ".join(offered.name for offered in request.protocols)
        raise InconsistentProtocolError(f"none of {names} is known to all members of group {group!r}")


def check_same_protocol(group: str, own: tuple[str, str], named: tuple[str | None, str | None]) -> None:
    """InconsistentProtocolError unless a member names the protocol type and the protocol of its group; None is not to name it."""
    if any(name not in (None, expected) for name, expected in zip(named, own, strict=True)):
        raise InconsistentProtocolError(
            f"group {group!r} divides partitions by {own[0]!r} {own[1]!r}, not {named[0]!r} {named[1]!r}"
        )


def chosen_protocol(members: Sequence[Member]) -> str:
    """Returns the protocol that all members support and most name first; of several, the one that the first member prefers."""
    common = [offered.name for offered in members[0].protocols if all(member.offers(offered.name) for member in members)]
    votes = Counter(next(offered.name for offered in member.protocols if offered.name in common) for member in members)
    return max(common, key=lambda name: votes[name])
