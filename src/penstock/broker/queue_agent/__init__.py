"""The Queue Agent: rates, statuses, automatic trimming and exports of queues (seed 002)."""

from penstock.broker.queue_agent.agent import QueueAgent
from penstock.broker.queue_agent.export_config import InvalidExportError, exports_of
from penstock.broker.queue_agent.export_progress import DESTINATION, PROGRESS
from penstock.broker.queue_agent.exporter import EXPORTS, Exporter
from penstock.broker.queue_agent.exports import EXPIRATION, StaticExports
from penstock.broker.queue_agent.remotes import RemoteClusters, RowPlace
from penstock.broker.queue_agent.statuses import Status, StatusError, cell_id, shown_time, tablet_id
from penstock.broker.queue_agent.trimming import TrimConfig

__all__ = [
    "DESTINATION",
    "EXPIRATION",
    "EXPORTS",
    "PROGRESS",
    "Exporter",
    "InvalidExportError",
    "QueueAgent",
    "RemoteClusters",
    "RowPlace",
    "StaticExports",
    "Status",
    "StatusError",
    "TrimConfig",
    "cell_id",
    "exports_of",
    "shown_time",
    "tablet_id",
]
