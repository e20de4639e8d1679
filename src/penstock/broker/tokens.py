"""Tokens that stand for a user and a password that was checked: given out once, checked with every call.

    token    = base64url, without padding, of  body | HMAC-SHA256 of body and binding, by a key of the node's secret
    body     = version 1 byte = 1 | expires 8 bytes, seconds since the epoch | generation 4 bytes | user name, UTF-8
    binding  = what is kept of the user's password now

The key comes from a secret file of the node, not from anything in the storage: reading a disk's chunks is not enough to make a
token. A token ends by itself, with the password it was given for, with the user, and when all tokens of the user are revoked,
which is kept in the system tablet:

    "g" | user name     {"version": 1, "generation": n}: tokens of any other generation are refused
"""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from struct import Struct
from typing import Final

from penstock.broker.system_tablet import TableTablet
from penstock.broker.users import Security, Users
from penstock.core.clock import Clock
from penstock.core.errors import ConfigError, InvalidRequestError
from penstock.tablet import Request, Write

VERSION: Final = 1
TOKEN_LIFE_S: Final = 12 * 3600
TOKEN_CHARACTERS_MAX: Final = 4096
MAC_SIZE: Final = 32
_HEAD = Struct(">BQI")


class BadTokenError(InvalidRequestError):
    """The token is invalid, expired or revoked."""

    code = "bad_token"


class Tokens:
    """Issues tokens, checks them and revokes them."""

    def __init__(self, tablet: TableTablet, users: Users, security: Security, clock: Clock) -> None:
        self._tablet = tablet
        self._users = users
        self._security = security
        self._clock = clock
        self._key = hmac.digest(security.secret or security.random.randbytes(MAC_SIZE), b"penstock tokens", "sha256")
        self._generations = _load(tablet)

    async def reload(self, tablet: TableTablet) -> None:
        """Reload after a restart of the tablet: a request that failed may have been committed."""
        self._generations = _load(tablet)

    def issue(self, user: str) -> str:
        """Issue a token for an authenticated user."""
        expires_s = int(self._clock.wall()) + TOKEN_LIFE_S
        body = _HEAD.pack(VERSION, expires_s, self._generations.get(user, 0)) + user.encode()
        return urlsafe_b64encode(body + self._mac(body, user)).rstrip(b"=").decode()

    def user_of(self, token: str) -> str:
        """The user of a token. Raises BadTokenError if it is invalid."""
        body, mac = _split(token)
        user = body[_HEAD.size :].decode(errors="replace")
        # Check the MAC first, in constant time: the rest is not trusted before.
        if not hmac.compare_digest(mac, self._mac(body, user)) or not self._users.credentials(user):
            raise BadTokenError("the token is not valid; sign in with a user and a password")
        version, expires_s, generation = _HEAD.unpack_from(body)
        if version != VERSION or generation != self._generations.get(user, 0):
            raise BadTokenError(f"the token of {user!r} was revoked; sign in again")
        if expires_s < self._clock.wall():
            raise BadTokenError(f"the token of {user!r} has expired; sign in again")
        return user

    async def revoke(self, user: str) -> None:
        """Revoke all tokens of a user; durable when this returns."""
        generation = self._generations.get(user, 0) + 1
        head = json.dumps({"version": VERSION, "generation": generation}).encode()
        await self._tablet.execute(Request((Write(b"g" + user.encode(), b"", head=head),)))
        self._generations[user] = generation

    def revocations(self, user: str) -> int:
        """How often the tokens of a user were revoked."""
        return self._generations.get(user, 0)

    def _mac(self, body: bytes, user: str) -> bytes:
        return hmac.digest(self._key, body + self._binding(user), "sha256")

    def _binding(self, user: str) -> bytes:
        """The binding of a token to the user's password, so that a new password invalidates it."""
        if user == self._security.admin_user:
            return sha256(b"admin\0" + self._security.admin_password.encode()).digest()
        return sha256(b"".join(credential.stored_key for credential in self._users.credentials(user))).digest()


def _split(token: str) -> tuple[bytes, bytes]:
    """Body and MAC of a token, of their full lengths."""
    try:
        if len(token) > TOKEN_CHARACTERS_MAX:
            raise ValueError
        raw = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
        is_canonical = urlsafe_b64encode(raw).rstrip(b"=").decode() == token
    except ValueError:
        raw, is_canonical = b"", False
    if not is_canonical or len(raw) <= _HEAD.size + MAC_SIZE:
        raise BadTokenError("the call has no valid token; sign in with a user and a password")
    return raw[:-MAC_SIZE], raw[-MAC_SIZE:]


def _load(tablet: TableTablet) -> dict[str, int]:
    revoked: dict[str, int] = {}
    for key in tablet.keys(b"g", b"h"):
        fields = json.loads(tablet.head(key) or b"")
        if fields["version"] > VERSION:
            raise ConfigError(f"a revocation of tokens has format {fields['version']}; upgrade Penstock")
        revoked[key[1:].decode()] = fields["generation"]
    return revoked
