"""The listeners of a node for Kafka clients."""

from __future__ import annotations

from penstock.broker import PartitionBroker
from penstock.gateway.kafka import ClusterView, KafkaGateway, KafkaOptions, OtherListeners
from penstock.server.config import NodeConfig
from penstock.server.disk_marks import NodeLayout
from penstock.server.listener import advertised_host, cannot_listen
from penstock.server.metrics import Observatory
from penstock.server.security import tls_context


class KafkaListeners:
    """The plain listener and the one with TLS, as far as the node has them. Clients stay connected when the broker behind the
    listeners is replaced: a node that begins or ends to lead serves its partitions all the time."""

    def __init__(self, config: NodeConfig, layout: NodeLayout) -> None:
        self.gateways: dict[str, KafkaGateway] = {}  # by the name of the listener; empty before `serve` and after `stop`
        self._config = config
        self._layout = layout
        self._observatory: Observatory | None = None

    async def serve(
        self,
        broker: PartitionBroker,
        *,
        observatory: Observatory,
        view: ClusterView | None,
        other_listeners: OtherListeners | None = None,
    ) -> None:
        """Serve clients from a broker, and start to listen if this is the first one. ListenError if an address is not free."""
        if self.gateways:
            self._unwatch()
            for gateway in self.gateways.values():
                gateway.serve(broker, view, other_listeners)
        else:
            await self._listen(broker, view, other_listeners)
        self._observatory = observatory
        for gateway in self.gateways.values():
            observatory.watch("kafka", gateway)

    async def stop(self) -> None:
        """Answer the requests in flight, and close all connections. May be called again."""
        for gateway in self.gateways.values():
            await gateway.stop()
        self._unwatch()
        self.gateways.clear()

    def _unwatch(self) -> None:
        for gateway in self.gateways.values():
            if self._observatory is not None:
                self._observatory.unwatch(gateway)

    async def _listen(self, broker: PartitionBroker, view: ClusterView | None, other_listeners: OtherListeners | None) -> None:
        config, layout, tls = self._config, self._layout, tls_context(self._config)
        listeners = {"kafka": (config.kafka_port, tls if config.kafka_tls_port is None else None)}
        listeners["kafka_tls"] = (config.kafka_tls_port, tls)
        for name, (port, tls_of_listener) in listeners.items():
            if port is None:
                continue
            gateway = KafkaGateway(
                broker,
                node_id=layout.node_id,
                cluster_id=layout.cluster_id,
                host=config.host,
                port=port,
                advertised_host=advertised_host(config),
                options=KafkaOptions(drain_timeout_s=config.drain_timeout_s),
                tls=tls_of_listener,
                view=view,
                listener=name,
                other_listeners=other_listeners,
            )
            try:
                await gateway.start()
            except OSError as error:
                await self.stop()
                raise cannot_listen(f"{name}_port", config.host, port, error) from error
            self.gateways[name] = gateway
