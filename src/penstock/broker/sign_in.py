"""Password checks of all gateways: off the event loop, a few at a time, with lockout of guessers.

A wrong password is answered after a fixed time, whether the user exists or not. After `PAIR_FAILURES` wrong ones for a user from
one address, that user is locked out there; after `SOURCE_FAILURES` for any users, the address is, but for those who have signed
in from it before. A lockout lasts a second, and twice as long with every further failure, up to five minutes; fifteen minutes
without a failure end it all.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
from collections import Counter, OrderedDict
from typing import Final
from weakref import WeakValueDictionary

from penstock.broker.users import Credential, Mechanism, Users
from penstock.core.clock import Clock
from penstock.core.errors import InvalidRequestError

log = logging.getLogger(__name__)

FAILURE_DELAY_S: Final = 0.25  # longer than any hash takes, so that the time reveals nothing
PAIR_FAILURES: Final = 10
SOURCE_FAILURES: Final = 50
LOCKOUT_S: Final = 1.0
LOCKOUT_S_MAX: Final = 300.0
FORGOTTEN_S: Final = 900.0
RECORDS_MAX: Final = 20_000
PROVEN_MAX: Final = 10_000
HASHED_AT_ONCE: Final = 2
HASHED_AT_ONCE_OF_SOURCE: Final = 1
LOGGED_FAILURES: Final = 3
NAME_SHOWN: Final = 100

WRONG, LOCKED_OUT = "wrong_password", "locked_out"


class WrongPasswordError(InvalidRequestError):
    """The user does not exist or the password is wrong; the error does not reveal which."""

    code = "authentication_failed"


class TooManyAttemptsError(InvalidRequestError):
    """Too many wrong passwords from an address; it is locked out."""

    code = "too_many_attempts"


class _Record:
    """The failures of an address, or of a user from it."""

    __slots__ = ("failures", "last_s", "locked_until_s")

    def __init__(self) -> None:
        self.failures = 0
        self.last_s = float("-inf")
        self.locked_until_s = float("-inf")


class SignIn:
    """Checks passwords, and locks out addresses that guess."""

    def __init__(self, users: Users, clock: Clock) -> None:
        self._users = users
        self._clock = clock
        self._records: OrderedDict[tuple[str, str | None], _Record] = OrderedDict()
        # Correct passwords are cached by a digest that includes the credential, so that a new credential invalidates them.
        self._proven: OrderedDict[bytes, None] = OrderedDict()
        self._turns = asyncio.Semaphore(HASHED_AT_ONCE)
        self._turns_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self.failures: Counter[tuple[str, str]] = Counter()  # by gateway and reason

    async def check_password(self, user: str, password: str, host: str, gateway: str) -> None:
        """Check a password. Raises WrongPasswordError, or TooManyAttemptsError during a lockout."""
        began_s = self._clock.monotonic()
        source = _source(host)
        self._check_pair(user, source, gateway)
        credential = next(iter(self._users.credentials(user)), None) or self._users.decoy(user, Mechanism.SCRAM_SHA_256)
        digest = hmac.digest(credential.stored_key, f"{source}\0{user}\0{password}".encode(errors="replace"), "sha256")
        if digest in self._proven:
            self._proven.move_to_end(digest)
            return
        if not await self._is_right(user, credential, password, source, gateway):
            raise await self.refuse(user, host, gateway, began_s)
        self.accept(user, host)
        self._proven[digest] = None
        if len(self._proven) > PROVEN_MAX:
            self._proven.popitem(last=False)

    def check_allowed(self, user: str, host: str, gateway: str) -> None:
        """Raise TooManyAttemptsError if the user is locked out at the address."""
        source = _source(host)
        self._check_pair(user, source, gateway)
        self._check(self._records.get((source, None)), source, gateway)

    async def refuse(self, user: str, host: str, gateway: str, began_s: float | None = None) -> WrongPasswordError:
        """Count a failure and wait for the failure delay. Returns the error to answer with."""
        now_s = self._clock.monotonic()
        source = _source(host)
        self.failures[gateway, WRONG] += 1
        own = self._count((source, user), PAIR_FAILURES, now_s)
        of_source = self._count((source, None), SOURCE_FAILURES, now_s)
        locked_s = max(own.locked_until_s, of_source.locked_until_s) - now_s
        if locked_s > 0:
            log.warning(
                "%s: wrong password for user %r over %s, %d times by now; locked out for %.0f s",
                source,
                user[:NAME_SHOWN],
                gateway,
                max(own.failures, of_source.failures),
                locked_s,
            )
        elif of_source.failures <= LOGGED_FAILURES:
            log.warning("%s: wrong password for user %r over %s", source, user[:NAME_SHOWN], gateway)
        await asyncio.sleep(max((now_s if began_s is None else began_s) + FAILURE_DELAY_S - self._clock.monotonic(), 0.0))
        return WrongPasswordError("wrong user name or password")

    def accept(self, user: str, host: str) -> None:
        """Reset the failures of an authenticated user at an address; those of the address itself remain."""
        self._records.pop((_source(host), user), None)

    def locked_out(self) -> int:
        """The number of addresses with a lockout."""
        now_s = self._clock.monotonic()
        return len({source for (source, _), record in self._records.items() if record.locked_until_s > now_s})

    async def _is_right(self, user: str, credential: Credential, password: str, source: str, gateway: str) -> bool:
        turns = self._turns_of.get(source)
        if turns is None:
            turns = self._turns_of[source] = asyncio.Semaphore(HASHED_AT_ONCE_OF_SOURCE)
        # A source that tries many passwords delays itself, not others.
        async with turns:
            self._check_pair(user, source, gateway)
            self._check(self._records.get((source, None)), source, gateway)
            async with self._turns:
                return await asyncio.to_thread(credential.is_of, password)

    def _check_pair(self, user: str, source: str, gateway: str) -> None:
        self._check(self._records.get((source, user)), source, gateway)

    def _check(self, record: _Record | None, source: str, gateway: str) -> None:
        if record is None:
            return
        left_s = record.locked_until_s - self._clock.monotonic()
        if left_s > 0:
            self.failures[gateway, LOCKED_OUT] += 1
            raise TooManyAttemptsError(f"too many wrong passwords came from {source}; try again in {left_s:.0f} s")

    def _count(self, key: tuple[str, str | None], failures_max: int, now_s: float) -> _Record:
        record = self._records.pop(key, None)
        if record is None or now_s - record.last_s > FORGOTTEN_S:
            record = _Record()
        self._records[key] = record
        record.failures += 1
        record.last_s = now_s
        over = record.failures - failures_max
        if over >= 0:
            record.locked_until_s = now_s + min(LOCKOUT_S * 2.0 ** min(over, 20), LOCKOUT_S_MAX)
        if len(self._records) > RECORDS_MAX:
            self._records.popitem(last=False)
        return record


def _source(host: str) -> str:
    """The key for failures: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped) if mapped is not None else str(ipaddress.ip_network((address, 64), strict=False))
    return host
