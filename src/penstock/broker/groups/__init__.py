"""Groups: consumers that divide the partitions of topics among themselves (seed 003)."""

from penstock.broker.groups.consumer_coordinator import ConsumerCoordinator
from penstock.broker.groups.consumer_errors import (
    FencedMemberError,
    StaleMemberError,
    UnreleasedInstanceError,
    UnsupportedAssignorError,
)
from penstock.broker.groups.consumer_group import (
    ConsumerGroup,
    ConsumerGroupOptions,
    Heartbeat,
    HeartbeatResponse,
    queues_by_topic,
)
from penstock.broker.groups.consumer_metadata import assigned_partitions
from penstock.broker.groups.consumer_records import Member
from penstock.broker.groups.coordinator import GroupCoordinator, check_group_name
from penstock.broker.groups.errors import (
    CoordinatorUnavailableError,
    FencedInstanceError,
    GroupError,
    GroupFullError,
    InconsistentProtocolError,
    InvalidGroupNameError,
    NonEmptyGroupError,
    NotCoordinatorError,
    RebalanceError,
    SessionTimeoutError,
    StaleGenerationError,
    SubscribedTopicError,
    UnknownGroupError,
    UnknownMemberError,
)
from penstock.broker.groups.group_configs import GROUP_CONFIG_KEYS
from penstock.broker.groups.members import JoinRequest, JoinResponse, MemberIdRequiredError, OfferedProtocol, SyncResponse
from penstock.broker.groups.options import GroupOptions
from penstock.broker.groups.registry import (
    CLASSIC,
    CONSUMER,
    EMPTY_STATE,
    DescribedMember,
    GroupDescription,
    Groups,
    GroupSummary,
)
from penstock.broker.groups.topic_pattern import InvalidPatternError

__all__ = [
    "CLASSIC",
    "CONSUMER",
    "EMPTY_STATE",
    "GROUP_CONFIG_KEYS",
    "ConsumerCoordinator",
    "ConsumerGroup",
    "ConsumerGroupOptions",
    "CoordinatorUnavailableError",
    "DescribedMember",
    "FencedInstanceError",
    "FencedMemberError",
    "GroupCoordinator",
    "GroupDescription",
    "GroupError",
    "GroupFullError",
    "GroupOptions",
    "GroupSummary",
    "Groups",
    "Heartbeat",
    "HeartbeatResponse",
    "InconsistentProtocolError",
    "InvalidGroupNameError",
    "InvalidPatternError",
    "JoinRequest",
    "JoinResponse",
    "Member",
    "MemberIdRequiredError",
    "NonEmptyGroupError",
    "NotCoordinatorError",
    "OfferedProtocol",
    "RebalanceError",
    "SessionTimeoutError",
    "StaleGenerationError",
    "StaleMemberError",
    "SubscribedTopicError",
    "SyncResponse",
    "UnknownGroupError",
    "UnknownMemberError",
    "UnreleasedInstanceError",
    "UnsupportedAssignorError",
    "assigned_partitions",
    "check_group_name",
    "queues_by_topic",
]
