"""The part of YDB's query service that the SDK needs for transactions of topics: sessions, and begin, commit and roll back."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc

from penstock.broker import BadTokenError
from penstock.core.errors import PenstockError
from penstock.core.probe import RequestProbe
from penstock.gateway.grpc_bodies import RequestBodies
from penstock.gateway.measured_request import MeasuredRequest
from penstock.gateway.ydb.probe import traceparent_of
from penstock.gateway.ydb.protos import Status, query
from penstock.gateway.ydb.query_sessions import QuerySessions
from penstock.gateway.ydb.statuses import decode_message, issues_of, status_of, unsupported

log = logging.getLogger(__name__)

NAME: Final = "Ydb.Query.V1.QueryService"
METHODS: Final = (
    "CreateSession",
    "DeleteSession",
    "BeginTransaction",
    "CommitTransaction",
    "RollbackTransaction",
    "AttachSession",
    "ExecuteQuery",
)
Admit = Callable[[Any], object]
"""Raises unless the caller is authenticated."""


class QueryService:
    """Its calls; queries themselves are refused."""

    def __init__(
        self, transactions: QuerySessions, admit: Admit, node_id: int, probe: RequestProbe, bodies: RequestBodies
    ) -> None:
        self._transactions = transactions
        self._probe = probe
        self._admit = admit
        self._node_id = node_id
        self._bodies = bodies

    def handlers(self) -> dict[str, Any]:
        """Its calls as gRPC wants them."""
        unary: dict[str, Callable[[Any], Awaitable[dict[str, Any]]]] = {
            "CreateSession": self._create_session,
            "DeleteSession": self._delete_session,
            "BeginTransaction": self._begin,
            "CommitTransaction": self._commit,
            "RollbackTransaction": self._roll_back,
        }
        made = {name: self._unary(name, handler) for name, handler in unary.items()}
        made["AttachSession"] = self._streaming("AttachSession", query.SessionState, self._attach)
        made["ExecuteQuery"] = self._streaming("ExecuteQuery", query.ExecuteQueryResponsePart, self._execute)
        return made

    def _unary(self, name: str, handler: Callable[[Any], Awaitable[dict[str, Any]]]) -> Any:
        respond = getattr(query, name + "Response")
        decode = getattr(query, name + "Request").FromString

        async def serve(_: Any, context: Any) -> Any:
            try:
                with MeasuredRequest(self._probe, name, traceparent_of(context), name=f"ydb {name}"):
                    self._admit(context)
                    async with self._bodies.receive(context) as body:
                        return respond(status=Status.SUCCESS, **await handler(decode_message(decode, body)))
            except BadTokenError as error:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
            except PenstockError as error:
                log.debug("%s is refused: %s", name, error)
                return respond(status=status_of(error), issues=issues_of(error))

        return grpc.stream_unary_rpc_method_handler(serve, response_serializer=respond.SerializeToString)

    def _streaming(self, name: str, part: Any, handler: Callable[[Any, Any], Awaitable[None]]) -> Any:
        decode = getattr(query, name + "Request").FromString

        async def serve(_: Any, context: Any) -> None:
            try:
                self._admit(context)
                async with self._bodies.receive(context) as body:
                    request = decode_message(decode, body)
                await handler(request, context)
            except BadTokenError as error:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
            except PenstockError as error:
                await context.write(part(status=status_of(error), issues=issues_of(error)))

        return grpc.stream_stream_rpc_method_handler(serve, response_serializer=part.SerializeToString)

    async def _create_session(self, request: Any) -> dict[str, Any]:
        return {"session_id": self._transactions.open_session(), "node_id": self._node_id}

    async def _delete_session(self, request: Any) -> dict[str, Any]:
        self._transactions.close_session(request.session_id)
        return {}

    async def _attach(self, request: Any, context: Any) -> None:
        """A session lives as long as its client stays attached to it."""
        session = self._transactions.attach(request.session_id)
        try:
            await context.write(query.SessionState(status=Status.SUCCESS))
            await session.is_over.wait()
        finally:
            self._transactions.close_session(request.session_id)

    async def _execute(self, request: Any, context: Any) -> None:
        raise unsupported("there are no tables here, and nothing to query; transactions are about topics alone")

    async def _begin(self, request: Any) -> dict[str, Any]:
        return {"tx_meta": {"id": self._transactions.begin(request.session_id).id}}

    async def _commit(self, request: Any) -> dict[str, Any]:
        await self._transactions.commit(request.session_id, request.tx_id)
        return {}

    async def _roll_back(self, request: Any) -> dict[str, Any]:
        self._transactions.roll_back(request.session_id, request.tx_id)
        return {}
