"""Who a caller over HTTP or gRPC is: user and password with every call, as HTTP's Basic has them. Over a network that is for TLS
only."""

from __future__ import annotations

import asyncio
import binascii
import hmac
from base64 import b64decode
from collections import OrderedDict
from hashlib import sha256
from typing import Final

from penstock.broker import SCRAM_ITERATIONS_MIN, Broker, Credential, Mechanism
from penstock.core.errors import InvalidRequestError

ANONYMOUS: Final = "User:ANONYMOUS"
REMEMBERED_MAX: Final = 10_000
CHECKED_AT_ONCE: Final = 4


class NotSignedInError(InvalidRequestError):
    """The caller must say who it is, and has not, or not rightly."""

    code = "not_signed_in"


class BasicSignIn:
    """Checks what callers say of themselves by the broker's users."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        # Checking a password takes milliseconds, on purpose; one that was right is remembered by a digest that the credential is
        # part of, so that it is forgotten with the password.
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._turn = asyncio.Semaphore(CHECKED_AT_ONCE)  # whoever tries many passwords keeps others of its kind waiting, not all

    async def principal(self, authorization: str) -> str:
        """Whose rights the caller has; everyone is anonymous where nobody is asked. NotSignedInError if it cannot be told."""
        return ANONYMOUS if self._broker.options.security is None else "User:" + await self._user(authorization)

    async def _user(self, authorization: str) -> str:
        scheme, _, token = authorization.partition(" ")
        try:
            user, colon, password = b64decode(token, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            user = colon = password = ""
        if scheme.lower() != "basic" or not colon or not user:
            raise NotSignedInError("the call does not say who makes it; send authorization: Basic with user:password in base64")
        credential = next(iter(self._broker.users.credentials(user)), None) or _nobody()
        digest = hmac.digest(credential.stored_key or b"nobody", f"{user}\0{password}".encode(), sha256)
        if digest in self._right and credential.stored_key:
            return user
        async with self._turn:
            is_right = await asyncio.to_thread(credential.is_of, password)
        if not is_right:
            raise NotSignedInError("wrong user name or password")
        self._right[digest] = None
        if len(self._right) > REMEMBERED_MAX:
            self._right.popitem(last=False)
        return user


def _nobody() -> Credential:
    """A credential that no password fits: a user who is not there takes as long to refuse as one who is."""
    return Credential(Mechanism.SCRAM_SHA_256, SCRAM_ITERATIONS_MIN, b"nobody", b"", b"")
