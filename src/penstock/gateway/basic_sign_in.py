"""Authentication of callers over HTTP and gRPC: HTTP Basic, or a token as bearer. Over a network both need TLS."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Final

from penstock.broker import BadTokenError, PartitionBroker, WrongPasswordError
from penstock.core.errors import InvalidRequestError

ANONYMOUS: Final = "User:ANONYMOUS"


class NotSignedInError(InvalidRequestError):
    """The caller must authenticate, and has not, or with wrong credentials."""

    code = "not_signed_in"


class BasicSignIn:
    """Authenticates callers of a gateway by the broker's users."""

    def __init__(self, broker: PartitionBroker, gateway: str) -> None:
        self._broker = broker
        self._gateway = gateway

    async def principal(self, authorization: str, host: str) -> str:
        """The principal of a caller; everyone is anonymous without security. NotSignedInError if the credentials are missing or
        wrong, TooManyAttemptsError after too many failures."""
        if self._broker.options.security is None:
            return ANONYMOUS
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer" and self._broker.tokens is not None:
            try:
                return "User:" + self._broker.tokens.user_of(token.strip())
            except BadTokenError as error:
                raise NotSignedInError(str(error)) from error
        try:
            user, colon, password = b64decode(token, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            user = colon = password = ""
        if scheme.lower() != "basic" or not colon or not user:
            raise NotSignedInError(
                "the node requires a user and a password (HTTP Basic) or a token (Bearer), and the request has neither"
            )
        try:
            await self._broker.sign_in.check_password(user, password, host, self._gateway)
        except WrongPasswordError as error:
            raise NotSignedInError(str(error)) from error
        return "User:" + user
