"""The YDB gateway: topics over gRPC for YDB's own clients. It needs the extra `ydb`, so import it only to start it."""

from penstock.gateway.ydb.gateway import YdbGateway

__all__ = ["YdbGateway"]
