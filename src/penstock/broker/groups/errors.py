"""Errors of groups."""

from __future__ import annotations

from penstock.core.errors import FencedError, InvalidRequestError, UnavailableError


class GroupError(InvalidRequestError):
    """The group refuses the request."""

    code = "group"


class InvalidGroupNameError(GroupError):
    """The group name is invalid."""

    code = "invalid_group_name"


class UnknownGroupError(GroupError):
    """There is no such group, or it is of another kind."""

    code = "unknown_group"


class NonEmptyGroupError(GroupError):
    """The group has members; it can be deleted or changed once they have left."""

    code = "non_empty_group"


class SubscribedTopicError(GroupError):
    """Members of the group are subscribed to the topic, so its committed offsets cannot be deleted."""

    code = "subscribed_topic"


class UnknownMemberError(GroupError):
    """The group has no such member: it must join again."""

    code = "unknown_member"


class FencedInstanceError(FencedError):
    """Another member has joined under the same instance id; this one stops."""

    code = "fenced_instance"


class StaleGenerationError(GroupError):
    """The request names another generation than the group's."""

    code = "stale_generation"


class RebalanceError(UnavailableError):
    """The group is rebalancing: the member must join again, or wait."""

    code = "rebalance_in_progress"


class InconsistentProtocolError(GroupError):
    """The member and the group have no protocol in common."""

    code = "inconsistent_protocol"


class SessionTimeoutError(GroupError):
    """A session timeout outside of what the broker allows."""

    code = "invalid_session_timeout"


class GroupFullError(GroupError):
    """The group has reached its maximum number of members."""

    code = "group_full"


class CoordinatorUnavailableError(UnavailableError):
    """The state of the group cannot be stored now; retry in a moment."""

    code = "coordinator_unavailable"


class NotCoordinatorError(UnavailableError):
    """The broker is stopping; look up the coordinator of the group again."""

    code = "not_coordinator"
