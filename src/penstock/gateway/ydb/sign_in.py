"""Authentication: Login issues a token for a user and password, and every call carries it."""

from __future__ import annotations

from typing import Final

from penstock.broker import (
    CLUSTER_NAME,
    Broker,
    Operation,
    ResourceKind,
    TokenKind,
    TooManyAttemptsError,
    WrongPasswordError,
)
from penstock.gateway.ydb.protos import Status
from penstock.gateway.ydb.statuses import StatusError

ANONYMOUS: Final = "User:ANONYMOUS"


class Caller:
    """The user and host of a call, and what access rules allow them."""

    def __init__(self, broker: Broker, principal: str, host: str) -> None:
        self._access = broker.access
        self.principal = principal
        self.host = host

    @property
    def user(self) -> str:
        """The user name, as quotas have it."""
        return self.principal.removeprefix("User:")

    def check_topic(self, operation: Operation, name: str) -> None:
        """StatusError unless the caller may do an operation on a topic."""
        self._check(operation, ResourceKind.TOPIC, name)

    def check_consumer(self, operation: Operation, name: str) -> None:
        """StatusError unless the caller may do an operation on a consumer, which is a group for access rules."""
        self._check(operation, ResourceKind.GROUP, name)

    def check_create(self, name: str) -> None:
        """StatusError unless the caller may create a topic of this name."""
        if self._access is not None and self._allows(Operation.CREATE, ResourceKind.CLUSTER, CLUSTER_NAME):
            return
        self._check(Operation.CREATE, ResourceKind.TOPIC, name)

    def _check(self, operation: Operation, kind: ResourceKind, name: str) -> None:
        if not self._allows(operation, kind, name):
            action = f"{operation.name} {kind.name} {name!r}"
            raise StatusError(Status.UNAUTHORIZED, f"{self.principal} may not {action}; an access rule must allow it")

    def _allows(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        return self._access is None or self._access.allows(self.principal, self.host, operation, kind, name)


class SignIn:
    """Issues tokens and checks them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def caller(self, token: str, host: str) -> Caller:
        """The caller of a token; everyone is anonymous without security. BadTokenError if the token is not valid."""
        tokens = self._broker.tokens
        return Caller(self._broker, ANONYMOUS if tokens is None else "User:" + tokens.user_of(token), host)

    async def token(self, user: str, password: str, host: str) -> str:
        """Issue a token for a user, after checking the password."""
        tokens = self._broker.tokens
        if tokens is None:
            raise StatusError(Status.UNSUPPORTED, "the node runs without authentication (sasl is off), so there are no tokens")
        try:
            await self._broker.sign_in.check_password(user, password, host, "ydb")
        except WrongPasswordError as error:
            raise StatusError(Status.UNAUTHORIZED, str(error)) from error
        except TooManyAttemptsError as error:
            raise StatusError(Status.OVERLOADED, str(error)) from error
        return (await tokens.issue(user, TokenKind.YDB, host))[0]
