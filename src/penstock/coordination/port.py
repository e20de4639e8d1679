"""The port below `Coordination`: a small store of versioned keys, with transactions, leases and watches.

Every change gives the store a new revision, one higher than the last. Every call has a deadline. A call that only reads raises
`CoordinationUnavailableError` when the store does not answer in time. A transaction has three outcomes, and a store never repeats
one by itself: a transaction whose answer was lost may have been applied, and only its caller can read back what it wrote.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.core.errors import ConfigError, PenstockError, UnavailableError

OPERATIONS_MAX: Final = 128
"""Compares, or changes, in one transaction: what etcd allows unless it is configured otherwise."""
REQUEST_BYTES_MAX: Final = 1_500_000
"""Bytes of one transaction; etcd refuses more than 1.5 MiB, its own framing included."""
NO_LEASE: Final = 0


class CoordinationUnavailableError(UnavailableError):
    """The store did not answer in time, or refused for now; nothing was changed by this call."""

    code = "coordination_unavailable"


class CompactedError(PenstockError):
    """The revisions from which a watch should continue are gone; list the keys and watch from there."""

    code = "compacted"


class RolledBackError(ConfigError):
    """The store is older than what was read from it before: it was restored from a snapshot, or replaced."""

    code = "coordination_rolled_back"


class CoordinationRefusedError(ConfigError):
    """The store refuses this client: its certificate, user or password; the message says which."""

    code = "coordination_refused"


@dataclass(frozen=True, slots=True)
class Position:
    """Which store answered, and at which revision."""

    store_id: str
    revision: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A key with its value, the revision that wrote it last, and the lease it is deleted with (0 for none)."""

    key: str
    value: bytes
    revision: int
    lease: int = NO_LEASE


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The entries that were asked for, sorted by key, as of one revision."""

    entries: tuple[Entry, ...]
    position: Position

    @property
    def entry(self) -> Entry | None:
        """The only entry, or None if the key does not exist."""
        return self.entries[0] if self.entries else None


@dataclass(frozen=True, slots=True)
class Compare:
    """A condition of a transaction: the key was last written by this revision; 0 means that it does not exist."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class Put:
    """Writes a key. With a lease, the key is deleted when the lease ends."""

    key: str
    value: bytes
    lease: int = NO_LEASE


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes a key if it exists."""

    key: str


Change = Put | Delete


class Outcome(enum.Enum):
    """How a transaction ended."""

    DONE = "done"
    REFUSED = "refused"  # a compare failed, or the lease of a put has ended; nothing was changed
    UNKNOWN = "unknown"  # no answer came: it may have been applied, or may still be; read back before anything else


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The outcome of a transaction. `position` is that of the store after it; None if the outcome is unknown."""

    outcome: Outcome
    position: Position | None = None

    @property
    def revision(self) -> int:
        """The revision of a transaction that is done, which is that of every key it put."""
        assert self.outcome is Outcome.DONE
        assert self.position is not None
        return self.position.revision


UNKNOWN: Final = CommitResult(Outcome.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Event:
    """One change of one key. `entry` is None if the key was deleted."""

    key: str
    revision: int
    entry: Entry | None


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as it was granted; the store may make it longer than asked for."""

    id: int
    ttl_s: float


class KeyStore(Protocol):
    """What `Coordination` needs of a store. Keys are relative to the cluster, e.g. `members/3`."""

    async def get(self, key: str) -> Snapshot:
        """Read one key, no older than the moment of the call."""
        ...

    async def scan(self, prefix: str) -> Snapshot:
        """Read all keys with this prefix as of one revision, no older than the moment of the call."""
        ...

    async def commit(self, compares: Sequence[Compare], changes: Sequence[Change]) -> CommitResult:
        """Apply all changes if every compare holds, as one revision. Each key is changed at most once."""
        ...

    def watch(self, prefix: str, after: int) -> AsyncGenerator[tuple[Event, ...], None]:
        """Yield the changes of keys with this prefix after a revision, in order, none twice; those of one revision come together.

        Raises CoordinationUnavailableError when the connection breaks: watch again after the last revision that was seen. Raises
        CompactedError if changes that are needed are gone: list again. Raises RolledBackError if the store has not reached
        `after`.
        """
        ...

    async def grant(self, ttl_s: float) -> Lease:
        """Create a lease."""
        ...

    async def renew(self, lease: int, timeout_s: float) -> float:
        """Extend a lease by its whole length. Returns its length in seconds, 0 if the lease has ended."""
        ...

    async def revoke(self, lease: int) -> None:
        """End a lease and delete its keys."""
        ...

    async def close(self) -> None:
        """Close connections and end watches."""
        ...
