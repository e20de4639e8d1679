"""The Queue Agent: rates, statuses and automatic trimming of queues (seed 002)."""

from penstock.broker.queue_agent.agent import AGENT_INTERVAL_S, QueueAgent, RemoteClusters
from penstock.broker.queue_agent.statuses import Status, StatusError
from penstock.broker.queue_agent.trimming import TrimConfig

__all__ = ["AGENT_INTERVAL_S", "QueueAgent", "RemoteClusters", "Status", "StatusError", "TrimConfig"]
