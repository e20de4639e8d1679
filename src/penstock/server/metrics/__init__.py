"""Monitoring of a node: metrics for Prometheus, health, a history in memory, and alerts.

Hot paths only add to plain numbers in probes (penstock.core.probe and the `probe` modules of the layers); everything here reads
them. The routes are in penstock.server.metrics.routes, which needs aiohttp.
"""

from penstock.server.metrics.alerts import Alert
from penstock.server.metrics.declarations import METRICS, catalogue
from penstock.server.metrics.flows import TopicRates
from penstock.server.metrics.history import HISTORY_METRICS, PIPELINE_METRICS
from penstock.server.metrics.observatory import Observatory
from penstock.server.metrics.sources import Sources

__all__ = ["HISTORY_METRICS", "METRICS", "PIPELINE_METRICS", "Alert", "Observatory", "Sources", "TopicRates", "catalogue"]
