"""Starts the schema registry of a node: on a port of its own if one is set, and below a path of the HTTP listener."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from penstock.broker import PartitionBroker
from penstock.broker.schema_registry import SchemaRegistry
from penstock.core.clock import Clock
from penstock.server.config import NodeConfig
from penstock.server.listener import Listener, advertised_host, cannot_listen
from penstock.server.security import tls_context

if TYPE_CHECKING:
    from aiohttp import web

    from penstock.gateway.schema_registry import RegistryCaller
    from penstock.server.cluster.member import ClusterMember

PATH: Final = "/schema-registry"


async def listen_schemas(
    config: NodeConfig,
    registry: SchemaRegistry,
    broker_of: Callable[[], PartitionBroker | None],
    clock: Clock,
    closing: AsyncExitStack,
) -> Listener | None:
    """Start the listener of the registry alone, which `closing` stops; `broker_of` returns the broker of now, which knows the
    users. Returns where it listens; None if it has no port."""
    if config.schema_registry_port is None:
        return None
    # It takes a while to import, and not every node listens.
    from penstock.gateway.schema_registry import SchemaRegistryListener, signed_in

    listener = SchemaRegistryListener(
        registry,
        signed_in(broker_of),
        cluster_name=config.cluster_name,
        clock=clock,
        host=config.host,
        port=config.schema_registry_port,
        advertised_host=advertised_host(config),
        drain_timeout_s=config.drain_timeout_s,
        tls=tls_context(config),
    )
    try:
        await listener.start()
    except OSError as error:
        raise cannot_listen("schema_registry_port", config.host, listener.port, error) from error
    closing.push_async_callback(listener.stop)
    return Listener(config.host, listener.port)


def mount_standby_registry(app: web.Application, config: NodeConfig, member: ClusterMember, clock: Clock) -> None:
    """Serve the registry on the HTTP listener of a node that does not lead, to users who sign in."""
    from penstock.gateway.http_guard import HttpGuard, add_data_headers, own_hosts
    from penstock.gateway.schema_registry import registry_app, signed_in

    guard = HttpGuard(own_hosts(config.host, config.advertised_host))
    registry = registry_app(member.registry, config.cluster_name, clock, signed_in(lambda: member.broker), guard)
    registry.on_response_prepare.append(add_data_headers)
    app.add_subapp(PATH, registry)


def mount_registry(app: web.Application, registry: SchemaRegistry, broker: PartitionBroker) -> None:
    """Serve the registry on the HTTP listener, to authenticated callers."""
    from penstock.gateway.schema_registry import RegistryCaller, registry_app
    from penstock.server.http import caller_of

    async def registry_caller(request: web.Request) -> RegistryCaller:
        caller = caller_of(request)
        return RegistryCaller(caller.principal, caller.host, caller.access)

    app.add_subapp(PATH, registry_app(registry, broker.options.cluster_name, broker.clock, registry_caller))
