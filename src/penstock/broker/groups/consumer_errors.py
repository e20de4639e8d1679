"""Errors of groups whose coordinator assigns partitions (KIP-848)."""

from __future__ import annotations

from penstock.broker.groups.errors import GroupError


class FencedMemberError(GroupError):
    """The member's epoch is not the one the group has for it: it must give up all partitions and join again."""

    code = "fenced_member"


class StaleMemberError(GroupError):
    """The request was made in an earlier epoch of the member; after its next heartbeat it may ask again."""

    code = "stale_member"


class UnreleasedInstanceError(GroupError):
    """Another member uses the instance id and has not left."""

    code = "unreleased_instance"


class UnsupportedAssignorError(GroupError):
    """An assignor that the broker does not have."""

    code = "unsupported_assignor"
