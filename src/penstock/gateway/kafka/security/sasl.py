"""SASL: a client chooses a mechanism and proves by it which user it is. One exchange per connection, before anything else."""

from __future__ import annotations

import asyncio
import hmac
from base64 import b64encode
from typing import Final

from penstock.broker import SCRAM_ITERATIONS_MIN, Credential, Mechanism, Security, Users
from penstock.core.errors import InvalidRequestError
from penstock.gateway.kafka.security.scram import AuthenticationError, ScramServer

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (*(mechanism.sasl_name for mechanism in Mechanism), PLAIN)
TOKEN_BYTES_MAX = 512 << 10
NONCE_SIZE = 18
ANONYMOUS: Final = "ANONYMOUS"

_SCRAM: Final = {mechanism.sasl_name: mechanism for mechanism in Mechanism}


class SaslStateError(InvalidRequestError):
    """A request that cannot come before the client has said who it is."""

    code = "illegal_sasl_state"


class UserDirectory:
    """What is known of users. Of one who is not known it says something as well, so that nobody learns who is."""

    def __init__(self, users: Users, security: Security) -> None:
        self._users = users
        self.random = security.random
        self._secret = security.random.randbytes(32)

    def credential(self, user: str, mechanism: Mechanism) -> Credential:
        """The credential of a user, or one that no password fits."""
        return self._users.credential(user, mechanism) or self._unknown(user, mechanism)

    def any_credential(self, user: str) -> Credential:
        """Likewise, of whatever mechanism: any of them can tell whether a password is right."""
        return next(iter(self._users.credentials(user)), None) or self._unknown(user, Mechanism.SCRAM_SHA_256)

    def _unknown(self, user: str, mechanism: Mechanism) -> Credential:
        # Always the same for the same name, as with a user who is there.
        salt = hmac.digest(self._secret, user.encode(), "sha256")[:24]
        return Credential(mechanism, SCRAM_ITERATIONS_MIN, salt, self.random.randbytes(32), self.random.randbytes(32))


class SaslExchange:
    """The exchange of one connection."""

    def __init__(self, directory: UserDirectory) -> None:
        self._directory = directory
        self._mechanism = ""
        self._scram: ScramServer | None = None
        self.takes_tokens = False  # whether what comes next are bare tokens, as after the first version of the handshake
        self.user: str | None = None  # who it is, once that is proven

    def choose(self, mechanism: str, *, bare_tokens: bool) -> None:
        """The client names its mechanism, which must be one there is."""
        self._mechanism = mechanism
        self.takes_tokens = bare_tokens
        if mechanism in _SCRAM:
            kind = _SCRAM[mechanism]
            nonce = b64encode(self._directory.random.randbytes(NONCE_SIZE)).decode()
            self._scram = ScramServer(lambda user: self._directory.credential(user, kind), nonce)

    @property
    def is_chosen(self) -> bool:
        """Whether the client has named its mechanism."""
        return bool(self._mechanism)

    async def step(self, token: bytes) -> bytes:
        """Answer the client's next token. AuthenticationError if that is the end of it."""
        if self._scram is not None:
            answer = self._scram.step(token)
            if self._scram.is_complete:
                self.user = self._scram.user
            return answer
        user, password = _plain(token)
        credential = self._directory.any_credential(user)
        # It takes milliseconds, on purpose, and others are to be served meanwhile.
        if not await asyncio.to_thread(credential.is_of, password):
            raise AuthenticationError("wrong user name or password")
        self.user = user
        return b""


def _plain(token: bytes) -> tuple[str, str]:
    """User and password of PLAIN (RFC 4616)."""
    try:
        authorization_id, user, password = token.decode().split("\0")
    except ValueError as error:
        raise AuthenticationError("a PLAIN token has three parts with zeros between them") from error
    if not user or not password:
        raise AuthenticationError("a PLAIN token has no user or no password")
    if authorization_id not in ("", user):
        raise AuthenticationError("a user can act only as itself")
    return user, password
