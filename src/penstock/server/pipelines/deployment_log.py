"""The deployments, in one of the broker's own topics: as durable, and on as many nodes, as all other data."""

from __future__ import annotations

import asyncio
import logging

from penstock.broker import DEPLOYMENTS_TOPIC, Broker, InternalLog
from penstock.core.errors import CorruptionError
from penstock.server.pipelines.deployment import Deployment, unpack_deployment

log = logging.getLogger(__name__)


class DeploymentLog:
    """Stores the deployments and reads them at the start."""

    def __init__(self, broker: Broker) -> None:
        self._log = InternalLog(broker, DEPLOYMENTS_TOPIC)

    async def read(self) -> dict[str, Deployment]:
        """All deployments by name."""
        deployments: dict[str, Deployment] = {}

        def apply(_: int, key: bytes | None, value: bytes | None) -> None:
            name = (key or b"").decode(errors="replace")
            deployments.pop(name, None)
            if value is None:
                return
            try:
                deployments[name] = unpack_deployment(value)
            except CorruptionError as error:
                log.error("pipeline %s is not run: %s", name, error)

        partition = self._log.partition()
        if partition is None:
            return {}
        offset = partition.start_offset
        while offset < partition.end_offset:
            after = await self._log.read_on(partition, offset, apply)
            if after <= offset:
                break
            offset = after
            await asyncio.sleep(0)
        return deployments

    async def store(self, deployment: Deployment) -> None:
        """Store a deployment; it is durable when this returns."""
        await self._log.append([(deployment.name.encode(), deployment.pack())])

    async def remove(self, name: str) -> None:
        """Remove a deployment; that is durable when this returns."""
        await self._log.append([(name.encode(), None)])
