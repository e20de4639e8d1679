"""What all connections of one listener share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, cast

from penstock.broker import Broker, PartitionBroker
from penstock.broker.dynamic_config import CONNECTIONS_MAX
from penstock.core.clock import Clock
from penstock.gateway.kafka.cluster_view import AloneView, BrokerAddress, ClusterView
from penstock.gateway.kafka.described_topics import DescribedTopics
from penstock.gateway.kafka.fetch_sessions import FetchSessions
from penstock.gateway.kafka.memory import MemoryBudget
from penstock.gateway.kafka.options import KafkaOptions
from penstock.gateway.kafka.probe import KafkaProbe
from penstock.gateway.kafka.security.sasl import SaslExchange

if TYPE_CHECKING:
    from penstock.gateway.kafka.connection import RequestPipeline


OtherListeners = Callable[[], Mapping[str, str]]
"""The addresses of this node for other protocols, by protocol. Commands find the admin API with it."""


class Node:
    """This node as Kafka clients see it: a broker id with an address, and the state that outlives a request."""

    def __init__(
        self,
        broker: PartitionBroker,
        *,
        node_id: int,
        cluster_id: str,
        address: tuple[str, int],
        options: KafkaOptions,
        clock: Clock,
        is_encrypted: bool = False,
        view: ClusterView | None = None,
        listener: str = "kafka",
        other_listeners: OtherListeners | None = None,
    ) -> None:
        self.node_id = node_id
        self.listener = listener  # its name, the same on every node
        self.cluster_id = cluster_id
        self.host, self.port = address
        self.options = options
        self.clock = clock
        self.memory = MemoryBudget(options.memory_bytes_max)
        self.probe = KafkaProbe()
        self.sessions = FetchSessions(options.fetch_sessions_max, options.fetch_session_idle_s)
        self.connections: set[RequestPipeline] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.confirmations = broker.tablets.storage.confirmations  # None: no other node may take over
        self.waiting: set[asyncio.Task[None]] = set()  # forwarded requests that are answered when other clients have come
        # For requests that need the leading node: on any other they are forwarded.
        self.coordinator = cast("Broker", broker)
        self.serve(broker, view, other_listeners)
        security = broker.options.security
        self.security_protocol = ("SASL_" if security is not None else "") + ("SSL" if is_encrypted else "PLAINTEXT")

    def serve(self, broker: PartitionBroker, view: ClusterView | None, other_listeners: OtherListeners | None) -> None:
        """Serves requests from a broker, on the same storage as the one before. Requests in flight that need the coordinator end
        with the one that they began with, which may have stopped."""
        self.broker = broker
        self.view: ClusterView = view or AloneView(self.node_id)
        self.other_listeners = other_listeners or dict
        self.access = broker.access  # None: everyone may do everything
        self.described = DescribedTopics()
        if self.view.forwarder is None:
            self.coordinator = cast("Broker", broker)

    def brokers(self) -> list[BrokerAddress]:
        """All nodes of the cluster, this one first."""
        own = BrokerAddress(self.node_id, self.host, self.port, self.view.rack())
        return [own, *self.view.others(self.listener)]

    def sasl_exchange(self) -> SaslExchange | None:
        """Returns the SASL exchange of a new connection, or None without security."""
        security = self.broker.options.security
        return None if security is None else SaslExchange(self.broker.users, self.broker.sign_in, security.random)

    @property
    def connections_max(self) -> int:
        """The current limit of connections."""
        dynamic = self.broker.dynamic.values.get(CONNECTIONS_MAX)
        return self.options.connections_max if dynamic is None else int(dynamic)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts a task that completes even if its client disconnects."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def release_waiting(self) -> None:
        """Has requests answered that wait for other clients: the node is about to stop."""
        if self.view.forwarder is None:
            self.coordinator.groups.release()
        for task in self.waiting:
            task.cancel()
