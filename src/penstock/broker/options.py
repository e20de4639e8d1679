"""How a broker behaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.broker.compaction import CompactionOptions
from penstock.broker.groups.consumer_group import ConsumerGroupOptions
from penstock.broker.groups.options import GroupOptions
from penstock.broker.leases import LeaseOptions
from penstock.broker.limits import BrokerLimits
from penstock.broker.transactions import TransactionOptions
from penstock.broker.users import Security


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """How a broker behaves; None is without limit."""

    group: int = 0  # the storage group of all tablets
    # The storage groups that there are: a topic in another one is an error. None: that is not known.
    storage_groups: frozenset[int] | None = None
    must_exist: bool = False  # a broker ran on this storage before: missing tablets are an error
    auto_create_topics: bool = True
    default_partitions: int = 1
    cache_bytes: int = 256 << 20
    retention_interval_s: float = 30.0
    elapsed: Callable[[], float] | None = None  # a clock that also runs while the machine sleeps; None: the monotonic clock
    compaction: CompactionOptions = field(default_factory=CompactionOptions)
    produce_bytes_per_s: float | None = None  # by client
    fetch_bytes_per_s: float | None = None  # by client
    limits: BrokerLimits = field(default_factory=BrokerLimits)
    groups: GroupOptions = field(default_factory=GroupOptions)
    consumer_groups: ConsumerGroupOptions = field(default_factory=ConsumerGroupOptions)  # those the broker assigns partitions to
    transactions: TransactionOptions = field(default_factory=TransactionOptions)
    leases: LeaseOptions = field(default_factory=LeaseOptions)
    security: Security | None = None  # without it everyone may do everything
    cluster_name: str = "penstock"  # of this cluster, in registrations
    give_up_tablets: frozenset[int] = frozenset()  # system tablets that start without what is lost of them
    # Called when another node has taken over a tablet; this one does not start it again. None: no other node can.
    on_fenced: Callable[[], None] | None = None
    rules_for_anonymous: bool = False  # whether access rules apply to clients without a user
