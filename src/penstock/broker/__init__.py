"""The broker: topics, consumers and their committed offsets, shared by all gateways (seeds 000, 002, 003)."""

from penstock.broker.access import (
    CLUSTER_NAME,
    OPERATIONS,
    Access,
    AccessRule,
    InvalidRuleError,
    Operation,
    Permission,
    ResourceKind,
    RuleFilter,
    RulePattern,
)
from penstock.broker.broker import Broker
from penstock.broker.compaction import CompactionOptions
from penstock.broker.config_forms import ConfigFormName, config_form
from penstock.broker.consumers import Position, TopicPartition
from penstock.broker.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidTopicNameError,
    LimitReachedError,
    PartitionDamagedError,
    PartitionElsewhereError,
    PartitionUnavailableError,
    TopicExistsError,
    UnknownTopicError,
)
from penstock.broker.internal_log import InternalLog
from penstock.broker.internal_topics import (
    DEPLOYMENTS_TOPIC,
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    check_not_internal,
)
from penstock.broker.limits import BrokerLimits
from penstock.broker.options import BrokerOptions
from penstock.broker.other_nodes import LedNodes, OtherNodes
from penstock.broker.partition_broker import PartitionBroker, Produced
from penstock.broker.partition_status import PartitionStatus
from penstock.broker.probe import BrokerReading, GroupCount
from penstock.broker.route import Route
from penstock.broker.schema_rules import RefusedRecordsError
from penstock.broker.sign_in import SignIn, TooManyAttemptsError, WrongPasswordError
from penstock.broker.system_tablet import CONTENTS as SYSTEM_TABLET_CONTENTS
from penstock.broker.system_tablet import SystemTablet
from penstock.broker.table_store import Chunk
from penstock.broker.tablets import TabletDamage, Tablets, TabletState
from penstock.broker.tokens import (
    TOKEN_LIFE_S,
    TOKEN_LIFE_S_MAX,
    TOKEN_NAME_CHARACTERS_MAX,
    BadTokenError,
    TokenKind,
    TokenRecord,
    Tokens,
    TooManyTokensError,
    UnknownTokenError,
)
from penstock.broker.topic import Topic
from penstock.broker.topic_config import KEYS as TOPIC_CONFIG_KEYS
from penstock.broker.topic_config import TopicConfig, unknown_topic_config
from penstock.broker.users import (
    Credential,
    Mechanism,
    RepeatedCredentialError,
    Security,
    UnacceptableCredentialError,
    UnknownMechanismError,
    UnknownUserError,
    Users,
)

__all__ = [
    "CLUSTER_NAME",
    "DEPLOYMENTS_TOPIC",
    "INTERNAL_TOPICS",
    "OFFSETS_TOPIC",
    "OPERATIONS",
    "SYSTEM_TABLET_CONTENTS",
    "TOKEN_LIFE_S",
    "TOKEN_LIFE_S_MAX",
    "TOKEN_NAME_CHARACTERS_MAX",
    "TOPIC_CONFIG_KEYS",
    "TRANSACTIONS_TOPIC",
    "Access",
    "AccessRule",
    "BadTokenError",
    "Broker",
    "BrokerLimits",
    "BrokerOptions",
    "BrokerReading",
    "Chunk",
    "CompactionOptions",
    "ConfigFormName",
    "Credential",
    "GroupCount",
    "InternalLog",
    "InvalidConfigError",
    "InvalidPartitionsError",
    "InvalidRuleError",
    "InvalidTopicNameError",
    "LedNodes",
    "LimitReachedError",
    "Mechanism",
    "Operation",
    "OtherNodes",
    "PartitionBroker",
    "PartitionDamagedError",
    "PartitionElsewhereError",
    "PartitionStatus",
    "PartitionUnavailableError",
    "Permission",
    "Position",
    "Produced",
    "RefusedRecordsError",
    "RepeatedCredentialError",
    "ResourceKind",
    "Route",
    "RuleFilter",
    "RulePattern",
    "Security",
    "SignIn",
    "SystemTablet",
    "TabletDamage",
    "TabletState",
    "Tablets",
    "TokenKind",
    "TokenRecord",
    "Tokens",
    "TooManyAttemptsError",
    "TooManyTokensError",
    "Topic",
    "TopicConfig",
    "TopicExistsError",
    "TopicPartition",
    "UnacceptableCredentialError",
    "UnknownMechanismError",
    "UnknownTokenError",
    "UnknownTopicError",
    "UnknownUserError",
    "Users",
    "WrongPasswordError",
    "check_not_internal",
    "config_form",
    "unknown_topic_config",
]
