"""Who a caller over HTTP or gRPC is: user and password with every call, as HTTP's Basic has them. Over a network that is for TLS
only."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Final

from penstock.broker import Broker, WrongPasswordError
from penstock.core.errors import InvalidRequestError

ANONYMOUS: Final = "User:ANONYMOUS"


class NotSignedInError(InvalidRequestError):
    """The caller must say who it is, and has not, or not rightly."""

    code = "not_signed_in"


class BasicSignIn:
    """Checks what callers of a gateway say of themselves by the broker's users."""

    def __init__(self, broker: Broker, gateway: str) -> None:
        self._broker = broker
        self._gateway = gateway

    async def principal(self, authorization: str, host: str) -> str:
        """Whose rights the caller has; everyone is anonymous where nobody is asked. NotSignedInError if it cannot be told,
        TooManyAttemptsError if it is not tried."""
        if self._broker.options.security is None:
            return ANONYMOUS
        scheme, _, token = authorization.partition(" ")
        try:
            user, colon, password = b64decode(token, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            user = colon = password = ""
        if scheme.lower() != "basic" or not colon or not user:
            raise NotSignedInError("the call does not say who makes it; send authorization: Basic with user:password in base64")
        try:
            await self._broker.sign_in.check_password(user, password, host, self._gateway)
        except WrongPasswordError as error:
            raise NotSignedInError(str(error)) from error
        return "User:" + user
