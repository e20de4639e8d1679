"""Tokens, which authenticate a user without the password: issued once, checked with every call.

    token    = base64url, without padding, of  body | HMAC-SHA256 of body and binding, by a key of the node's secret
    body     = version 1 byte | expires 8 bytes, seconds since the epoch | generation 4 bytes | id | user name, UTF-8
    id       = 8 random bytes in version 2; version 1 has none
    binding  = the stored form of the user's password

The key is derived from a secret file of the node, which is not part of the storage: a copy of the disks is not enough to forge a
token. The system tablet stores

    "g" | user name     {"version": 1, "generation": n}: tokens of any other generation were revoked, all at once
    "k" | id            the record of a token of version 2, as JSON with a version; deleted when the token is revoked

A token expires, and is invalid as soon as the user is deleted or has another password. One of version 2 is valid only while its
record exists. Version 1 has no record, and cannot be listed or revoked alone: it is issued to people and YDB clients that sign in
while the storage has no space for a record, because the person who frees space has to sign in.
"""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from hashlib import sha256
from struct import Struct
from typing import Final

from penstock.broker.system_tablet import TableTablet
from penstock.broker.users import Security, UnknownUserError, Users
from penstock.core.clock import Clock
from penstock.core.errors import ConfigError, InvalidRequestError, OutOfSpaceError
from penstock.tablet import Command, DeleteRange, Request, Write

VERSION: Final = 1  # of what is stored
WITHOUT_RECORD: Final = 1
WITH_RECORD: Final = 2
TOKEN_LIFE_S: Final = 12 * 3600
TOKEN_LIFE_S_MAX: Final = 366 * 24 * 3600
TOKEN_NAME_CHARACTERS_MAX: Final = 200
TOKEN_CHARACTERS_MAX: Final = 4096
TOKENS_PER_USER_MAX: Final = 1000
CLEAN_INTERVAL_S: Final = 3600
ID_SIZE: Final = 8
MAC_SIZE: Final = 32
_HEAD = Struct(">BQI")


class TokenKind(StrEnum):
    """What a token was issued for."""

    SESSION = "session"  # of the console in a browser
    YDB = "ydb"  # a YDB client that signed in
    API = "api"  # created by a user, for a program


class BadTokenError(InvalidRequestError):
    """The token is invalid, expired or revoked."""

    code = "bad_token"


class UnknownTokenError(InvalidRequestError):
    """There is no such token: it has expired, was revoked, or never existed."""

    code = "unknown_token"


class TooManyTokensError(InvalidRequestError):
    """The user has as many tokens as one may have."""

    code = "too_many_tokens"


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """What is known of an issued token. The token itself is not stored."""

    id: str  # hexadecimal
    user: str
    kind: TokenKind
    name: str
    created_s: int
    expires_s: int
    binding: str  # tells whether the user has had another password since


class Tokens:
    """Issues tokens, checks, lists and revokes them. Every change is durable before it takes effect."""

    def __init__(self, tablet: TableTablet, users: Users, security: Security, clock: Clock) -> None:
        self._tablet = tablet
        self._users = users
        self._security = security
        self._clock = clock
        self._key = hmac.digest(security.secret or security.random.randbytes(MAC_SIZE), b"penstock tokens", "sha256")
        self._generations = _load_generations(tablet)
        self._records = _load_records(tablet)  # by user and id
        self._cleaned_at_s = 0.0

    async def reload(self, tablet: TableTablet) -> None:
        """Reload after a restart of the tablet: a request that failed may have been committed."""
        self._generations = _load_generations(tablet)
        self._records = _load_records(tablet)

    async def issue(self, user: str, kind: TokenKind, name: str, life_s: int = TOKEN_LIFE_S) -> tuple[str, TokenRecord | None]:
        """Issue a token for an authenticated user, with its record; there is none if the storage has no space for it, which
        fails a token of kind API. A user with too many tokens loses the oldest that was not created by name.
        UnknownUserError if the user was deleted."""
        if not self._users.credentials(user):
            raise UnknownUserError(f"there is no user {user!r}; `penstock user list` lists the users")
        now_s = int(self._clock.wall())
        record = TokenRecord(
            self._security.random.randbytes(ID_SIZE).hex(), user, kind, name, now_s, now_s + life_s, self._record_binding(user)
        )
        replaced = [*self._dead(), *self._excess(user, kind)]
        try:
            await self._execute((_write(record), *map(_delete, replaced)))
        except OutOfSpaceError:
            if kind is TokenKind.API:
                raise
            return self._token(WITHOUT_RECORD, user, record.expires_s), None
        self._forget(replaced)
        self._records[user][record.id] = record
        return self._token(WITH_RECORD, user, record.expires_s, bytes.fromhex(record.id)), record

    def user_of(self, token: str) -> str:
        """The user of a token. Raises BadTokenError if it is invalid."""
        return self._check(token)[0]

    def records(self, user: str | None = None) -> list[TokenRecord]:
        """The valid tokens of a user, or of all users, newest first."""
        owners = self._records.values() if user is None else [self._records.get(user, {})]
        valid = [record for owned in owners for record in owned.values() if self._is_valid(record)]
        return sorted(valid, key=lambda record: (-record.created_s, record.id))

    def record(self, token_id: str) -> TokenRecord:
        """The record of a token. Raises UnknownTokenError if there is none."""
        for owned in self._records.values():
            if token_id in owned and self._is_valid(owned[token_id]):
                return owned[token_id]
        raise UnknownTokenError(f"there is no token {token_id!r}; `penstock user tokens` lists the valid ones")

    async def revoke(self, record: TokenRecord) -> None:
        """Revoke one token."""
        await self._execute([_delete(record)], makes_room=True)
        self._forget([record])

    async def revoke_session(self, token: str) -> None:
        """Revoke the token of a session that ends; an invalid one needs nothing. One without a record stays valid until it
        expires: the browser forgets it."""
        try:
            user, token_id = self._check(token)
        except BadTokenError:
            return
        record = self._records.get(user, {}).get(token_id)
        if record is not None:
            await self.revoke(record)

    async def revoke_all(self, user: str) -> None:
        """Revoke all tokens of a user."""
        generation = self._generations.get(user, 0) + 1
        head = json.dumps({"version": VERSION, "generation": generation}).encode()
        gone = list(self._records.get(user, {}).values())
        await self._execute((Write(b"g" + user.encode(), b"", head=head), *map(_delete, gone)), makes_room=True)
        self._generations[user] = generation
        self._forget(gone)

    def revocations(self, user: str) -> int:
        """How often all tokens of a user were revoked."""
        return self._generations.get(user, 0)

    def _check(self, token: str) -> tuple[str, str]:
        """The user and the id of a valid token; an empty id if it has no record."""
        body, mac = _split(token)
        version, expires_s, generation = _HEAD.unpack_from(body)
        rest = body[_HEAD.size :]
        token_id, name = (rest[:ID_SIZE].hex(), rest[ID_SIZE:]) if version == WITH_RECORD else ("", rest)
        user = name.decode(errors="replace")
        # Compare the MAC first, in constant time: the rest is not trusted before.
        if not hmac.compare_digest(mac, self._mac(body, user)) or not self._users.credentials(user):
            raise BadTokenError("the token is not valid; sign in with a user and a password")
        if version not in (WITHOUT_RECORD, WITH_RECORD) or generation != self._generations.get(user, 0):
            raise BadTokenError(f"the token of {user!r} was revoked; sign in again")
        if expires_s < self._clock.wall():
            raise BadTokenError(f"the token of {user!r} has expired; sign in again")
        if token_id and token_id not in self._records.get(user, {}):
            raise BadTokenError(f"the token of {user!r} was revoked; sign in again")
        return user, token_id

    def _token(self, version: int, user: str, expires_s: int, token_id: bytes = b"") -> str:
        body = _HEAD.pack(version, expires_s, self._generations.get(user, 0)) + token_id + user.encode()
        return urlsafe_b64encode(body + self._mac(body, user)).rstrip(b"=").decode()

    def _dead(self) -> list[TokenRecord]:
        """Records of tokens that have expired or ended with a password or a user, looked for once in a while."""
        now_s = self._clock.wall()
        if now_s < self._cleaned_at_s + CLEAN_INTERVAL_S:
            return []
        self._cleaned_at_s = now_s
        return [record for owned in self._records.values() for record in owned.values() if not self._is_valid(record)]

    def _excess(self, user: str, kind: TokenKind) -> list[TokenRecord]:
        """The token that must make way for another one of a user. TooManyTokensError if an API token finds no room."""
        if len(self._records.get(user, {})) < TOKENS_PER_USER_MAX:
            return []
        oldest = min(
            (record for record in self._records[user].values() if record.kind is not TokenKind.API),
            key=lambda record: record.created_s,
            default=None,
        )
        if oldest is None or kind is TokenKind.API:
            raise TooManyTokensError(f"{user!r} has {TOKENS_PER_USER_MAX} tokens; revoke those that are not used any more")
        return [oldest]

    def _is_valid(self, record: TokenRecord) -> bool:
        return (
            record.expires_s >= self._clock.wall()
            and bool(self._users.credentials(record.user))
            and record.binding == self._record_binding(record.user)
        )

    async def _execute(self, commands: Iterable[Command], *, makes_room: bool = False) -> None:
        await self._tablet.execute(Request(tuple(commands), makes_room=makes_room))

    def _forget(self, gone: Iterable[TokenRecord]) -> None:
        for record in gone:
            self._records[record.user].pop(record.id, None)

    def _mac(self, body: bytes, user: str) -> bytes:
        return hmac.digest(self._key, body + self._binding(user), "sha256")

    def _record_binding(self, user: str) -> str:
        """The binding in a form that can be stored: it is of no use without the node's secret."""
        return hmac.digest(self._key, b"record" + self._binding(user), "sha256").hex()[:16]

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


def _key(record: TokenRecord) -> bytes:
    return b"k" + bytes.fromhex(record.id)


def _write(record: TokenRecord) -> Command:
    return Write(_key(record), b"", head=json.dumps({"version": VERSION, **asdict(record)}).encode())


def _delete(record: TokenRecord) -> Command:
    return DeleteRange(_key(record), _key(record) + b"\0")


def _load_generations(tablet: TableTablet) -> dict[str, int]:
    revoked: dict[str, int] = {}
    for key in tablet.keys(b"g", b"h"):
        fields = json.loads(tablet.head(key) or b"")
        if fields["version"] > VERSION:
            raise ConfigError(f"a revocation of tokens has format {fields['version']}; upgrade Penstock")
        revoked[key[1:].decode()] = fields["generation"]
    return revoked


def _load_records(tablet: TableTablet) -> defaultdict[str, dict[str, TokenRecord]]:
    records: defaultdict[str, dict[str, TokenRecord]] = defaultdict(dict)
    for key in tablet.keys(b"k", b"l"):
        fields = json.loads(tablet.head(key) or b"")
        version = fields.pop("version")
        if version > VERSION:
            raise ConfigError(f"the record of a token has format {version}; upgrade Penstock")
        record = TokenRecord(**{**fields, "kind": TokenKind(fields["kind"])})
        records[record.user][record.id] = record
    return records
