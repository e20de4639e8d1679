"""Gateway for YT's clients: queues, consumers and the Queue Agent over the HTTP proxy API (seed 002)."""

from penstock.gateway.yt.gateway import YtGateway, unavailable

__all__ = ["YtGateway", "unavailable"]
