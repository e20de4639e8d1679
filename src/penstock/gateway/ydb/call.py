"""The context of a call: its caller, its database, and what handlers need."""

from __future__ import annotations

from typing import NamedTuple

from penstock.gateway.ydb import paths
from penstock.gateway.ydb.query_sessions import QuerySessions
from penstock.gateway.ydb.readers import Readers
from penstock.gateway.ydb.sign_in import Caller


class Call(NamedTuple):
    """One call."""

    caller: Caller
    database: str
    readers: Readers
    transactions: QuerySessions
    node_id: int

    def topic_name(self, path: str) -> str:
        """The topic at a path."""
        return paths.topic_name(path, self.database)
