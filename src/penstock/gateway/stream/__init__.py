"""The stream gateway: subjects over gRPC (seed 004). It needs the extra `stream`, so import it only to start it."""

from penstock.gateway.stream.gateway import StreamGateway

__all__ = ["StreamGateway"]
