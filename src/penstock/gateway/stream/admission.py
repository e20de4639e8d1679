"""Who a caller is: user and password with every call, as HTTP's Basic has them. Over a network that is for TLS only."""

from __future__ import annotations

import asyncio
import binascii
import hmac
from base64 import b64decode
from collections import OrderedDict
from hashlib import sha256
from typing import Final

from penstock.broker import SCRAM_ITERATIONS_MIN, Broker, Credential, Mechanism
from penstock.broker.streams import StreamEngine
from penstock.gateway.stream.errors import NotSignedInError
from penstock.gateway.stream.guarded import GuardedStreams

ANONYMOUS: Final = "User:ANONYMOUS"
REMEMBERED_MAX: Final = 10_000


class Admission:
    """Lets callers in, each to what it may use. Without security and access rules, everyone to everything."""

    def __init__(self, streams: StreamEngine, broker: Broker) -> None:
        self._streams = streams
        self._broker = broker
        # Checking a password takes milliseconds, on purpose; one that was right is remembered by a digest that the credential is
        # part of, so that it is forgotten with the password.
        self._right: OrderedDict[bytes, None] = OrderedDict()

    async def admit(self, authorization: str, host: str) -> StreamEngine:
        """The streams as the caller may use them. NotSignedInError if it must say who it is, and has not."""
        access = self._broker.access
        if access is None:
            return self._streams
        principal = ANONYMOUS
        if self._broker.options.security is not None:
            principal = "User:" + await self._user(authorization)
        return GuardedStreams(self._streams, self._broker, access, principal, host)

    def close(self) -> None:
        """The node is about to stop: those who follow are not to keep it."""
        self._streams.followers.close()

    async def _user(self, authorization: str) -> str:
        scheme, _, token = authorization.partition(" ")
        try:
            user, colon, password = b64decode(token, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            user = colon = password = ""
        if scheme.lower() != "basic" or not colon or not user:
            raise NotSignedInError("the call does not say who makes it; send authorization: Basic with user:password in base64")
        credential = next(iter(self._broker.users.credentials(user)), None) or _nobody()
        digest = hmac.digest(credential.stored_key or b"nobody", f"{user}\0{password}".encode(), sha256)
        if digest in self._right and credential.stored_key:
            return user
        if not await asyncio.to_thread(credential.is_of, password):
            raise NotSignedInError("wrong user name or password")
        self._right[digest] = None
        if len(self._right) > REMEMBERED_MAX:
            self._right.popitem(last=False)
        return user


def _nobody() -> Credential:
    """A credential that no password fits: a user who is not there takes as long to refuse as one who is."""
    return Credential(Mechanism.SCRAM_SHA_256, SCRAM_ITERATIONS_MIN, b"nobody", b"", b"")
