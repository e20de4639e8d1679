"""The broker: topics, consumers and their positions, one for all gateways (seeds 000, 002, 003)."""

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
from penstock.broker.broker import Broker, Produced
from penstock.broker.buffered_transactions import (
    BufferedTransaction,
    BufferedTransactions,
    Changes,
    NoSuchTransactionError,
    TransactionLimitError,
    UnsettledPositionsError,
)
from penstock.broker.compaction import CompactionOptions
from penstock.broker.consumers import Position, TopicPartition
from penstock.broker.dynamic_config import ALL_BROKERS, BROKER_NAMES, CONNECTIONS_MAX, DYNAMIC_KEYS
from penstock.broker.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidTimestampError,
    InvalidTopicNameError,
    LeaseLimitError,
    LeaseSpentError,
    LimitReachedError,
    PartitionDamagedError,
    PartitionUnavailableError,
    TopicExistsError,
    UnknownLeaseError,
    UnknownTopicError,
)
from penstock.broker.intake import Route
from penstock.broker.internal_topics import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, check_not_internal
from penstock.broker.leases import Lease, LeaseKey, LeaseOptions
from penstock.broker.limits import BrokerLimits
from penstock.broker.options import BrokerOptions
from penstock.broker.probe import BrokerProbe, BrokerReading, GroupCount
from penstock.broker.quotas import CHANGES as CHANGES_QUOTA
from penstock.broker.quotas import FETCH as FETCH_QUOTA
from penstock.broker.quotas import PRODUCE as PRODUCE_QUOTA
from penstock.broker.quotas import InvalidQuotaError, QuotaEntity, QuotaExceededError
from penstock.broker.sign_in import SignIn, TooManyAttemptsError, WrongPasswordError
from penstock.broker.system_tablet import SystemTablet
from penstock.broker.table_store import Chunk
from penstock.broker.tablets import TabletDamage
from penstock.broker.tokens import BadTokenError, Tokens
from penstock.broker.topic import Topic
from penstock.broker.topic_config import KEYS as TOPIC_CONFIG_KEYS
from penstock.broker.topic_config import TopicConfig
from penstock.broker.transactions import V1 as TRANSACTIONS_V1
from penstock.broker.transactions import V2 as TRANSACTIONS_V2
from penstock.broker.transactions import (
    CommitOutcome,
    ConcurrentTransactionsError,
    InvalidTransactionStateError,
    InvalidTransactionTimeoutError,
    NotInTransactionError,
    Producer,
    ProducerFencedError,
    RecordConflictError,
    Transaction,
    TransactionCommit,
    TransactionCoordinator,
    TransactionOptions,
    TransactionState,
    UnknownProducerError,
)
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
    "ALL_BROKERS",
    "BROKER_NAMES",
    "CHANGES_QUOTA",
    "CLUSTER_NAME",
    "CONNECTIONS_MAX",
    "DYNAMIC_KEYS",
    "FETCH_QUOTA",
    "INTERNAL_TOPICS",
    "OFFSETS_TOPIC",
    "OPERATIONS",
    "PRODUCE_QUOTA",
    "TOPIC_CONFIG_KEYS",
    "TRANSACTIONS_TOPIC",
    "TRANSACTIONS_V1",
    "TRANSACTIONS_V2",
    "Access",
    "AccessRule",
    "BadTokenError",
    "Broker",
    "BrokerLimits",
    "BrokerOptions",
    "BrokerProbe",
    "BrokerReading",
    "BufferedTransaction",
    "BufferedTransactions",
    "Changes",
    "Chunk",
    "CommitOutcome",
    "CompactionOptions",
    "ConcurrentTransactionsError",
    "Credential",
    "GroupCount",
    "InvalidConfigError",
    "InvalidPartitionsError",
    "InvalidQuotaError",
    "InvalidRuleError",
    "InvalidTimestampError",
    "InvalidTopicNameError",
    "InvalidTransactionStateError",
    "InvalidTransactionTimeoutError",
    "Lease",
    "LeaseKey",
    "LeaseLimitError",
    "LeaseOptions",
    "LeaseSpentError",
    "LimitReachedError",
    "Mechanism",
    "NoSuchTransactionError",
    "NotInTransactionError",
    "Operation",
    "PartitionDamagedError",
    "PartitionUnavailableError",
    "Permission",
    "Position",
    "Produced",
    "Producer",
    "ProducerFencedError",
    "QuotaEntity",
    "QuotaExceededError",
    "RecordConflictError",
    "RepeatedCredentialError",
    "ResourceKind",
    "Route",
    "RuleFilter",
    "RulePattern",
    "Security",
    "SignIn",
    "SystemTablet",
    "TabletDamage",
    "Tokens",
    "TooManyAttemptsError",
    "Topic",
    "TopicConfig",
    "TopicExistsError",
    "TopicPartition",
    "Transaction",
    "TransactionCommit",
    "TransactionCoordinator",
    "TransactionLimitError",
    "TransactionOptions",
    "TransactionState",
    "UnacceptableCredentialError",
    "UnknownLeaseError",
    "UnknownMechanismError",
    "UnknownProducerError",
    "UnknownTopicError",
    "UnknownUserError",
    "UnsettledPositionsError",
    "Users",
    "WrongPasswordError",
    "check_not_internal",
]
