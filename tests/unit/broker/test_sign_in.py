"""Guessing passwords is slow, ends in a lockout, and does not reveal which users exist."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from penstock.broker import Credential, Mechanism, Security, SignIn, TooManyAttemptsError, Users, WrongPasswordError
from penstock.broker import sign_in as module
from penstock.broker.sign_in import FORGOTTEN_S, HASHED_AT_ONCE, LOCKED_OUT, PAIR_FAILURES, SOURCE_FAILURES, WRONG
from tests.sim_tablet import SimNode, on_node

HERE, THERE = "10.0.0.1", "10.0.0.2"
SECURITY = Security("admin", "secret", Random(1), secret=b"s" * 32)


class HandClock:
    """A clock that is moved by hand."""

    now_s = 1000.0

    def wall(self) -> float:
        """The time."""
        return self.now_s

    def monotonic(self) -> float:
        """The time."""
        return self.now_s


class FewUsers:
    """Users anna and ben, whose password is their name; how many passwords are checked at a time is seen."""

    def __init__(self, seen: Callable[[int], None] = lambda _: None) -> None:
        self._seen = seen
        self._lock = threading.Lock()
        self._running = 0

    def credentials(self, user: str) -> list[Any]:
        """What is known of a user."""
        return [self._Checked(self, user)] if user in ("anna", "ben") else []

    def decoy(self, user: str, mechanism: Mechanism) -> Any:
        """What no password fits."""
        return self._Checked(self, "")

    class _Checked:
        def __init__(self, users: FewUsers, password: str) -> None:
            self._users = users
            self._password = password
            self.stored_key = b"key of " + password.encode()

        def is_of(self, password: str) -> bool:
            users = self._users
            with users._lock:
                users._running += 1
                users._seen(users._running)
            time.sleep(0.001)
            with users._lock:
                users._running -= 1
            return bool(self._password) and password == self._password


@pytest.fixture(autouse=True)
def _prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FAILURE_DELAY_S", 0.0)


def run(scenario: Callable[[SignIn, HandClock], Coroutine[Any, Any, None]], users: FewUsers | None = None) -> SignIn:
    clock = HandClock()
    sign_in = SignIn(users or FewUsers(), clock)  # type: ignore[arg-type]
    asyncio.run(asyncio.wait_for(scenario(sign_in, clock), 60))
    return sign_in


async def attempt(sign_in: SignIn, user: str, password: str, host: str = HERE) -> str:
    """How an attempt ends."""
    try:
        await sign_in.check_password(user, password, host, "test")
    except WrongPasswordError:
        return WRONG
    except TooManyAttemptsError:
        return LOCKED_OUT
    return "ok"


def test_a_user_is_locked_out_where_too_many_wrong_passwords_come_from() -> None:
    async def scenario(sign_in: SignIn, clock: HandClock) -> None:
        for _ in range(PAIR_FAILURES):
            assert await attempt(sign_in, "anna", "guess") == WRONG
        assert await attempt(sign_in, "anna", "guess") == LOCKED_OUT
        assert await attempt(sign_in, "anna", "anna") == LOCKED_OUT, "the right one does not tell itself either"
        with pytest.raises(TooManyAttemptsError):
            sign_in.check_allowed("anna", HERE, "test")
        assert await attempt(sign_in, "anna", "anna", THERE) == "ok", "elsewhere"
        assert await attempt(sign_in, "ben", "ben") == "ok", "another user"
        assert sign_in.locked_out() == 1
        clock.now_s += 1.1
        assert await attempt(sign_in, "anna", "guess") == WRONG, "one more guess, and then twice as long"
        clock.now_s += 1.1
        assert await attempt(sign_in, "anna", "anna") == LOCKED_OUT
        clock.now_s += 1.0
        assert await attempt(sign_in, "anna", "anna") == "ok"
        assert await attempt(sign_in, "anna", "guess") == WRONG, "and all is as at first"

    sign_in = run(scenario)
    assert sign_in.failures == {("test", WRONG): PAIR_FAILURES + 2, ("test", LOCKED_OUT): 4}


def test_an_address_that_tries_many_users_is_locked_out_but_for_those_who_proved_themselves() -> None:
    async def scenario(sign_in: SignIn, clock: HandClock) -> None:
        assert await attempt(sign_in, "anna", "anna") == "ok"
        for number in range(SOURCE_FAILURES):
            assert await attempt(sign_in, f"user {number}", "guess") == WRONG
        assert await attempt(sign_in, "anna", "anna") == "ok"
        assert await attempt(sign_in, "ben", "ben") == LOCKED_OUT
        assert await attempt(sign_in, "anna", "guess") == LOCKED_OUT
        assert await attempt(sign_in, "ben", "ben", THERE) == "ok"
        clock.now_s += FORGOTTEN_S + 1
        assert await attempt(sign_in, "ben", "ben") == "ok"

    run(scenario)


def test_attempts_at_the_same_time_count_as_many() -> None:
    async def scenario(sign_in: SignIn, clock: HandClock) -> None:
        found = await asyncio.gather(*(attempt(sign_in, "anna", f"guess {number}") for number in range(200)))
        assert found.count(WRONG) <= PAIR_FAILURES + 1
        assert found.count("ok") == 0

    run(scenario)


def test_few_passwords_are_hashed_at_a_time_and_of_one_address_one() -> None:
    at_once: list[int] = []

    async def flood(sign_in: SignIn, clock: HandClock) -> None:
        await asyncio.gather(*(attempt(sign_in, f"user {number}", "guess") for number in range(20)))
        assert max(at_once) == 1
        await asyncio.gather(*(attempt(sign_in, "ben", "guess", f"10.0.1.{number}") for number in range(20)))

    run(flood, FewUsers(at_once.append))
    assert max(at_once) <= HASHED_AT_ONCE


def test_a_network_of_ipv6_counts_as_one_address() -> None:
    async def scenario(sign_in: SignIn, clock: HandClock) -> None:
        for number in range(PAIR_FAILURES):
            assert await attempt(sign_in, "anna", "guess", f"2001:db8::{number:x}") == WRONG
        assert await attempt(sign_in, "anna", "anna", "2001:db8::ffff") == LOCKED_OUT
        assert await attempt(sign_in, "anna", "anna", "2001:db8:1::1") == "ok"
        assert await attempt(sign_in, "anna", "guess", "::ffff:10.0.0.1") == WRONG

    run(scenario)


def test_what_is_remembered_of_failures_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECORDS_MAX", 10)

    async def scenario(sign_in: SignIn, clock: HandClock) -> None:
        for number in range(30):
            await sign_in.refuse("anna", f"10.0.0.{number}", "test")
        assert len(sign_in._records) == 10

    run(scenario)


def test_an_unknown_user_looks_like_a_known_one() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        users = Users(tablet, SECURITY)
        mechanism = Mechanism.SCRAM_SHA_256
        known = {
            f"user {number}": Credential.of_password(mechanism, 4096 + number % 3, bytes(20 + number % 2), "pencil")
            for number in range(12)
        }
        await users.change(known.items())
        shapes = {(one.iterations, len(one.salt)) for one in [*known.values(), users.credentials("admin")[0]]}
        decoys = {f"no {number}": users.decoy(f"no {number}", mechanism) for number in range(200)}
        assert {(one.iterations, len(one.salt)) for one in decoys.values()} == shapes
        assert len({one.salt for one in decoys.values()}) == len(decoys)
        assert not any(one.is_of("pencil") or one.is_of("") for one in list(decoys.values())[:3])
        await node.close()
        node.start()
        again = Users(await node.kv(2), SECURITY)
        assert again.credentials("admin") == users.credentials("admin"), "the administrator does not change either"
        assert all(again.decoy(name, mechanism) == one for name, one in decoys.items())

    on_node(scenario)
