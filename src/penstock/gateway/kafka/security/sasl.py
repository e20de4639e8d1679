"""SASL: a client chooses a mechanism and proves by it which user it is. One exchange per connection, before anything else."""

from __future__ import annotations

from base64 import b64encode
from random import Random
from typing import Final

from penstock.broker import Credential, Mechanism, SignIn, TooManyAttemptsError, Users, WrongPasswordError
from penstock.core.errors import InvalidRequestError
from penstock.kafka.scram import AuthenticationError, ScramServer

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (*(mechanism.sasl_name for mechanism in Mechanism), PLAIN)
TOKEN_BYTES_MAX = 512 << 10
NONCE_SIZE = 18
ANONYMOUS: Final = "ANONYMOUS"
GATEWAY: Final = "kafka"

_SCRAM: Final = {mechanism.sasl_name: mechanism for mechanism in Mechanism}


class SaslStateError(InvalidRequestError):
    """A request that is not allowed before authentication."""

    code = "illegal_sasl_state"


class SaslExchange:
    """The exchange of one connection."""

    def __init__(self, users: Users, sign_in: SignIn, random: Random) -> None:
        self._users = users
        self._sign_in = sign_in
        self._random = random
        self.host = "?"  # where the client is
        self._mechanism = ""
        self._scram: ScramServer | None = None
        self.takes_tokens = False  # whether what comes next are bare tokens, as after the first version of the handshake
        self.user: str | None = None  # set once the client is authenticated

    def choose(self, mechanism: str, *, bare_tokens: bool) -> None:
        """Starts the exchange with the mechanism that the client names; it must be one of MECHANISMS."""
        self._mechanism = mechanism
        self.takes_tokens = bare_tokens
        if mechanism in _SCRAM:
            nonce = b64encode(self._random.randbytes(NONCE_SIZE)).decode()
            self._scram = ScramServer(mechanism, self._credential, nonce)

    @property
    def is_chosen(self) -> bool:
        """Whether the client has named its mechanism."""
        return bool(self._mechanism)

    async def step(self, token: bytes) -> bytes:
        """Returns the answer to the client's next token. Raises AuthenticationError if the exchange has failed."""
        try:
            return await (self._check_plain(token) if self._scram is None else self._check_scram(self._scram, token))
        except (WrongPasswordError, TooManyAttemptsError) as error:
            raise AuthenticationError(str(error)) from error

    async def _check_scram(self, scram: ScramServer, token: bytes) -> bytes:
        try:
            answer = scram.step(token)
        except AuthenticationError:
            # A malformed message counts as a failed attempt as well.
            await self._sign_in.refuse(scram.user, self.host, GATEWAY)
            raise
        if scram.is_complete:
            self._sign_in.accept(scram.user, self.host)
            self.user = scram.user
        return answer

    async def _check_plain(self, token: bytes) -> bytes:
        try:
            user, password = _plain(token)
        except AuthenticationError:
            await self._sign_in.refuse("", self.host, GATEWAY)
            raise
        await self._sign_in.check_password(user, password, self.host, GATEWAY)
        self.user = user
        return b""

    def _credential(self, user: str) -> Credential:
        """Returns the credential of a user; for an unknown user, one that fits no password."""
        self._sign_in.check_allowed(user, self.host, GATEWAY)
        mechanism = _SCRAM[self._mechanism]
        decoy = self._users.decoy(user, mechanism)  # also if it is not needed: the time tells nothing then
        return self._users.credential(user, mechanism) or decoy


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
