"""Who a client is: a token given out for a user and password, which every call carries.

A token is `user . time it ends . mac`, each in base64 or digits. The mac's key is what is kept of the user's password, so that a
token outlives a restart of the node and ends with the password it was given for."""

from __future__ import annotations

import asyncio
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import Final

from penstock.broker import (
    CLUSTER_NAME,
    SCRAM_ITERATIONS_MIN,
    Broker,
    Credential,
    Mechanism,
    Operation,
    ResourceKind,
)
from penstock.gateway.ydb.protos import Status
from penstock.gateway.ydb.statuses import StatusError

TOKEN_LIFE_S: Final = 12 * 3600
ANONYMOUS: Final = "User:ANONYMOUS"


class Caller:
    """Who makes a call, and from where."""

    def __init__(self, broker: Broker, principal: str, host: str) -> None:
        self._access = broker.access
        self.principal = principal
        self.host = host

    @property
    def user(self) -> str:
        """The name that quotas know it by."""
        return self.principal.removeprefix("User:")

    def check_topic(self, operation: Operation, name: str) -> None:
        """StatusError unless the caller may do this with a topic."""
        self._check(operation, ResourceKind.TOPIC, name)

    def check_consumer(self, operation: Operation, name: str) -> None:
        """Likewise, with a consumer, which is a group for access rules."""
        self._check(operation, ResourceKind.GROUP, name)

    def check_create(self, name: str) -> None:
        """StatusError unless the caller may create a topic of this name."""
        if self._access is not None and self._allows(Operation.CREATE, ResourceKind.CLUSTER, CLUSTER_NAME):
            return
        self._check(Operation.CREATE, ResourceKind.TOPIC, name)

    def _check(self, operation: Operation, kind: ResourceKind, name: str) -> None:
        if not self._allows(operation, kind, name):
            what = f"{operation.name} {kind.name} {name!r}"
            raise StatusError(Status.UNAUTHORIZED, f"{self.principal} may not {what}; an access rule must allow it")

    def _allows(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        return self._access is None or self._access.allows(self.principal, self.host, operation, kind, name)


class SignIn:
    """Gives out tokens and reads them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def caller(self, token: str, host: str) -> Caller:
        """Who a token stands for. StatusError if it stands for nobody and somebody is asked for."""
        if self._broker.options.security is None:
            return Caller(self._broker, ANONYMOUS, host)
        return Caller(self._broker, "User:" + self._user(token), host)

    async def token(self, user: str, password: str) -> str:
        """A token for a user who knows the password."""
        if self._broker.options.security is None:
            raise StatusError(Status.UNSUPPORTED, "nobody is asked who they are here: the node runs without sasl")
        credential = next(iter(self._broker.users.credentials(user)), None) or _nobody()
        # It takes milliseconds, on purpose, and others are to be served meanwhile.
        if not await asyncio.to_thread(credential.is_of, password):
            raise StatusError(Status.UNAUTHORIZED, "wrong user name or password")
        body = f"{urlsafe_b64encode(user.encode()).decode()}.{int(self._broker.clock.wall()) + TOKEN_LIFE_S}"
        return f"{body}.{self._mac(user, body)}"

    def _user(self, token: str) -> str:
        body, _, mac = token.rpartition(".")
        name, _, ends_at = body.partition(".")
        try:
            user, until = urlsafe_b64decode(name).decode(), int(ends_at)
        except ValueError:
            user, until = "", 0
        if not user or not hmac.compare_digest(mac.encode(), self._mac(user, body).encode()):
            raise StatusError(Status.UNAUTHENTICATED, "the call has no valid token; sign in with a user and a password")
        if until < self._broker.clock.wall():
            raise StatusError(Status.UNAUTHENTICATED, f"the token of {user!r} has run out; sign in again")
        return user

    def _mac(self, user: str, body: str) -> str:
        key = self._key(user)
        return hmac.digest(key, body.encode(), "sha256").hex() if key else ""

    def _key(self, user: str) -> bytes:
        """What a token of a user is made with; nothing if there is no such user."""
        security = self._broker.options.security
        if security is not None and user == security.admin_user:
            # Its credentials are made anew at every start, its password is not.
            return sha256(b"penstock ydb token\0" + security.admin_password.encode()).digest()
        return b"".join(credential.stored_key for credential in self._broker.users.credentials(user))


def _nobody() -> Credential:
    """A credential that no password fits: a user who is not there takes as long to refuse as one who is."""
    return Credential(Mechanism.SCRAM_SHA_256, SCRAM_ITERATIONS_MIN, b"nobody", b"", b"")
