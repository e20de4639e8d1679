"""The YDB gateway: topics over gRPC for YDB's own clients. It needs the extra `ydb`, so import it only to start it."""

from penstock.gateway.ydb.gateway import YdbGateway, ydb_server
from penstock.gateway.ydb.standby import Endpoint, add_standby_handlers

__all__ = ["Endpoint", "YdbGateway", "add_standby_handlers", "ydb_server"]
