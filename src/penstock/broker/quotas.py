"""Quotas: how much users and clients may produce, fetch and change per second, and the throttle time beyond that.

"q" | entity as JSON                    its quotas by name, as JSON with a version; in the system tablet

An entity is a user, a client id, or both; each may be the default, which stands for every one that is not named itself. The most
specific entity that sets a quota decides. Users share what their user is given, clients of one name what their name is given.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.broker.system_tablet import TableTablet
from penstock.core.clock import Clock
from penstock.core.errors import ConfigError, InvalidRequestError, UnavailableError
from penstock.tablet import DeleteRange, Request, Write

VERSION = 1
BYTES_WINDOW_S = 1.0
CHANGES_WINDOW_S = 10.0
LIMITS_MAX = 10_000
WAIT_MS_MIN = 2  # the resolution of timers: a client that has waited must not be early
NAME_SIZE_MAX = 1000

PRODUCE_QUOTA: Final = "producer_byte_rate"
FETCH_QUOTA: Final = "consumer_byte_rate"
CHANGES_QUOTA: Final = "controller_mutation_rate"
KEYS: Final = (PRODUCE_QUOTA, FETCH_QUOTA, CHANGES_QUOTA)

DEFAULT: Final = ""  # in an entity: all users or clients without a quota of their own


class InvalidQuotaError(InvalidRequestError):
    """The quota is invalid."""

    code = "invalid_quota"


class QuotaExceededError(UnavailableError):
    """A client has exceeded its quota."""

    code = "quota_exceeded"


class QuotaEntity(NamedTuple):
    """The user and client id of a quota; None is any, DEFAULT is all others."""

    user: str | None = None
    client: str | None = None

    def check(self) -> None:
        """Raise InvalidQuotaError if the entity is invalid."""
        if self.user is None and self.client is None:
            raise InvalidQuotaError("a quota is for a user, for a client id, or for both; none is named")
        if any(len((name or "").encode()) > NAME_SIZE_MAX for name in self):
            raise InvalidQuotaError(f"a name has at most {NAME_SIZE_MAX} bytes")


class RateLimit:
    """A token bucket that fills at a rate, up to the tokens of some seconds. It may be overdrawn: then the client waits. Pure."""

    __slots__ = ("_clock", "_level", "_rate", "_seen", "_size")

    def __init__(self, rate: float, window_s: float, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._level = self._size = rate * window_s
        self._seen = clock.monotonic()

    @property
    def size(self) -> float:
        """Its capacity."""
        return self._size

    def draw(self, amount: int) -> int:
        """Take tokens. Returns the milliseconds to wait."""
        self._fill()
        self._level -= amount
        return self._wait_ms()

    def wait_ms(self) -> int:
        """The milliseconds until tokens are available, without taking any."""
        self._fill()
        return self._wait_ms()

    def _fill(self) -> None:
        now = self._clock.monotonic()
        self._level = min(self._level + (now - self._seen) * self._rate, self._size)
        self._seen = now

    def _wait_ms(self) -> int:
        wait_ms = math.ceil(round(-self._level / self._rate * 1000, 3))
        return wait_ms if wait_ms > WAIT_MS_MIN else 0


class Quotas:
    """All quotas. `rates` are the defaults for clients without a quota; every change is durable before it takes effect."""

    def __init__(self, tablet: TableTablet, rates: Mapping[str, float], clock: Clock) -> None:
        self._tablet = tablet
        self._rates = dict(rates)
        self._clock = clock
        self._changing = asyncio.Lock()
        self._table = _load(tablet)
        self._limits: dict[tuple[str, str, str], RateLimit] = {}
        self._found: dict[tuple[str, str, str], RateLimit | None] = {}  # the cached limit of each client
        self._note_kinds()

    async def reload(self, tablet: TableTablet) -> None:
        """Reload after a restart of the tablet: a request that failed may have been committed."""
        self._table = _load(tablet)
        self._note_kinds()

    def _note_kinds(self) -> None:
        """Note in attributes which kinds of quotas exist, so that kinds without any cost nothing."""
        limited = {name for quotas in self._table.values() for name in quotas} | self._rates.keys()
        self.limits_produce = PRODUCE_QUOTA in limited
        self.limits_fetch = FETCH_QUOTA in limited
        self.limits_changes = CHANGES_QUOTA in limited
        self._limits.clear()
        self._found.clear()

    def entities(self) -> list[tuple[QuotaEntity, dict[str, float]]]:
        """All entities with their quotas."""
        return [(entity, dict(quotas)) for entity, quotas in self._table.items()]

    def check(self, entity: QuotaEntity, sets: Mapping[str, float]) -> None:
        """Raise InvalidQuotaError if the quotas are invalid."""
        entity.check()
        for name, value in sets.items():
            _check_quota(name, value)

    async def change(self, entity: QuotaEntity, sets: Mapping[str, float], removes: frozenset[str] = frozenset()) -> None:
        """Set and delete quotas of an entity atomically."""
        self.check(entity, sets)
        async with self._changing:
            quotas = {name: value for name, value in {**self._table.get(entity, {}), **sets}.items() if name not in removes}
            key = b"q" + json.dumps(list(entity)).encode()
            if quotas:
                await self._tablet.execute(Request((Write(key, b"", head=_pack(quotas)),)))
                self._table[entity] = quotas
            else:
                await self._tablet.execute(Request((DeleteRange(key, key + b"\0"),), makes_room=True))
                self._table.pop(entity, None)
            self._note_kinds()

    def limit(self, kind: str, user: str, client: str) -> RateLimit | None:
        """The limit that applies to a client of a user; None if there is none."""
        key = (kind, user, client)
        try:
            return self._found[key]
        except KeyError:
            pass
        if len(self._found) >= LIMITS_MAX:
            # Client ids are arbitrary: bound the cache by clearing it.
            self._found.clear()
            self._limits.clear()
        decided = self._found[key] = self._decide(kind, user, client)
        return decided

    def draw(self, kind: str, user: str, client: str, amount: int) -> int:
        """Count `amount` against a client's quota. Returns the throttle time in milliseconds."""
        limit = self.limit(kind, user, client)
        return 0 if limit is None else limit.draw(amount)

    def _decide(self, kind: str, user: str, client: str) -> RateLimit | None:
        rate, owner = self._quota(kind, user, client)
        if rate is None:
            return None
        limit = self._limits.get((kind, *owner))
        if limit is None:
            window_s = CHANGES_WINDOW_S if kind == CHANGES_QUOTA else BYTES_WINDOW_S
            limit = self._limits[kind, *owner] = RateLimit(rate, window_s, self._clock)
        return limit

    def _quota(self, kind: str, user: str, client: str) -> tuple[float | None, tuple[str, str]]:
        """The most specific quota that applies, and its entity."""
        both, of_user, of_client = (user, client), (user, ""), ("", client)
        for entity, owner in (
            (QuotaEntity(user, client), both),
            (QuotaEntity(user, DEFAULT), both),
            (QuotaEntity(user, None), of_user),
            (QuotaEntity(DEFAULT, client), both),
            (QuotaEntity(DEFAULT, DEFAULT), both),
            (QuotaEntity(DEFAULT, None), of_user),
            (QuotaEntity(None, client), of_client),
            (QuotaEntity(None, DEFAULT), of_client),
        ):
            rate = self._table.get(entity, {}).get(kind)
            if rate is not None:
                return rate, owner
        return self._rates.get(kind), of_client


def _check_quota(name: str, value: float) -> None:
    if name == "request_percentage":
        raise InvalidQuotaError("request_percentage cannot be set: how long the node works for each client is not measured")
    if name not in KEYS:
        raise InvalidQuotaError(f"unknown quota {name!r}; known are {', '.join(KEYS)}")
    if not (math.isfinite(value) and value > 0):
        raise InvalidQuotaError(f"{name} is more than 0, not {value:g}")
    if name != CHANGES_QUOTA and value != int(value):
        raise InvalidQuotaError(f"{name} is a whole number of bytes a second, not {value:g}")


def _load(tablet: TableTablet) -> dict[QuotaEntity, dict[str, float]]:
    return {QuotaEntity(*json.loads(key[1:])): _unpack(tablet.head(key) or b"") for key in tablet.keys(b"q", b"r")}


def _pack(quotas: Mapping[str, float]) -> bytes:
    return json.dumps({"version": VERSION, "quotas": quotas}).encode()


def _unpack(raw: bytes) -> dict[str, float]:
    fields = json.loads(raw)
    if fields["version"] > VERSION:
        raise ConfigError(f"a quota has format {fields['version']}; upgrade Penstock")
    quotas: dict[str, float] = fields["quotas"]
    return quotas
