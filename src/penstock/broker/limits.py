"""How much there may be of what clients make, in all: each of these takes memory for as long as it is there, and time when the
node starts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """Limits of objects that clients create. A partition takes about 6 KB and 0.3 ms at startup; a group or node a few KB."""

    topic_partitions: int = 20_000  # of one topic
    partitions: int = 50_000  # of all topics
    groups: int = 50_000  # of consumers, those among them that have positions alone
    yt_nodes: int = 100_000
    yt_transactions: int = 10_000  # open at a time
