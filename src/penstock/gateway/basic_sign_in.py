"""HTTP Basic authentication for callers over HTTP and gRPC. Over a network it needs TLS."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Final

from penstock.broker import PartitionBroker, WrongPasswordError
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
        try:
            user, colon, password = b64decode(token, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            user = colon = password = ""
        if scheme.lower() != "basic" or not colon or not user:
            raise NotSignedInError(
                "the node requires a user and a password (HTTP Basic authentication), and the request has none"
            )
        try:
            await self._broker.sign_in.check_password(user, password, host, self._gateway)
        except WrongPasswordError as error:
            raise NotSignedInError(str(error)) from error
        return "User:" + user
