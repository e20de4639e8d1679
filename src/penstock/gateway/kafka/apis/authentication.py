"""SaslHandshake and SaslAuthenticate: authenticate a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.security.sasl import MECHANISMS
from penstock.kafka.protocol import errors
from penstock.kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from penstock.kafka.scram import AuthenticationError

if TYPE_CHECKING:
    from penstock.gateway.kafka.connection import Connection

FRAMED_FROM = 1


async def sasl_handshake(call: Call, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """The client chooses a mechanism."""
    connection = _connection(call)
    sasl = connection.sasl
    if sasl is None or sasl.is_chosen:
        return SaslHandshakeResponse(error_code=errors.ILLEGAL_SASL_STATE)
    if request.mechanism not in MECHANISMS:
        connection.finish(f"the client wants to authenticate by {request.mechanism!r}, which is not offered")
        return SaslHandshakeResponse(error_code=errors.UNSUPPORTED_SASL_MECHANISM, mechanisms=list(MECHANISMS))
    sasl.choose(request.mechanism, bare_tokens=call.version < FRAMED_FROM)
    return SaslHandshakeResponse(mechanisms=list(MECHANISMS))


async def sasl_authenticate(call: Call, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """The next step of the exchange; the last makes the connection that user's."""
    connection = _connection(call)
    sasl = connection.sasl
    if sasl is None or not sasl.is_chosen:
        message = "the client is authenticated already, or need not be" if sasl is None else "a handshake comes first"
        return SaslAuthenticateResponse(error_code=errors.ILLEGAL_SASL_STATE, error_message=message)
    try:
        token = await sasl.step(bytes(request.auth_bytes))
    except AuthenticationError as error:
        connection.finish(f"authentication failed: {error}")
        return SaslAuthenticateResponse(
            error_code=errors.SASL_AUTHENTICATION_FAILED, error_message=f"authentication failed: {error}"
        )
    if sasl.user is not None:
        connection.authenticated(sasl.user)
    return SaslAuthenticateResponse(error_message=None, auth_bytes=token)


def _connection(call: Call) -> Connection:
    """These requests are served where the client is connected."""
    return cast("Connection", call.peer)
