"""Status reports of pipelines, for metrics and alerts."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.server.http.node_context import NodeContext
from penstock.server.http.pipelines import PipelineResource


class PipelineReports:
    """Reads the reports of pipelines; what was read once is kept."""

    def __init__(self, context: NodeContext) -> None:
        self._resource = PipelineResource(context)

    async def read(self) -> list[dict[str, Any]]:
        """The last report of every pipeline, by name."""
        reports = await self._resource.reports()
        return [msgspec.structs.asdict(reports[name]) for name in sorted(reports)]
