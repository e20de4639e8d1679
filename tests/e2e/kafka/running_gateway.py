"""A broker with its Kafka gateway on a free port, on a loop in a thread of its own, so that blocking clients can use it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from random import Random
from ssl import SSLContext
from types import TracebackType
from typing import Any, TypeVar
from unittest.mock import patch

import pytest
import uvloop

from penstock.blob import BlobStorage, Erasure, GroupConfig, GroupOptions
from penstock.broker import Broker, BrokerOptions, PartitionBroker, Topic, TopicConfig
from penstock.core.clock import SystemClock
from penstock.gateway.kafka import KafkaGateway, KafkaOptions
from penstock.queue import Partition
from penstock.server import kafka_listeners
from tests.e2e.kafka.gateway_cluster import ASKED, NODES, GatewayCluster

T = TypeVar("T")

NODE_ID = 1
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
TIMEOUT_S = 30.0


def _without_retention(options: BrokerOptions) -> BrokerOptions:
    """Messages of tests are of 1970 as often as not: on a slow machine they would be gone before they are read. Tests of
    retention say how often it looks."""
    is_asked_for = options.retention_interval_s != BrokerOptions().retention_interval_s
    return options if is_asked_for else replace(options, retention_interval_s=3600.0)


class RunningGateway:
    """Use it as a context: everything runs within it."""

    def __init__(
        self,
        path: Path,
        *,
        options: KafkaOptions | None = None,
        broker_options: BrokerOptions | None = None,
        group_options: GroupOptions | None = None,
        use_uvloop: bool = True,
        tls: SSLContext | None = None,
        durable: bool = False,
        nodes: int = NODES,
    ) -> None:
        self._nodes = nodes
        self._path = path
        self._durable = durable
        self._options = options
        self._group_options = group_options
        self._tls = tls
        self._broker_options = _without_retention(broker_options or BrokerOptions())
        self._loop = uvloop.new_event_loop() if use_uvloop else asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.storage: BlobStorage
        self.broker: Broker
        self.gateway: KafkaGateway
        self._cluster: GatewayCluster | None = None

    def __enter__(self) -> RunningGateway:
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.gateway.port if self._cluster is None else self._cluster.ports[ASKED - 1]

    @property
    def coordinator_port(self) -> int:
        """Where the node listens that runs groups and transactions, and lists them."""
        return self.gateway.port

    @property
    def bootstrap(self) -> str:
        """Its address, as clients are told."""
        return f"127.0.0.1:{self.port}"

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on its loop; what it changes is in effect on all nodes then."""
        return self._run(self._run_settled(work))

    def run_unsettled(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something after which there may be no leader to follow."""
        return self._run(work)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)

    async def _run_settled(self, work: Coroutine[Any, Any, T]) -> T:
        result = await work
        if self._cluster is not None:
            await self._cluster.settle()
        return result

    def restart(self) -> None:
        """Stop everything and start it on the same data, on the same port."""
        port = self.port
        self._run(self._stop())
        self._run(self._start(port))

    def create_topic(
        self, name: str, partitions: int = 1, *, config: TopicConfig | None = None, is_spread: bool = False
    ) -> Topic:
        """Make a topic, on all nodes if it is spread, otherwise on the one that clients are connected to."""
        if self._cluster is None:
            return self.run(self.broker.create_topic(name, partitions, config))
        self._cluster.gathers = not is_spread
        try:
            return self.run(self.broker.create_topic(name, partitions, config))
        finally:
            self._cluster.gathers = False

    @property
    def cluster(self) -> GatewayCluster:
        """Its nodes, if there are several."""
        assert self._cluster is not None
        return self._cluster

    def settle(self) -> None:
        """Wait until all nodes follow what a client has changed."""
        self.run(asyncio.sleep(0))

    def partition(self, topic: str, number: int = 0) -> Partition:
        """A partition of a topic, on the node that has it."""
        return self.broker_of(topic, number).partition(self.broker.catalog.topic(topic), number)

    def broker_of(self, topic: str, number: int = 0) -> PartitionBroker:
        """The broker of the node that has a partition."""
        tablet_id = self.broker.catalog.topic(topic).tablets[number]
        return self.broker if self._cluster is None else self._cluster.broker_of(tablet_id)

    async def _start(self, port: int = 0) -> None:
        clock, random = SystemClock(), Random()
        group = GroupConfig(0, Erasure.NONE, (self._path,))
        self.storage = BlobStorage([group], clock=clock, random=random, durable=self._durable, options=self._group_options)
        if self._nodes > 1:
            await self._start_cluster()
            return
        self.broker = await Broker.start(self.storage, self._broker_options, clock=clock, random=random)
        self.gateway = KafkaGateway(
            self.broker,
            node_id=NODE_ID,
            cluster_id=CLUSTER_ID,
            host="127.0.0.1",
            port=port,
            options=self._options,
            tls=self._tls,
        )
        await self.gateway.start()

    async def _start_cluster(self) -> None:
        """As told by the environment: see gateway_cluster.py."""
        if self._tls is not None:
            pytest.skip("the nodes of the tested cluster have no certificates")
        if self._cluster is None:
            self._cluster = GatewayCluster(self._path, self._broker_options, CLUSTER_ID, self._nodes)
        with patch.object(kafka_listeners, "KafkaOptions", lambda **made: self._options or KafkaOptions(**made)):
            await self._cluster.start(self.storage)
        self.broker, self.gateway = self._cluster.broker, self._cluster.gateway

    async def _stop(self) -> None:
        if self._cluster is not None:
            await self._cluster.stop()
            await self.storage.close()
            return
        await self.gateway.stop()
        await self.broker.stop()
        await self.storage.close()
