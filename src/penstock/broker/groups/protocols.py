"""Which protocols (assignors) the members of a group have in common, and which of them is used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.broker.groups.errors import InconsistentProtocolError
from penstock.broker.groups.members import JoinRequest, Member, OfferedProtocol


class ProtocolOffers:
    """Counts how many members of a group support each protocol, so that a joining member is checked without scanning all
    others."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, member: Member) -> None:
        """Count what a new member offers."""
        self._counts.update({offered.name for offered in member.protocols})

    def remove(self, member: Member) -> None:
        """Count no more what a member offers."""
        for name in {offered.name for offered in member.protocols}:
            self._counts[name] -= 1
            if not self._counts[name]:
                del self._counts[name]

    def change(self, member: Member, protocols: tuple[OfferedProtocol, ...]) -> None:
        """Have a member offer other protocols."""
        self.remove(member)
        member.protocols = protocols
        self.add(member)

    def check(self, group: str, protocol_type: str, request: JoinRequest, own: Sequence[Member], others: int) -> None:
        """InconsistentProtocolError unless the member that joins has a protocol in common with all others. `own` is what the
        group knows of it so far, `others` the number of the others."""
        if not request.protocol_type or not request.protocols:
            raise InconsistentProtocolError("a member names the type of its protocol and at least one way to divide partitions")
        if not others:
            return
        if request.protocol_type != protocol_type:
            raise InconsistentProtocolError(f"group {group!r} is of type {protocol_type!r}, not {request.protocol_type!r}")
        names = [offered.name for offered in request.protocols]
        if not any(self._counts[name] - sum(member.offers(name) for member in own) == others for name in names):
            raise InconsistentProtocolError(f"none of {', '.join(names)} is known to all members of group {group!r}")


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
