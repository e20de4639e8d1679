"""Users and their SCRAM credentials, from which passwords cannot be recovered; stored in the system tablet.

"u" | mechanism 1 | user name           the credential, as JSON with a version

The administrator is not among them: who that is, and by which password, is told to the node when it starts.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import new as new_hash
from hashlib import pbkdf2_hmac
from random import Random
from typing import NamedTuple

from penstock.broker.system_tablet import TableTablet
from penstock.core.errors import ConfigError, InvalidRequestError
from penstock.tablet import Command, DeleteRange, Request, Write

VERSION = 1
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
ITERATIONS_USUAL = 8192  # of the administrator, and of those whom `penstock user set` makes
NAME_SIZE_MAX = 1000
SALT_SIZE = 24


class Mechanism(IntEnum):
    """The kinds of SCRAM credentials, by Kafka's numbers."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """What clients call it."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The hash function it uses."""
        return "sha256" if self is Mechanism.SCRAM_SHA_256 else "sha512"


class UnacceptableCredentialError(InvalidRequestError):
    """The credential is refused: too weak, without a name, or of the administrator."""

    code = "unacceptable_credential"


class UnknownUserError(InvalidRequestError):
    """There is no such user, or it has no such credential."""

    code = "unknown_user"


class UnknownMechanismError(InvalidRequestError):
    """The type of credential is unknown."""

    code = "unknown_mechanism"


class RepeatedCredentialError(InvalidRequestError):
    """A user's credential is changed twice in one request."""

    code = "repeated_credential"


@dataclass(frozen=True, slots=True)
class Security:
    """Authentication is on, with this administrator."""

    admin_user: str
    admin_password: str = field(repr=False)
    random: Random = field(repr=False)  # of salts and nonces; must not be predictable
    allow_without_rule: bool = False  # whether an operation that no access rule covers is allowed
    secret: bytes = field(default=b"", repr=False)  # kept by the node outside its storage; tokens and decoys are made with it


class Credential(NamedTuple):
    """The stored form of a password (RFC 5802), which can verify it but not replace it."""

    mechanism: Mechanism
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def from_salted(cls, mechanism: Mechanism, iterations: int, salt: bytes, salted_password: bytes) -> Credential:
        """The credential of a salted and iterated password."""
        client_key = hmac.digest(salted_password, b"Client Key", mechanism.hash_name)
        stored_key = new_hash(mechanism.hash_name, client_key).digest()
        return cls(mechanism, iterations, salt, stored_key, hmac.digest(salted_password, b"Server Key", mechanism.hash_name))

    @classmethod
    def of_password(cls, mechanism: Mechanism, iterations: int, salt: bytes, password: str) -> Credential:
        """Derive the credential of a password. Slow by design."""
        salted = pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)
        return cls.from_salted(mechanism, iterations, salt, salted)

    def is_of(self, password: str) -> bool:
        """Verify a password. Slow by design."""
        credential = Credential.of_password(self.mechanism, self.iterations, self.salt, password)
        return hmac.compare_digest(credential.stored_key, self.stored_key)


class Users:
    """The credentials of all users. Every change is durable before it takes effect."""

    def __init__(self, tablet: TableTablet, security: Security | None) -> None:
        self._tablet = tablet
        self._credentials = _load(tablet)
        self.admin = None if security is None else security.admin_user
        self._admins: dict[Mechanism, Credential] = {}
        self._secret = b""
        self._random = None if security is None else security.random
        if security is not None:
            self._secret = hmac.digest(security.secret or security.random.randbytes(32), b"penstock users", "sha256")
            for mechanism in Mechanism:
                salt = self._derived(f"admin\0{mechanism}", SALT_SIZE)
                self._admins[mechanism] = Credential.of_password(mechanism, ITERATIONS_USUAL, salt, security.admin_password)
        self._shapes = self._find_shapes()

    async def reload(self, tablet: TableTablet) -> None:
        """Reload after a restart of the tablet: a request that failed may have been committed."""
        self._credentials = _load(tablet)
        self._shapes = self._find_shapes()

    def names(self) -> list[str]:
        """Every user that has a credential, the administrator aside."""
        return sorted({name for name, _ in self._credentials})

    def credentials(self, user: str) -> list[Credential]:
        """The credentials of a user."""
        candidates = (self.credential(user, mechanism) for mechanism in Mechanism)
        return [credential for credential in candidates if credential is not None]

    def credential(self, user: str, mechanism: Mechanism) -> Credential | None:
        """One of them; None if the user does not have it."""
        if user == self.admin:
            return self._admins[mechanism]
        return self._credentials.get((user, mechanism))

    def decoy(self, user: str, mechanism: Mechanism) -> Credential:
        """A credential that matches no password, for a user who has none. It is the same for a name at all times, with iterations
        and a salt like those of real users, so that a client cannot tell which users exist."""
        shapes = self._shapes[mechanism]
        iterations, salt_size = shapes[int.from_bytes(self._derived(f"shape\0{user}", 8), "big") % len(shapes)]
        keys = self._derived(f"keys\0{mechanism}\0{user}", 64)
        return Credential(mechanism, iterations, self._derived(f"salt\0{mechanism}\0{user}", salt_size), keys[:32], keys[32:])

    def check_set(self, user: str, iterations: int) -> None:
        """Raise UnacceptableCredentialError if the credential is not acceptable."""
        if not user or len(user.encode()) > NAME_SIZE_MAX or "\0" in user:
            raise UnacceptableCredentialError(f"the name of a user has 1 to {NAME_SIZE_MAX} bytes, none of them zero")
        if user == self.admin:
            raise UnacceptableCredentialError("the administrator's password is set where the node is started")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise UnacceptableCredentialError(
                f"a password is iterated {ITERATIONS_MIN} to {ITERATIONS_MAX} times, not {iterations}"
            )

    def check_remove(self, user: str, mechanism: Mechanism) -> None:
        """Raise UnknownUserError if the user does not have the credential."""
        if (user, mechanism) not in self._credentials:
            raise UnknownUserError(f"user {user!r} has no credential of kind {mechanism.sasl_name}")

    async def set_password(self, user: str, password: str) -> None:
        """Create a user, or change its password: a credential of every mechanism. They are derived in a thread, slow as it is."""
        assert self._random is not None, "a node without security has no users"
        self.check_set(user, ITERATIONS_USUAL)
        salts = [(mechanism, self._random.randbytes(SALT_SIZE)) for mechanism in Mechanism]

        def derive() -> list[tuple[str, Credential]]:
            return [(user, Credential.of_password(mechanism, ITERATIONS_USUAL, salt, password)) for mechanism, salt in salts]

        await self.change(await asyncio.to_thread(derive))

    async def delete(self, user: str) -> None:
        """Delete all credentials of a user, which is all there is of it."""
        if user == self.admin:
            raise UnacceptableCredentialError("the administrator is named where the node is started, and cannot be deleted")
        mechanisms = [mechanism for name, mechanism in self._credentials if name == user]
        if not mechanisms:
            raise UnknownUserError(f"there is no user {user!r}; `penstock user list` lists the users")
        await self.change((), [(user, mechanism) for mechanism in mechanisms])

    async def change(self, sets: Iterable[tuple[str, Credential]], removes: Iterable[tuple[str, Mechanism]] = ()) -> None:
        """Set and delete credentials atomically."""
        given = {(user, credential.mechanism): credential for user, credential in sets}
        gone = list(removes)
        commands: list[Command] = [Write(_key(*owner), b"", head=_pack(credential)) for owner, credential in given.items()]
        commands += (DeleteRange(_key(*owner), _key(*owner) + b"\0") for owner in gone)
        if commands:
            await self._tablet.execute(Request(tuple(commands)))
            self._credentials.update(given)
            for owner in gone:
                self._credentials.pop(owner, None)
            self._shapes = self._find_shapes()

    def _find_shapes(self) -> dict[Mechanism, list[tuple[int, int]]]:
        """The iteration counts and salt sizes in use, by mechanism."""
        shapes_of: dict[Mechanism, set[tuple[int, int]]] = {mechanism: set() for mechanism in Mechanism}
        for credential in (*self._credentials.values(), *self._admins.values()):
            shapes_of[credential.mechanism].add((credential.iterations, len(credential.salt)))
        return {mechanism: sorted(shapes) or [(ITERATIONS_USUAL, SALT_SIZE)] for mechanism, shapes in shapes_of.items()}

    def _derived(self, what: str, size: int) -> bytes:
        """Bytes derived from the secret and `what`: always the same, and not predictable without the secret."""
        blocks = range(-(-size // 64))
        digests = (hmac.digest(self._secret, f"{block}\0{what}".encode(errors="replace"), "sha512") for block in blocks)
        return b"".join(digests)[:size]


def _load(tablet: TableTablet) -> dict[tuple[str, Mechanism], Credential]:
    credentials: dict[tuple[str, Mechanism], Credential] = {}
    for key in tablet.keys(b"u", b"v"):
        credential = _unpack(Mechanism(key[1]), tablet.head(key) or b"")
        credentials[key[2:].decode(), credential.mechanism] = credential
    return credentials


def _key(user: str, mechanism: Mechanism) -> bytes:
    return b"u" + bytes([mechanism]) + user.encode()


def _pack(credential: Credential) -> bytes:
    fields = {
        "version": VERSION,
        "iterations": credential.iterations,
        "salt": credential.salt.hex(),
        "stored_key": credential.stored_key.hex(),
        "server_key": credential.server_key.hex(),
    }
    return json.dumps(fields).encode()


def _unpack(mechanism: Mechanism, raw: bytes) -> Credential:
    fields = json.loads(raw)
    if fields["version"] > VERSION:
        raise ConfigError(f"a credential has format {fields['version']}; upgrade Penstock")
    salt, stored_key, server_key = (bytes.fromhex(fields[name]) for name in ("salt", "stored_key", "server_key"))
    return Credential(mechanism, fields["iterations"], salt, stored_key, server_key)
