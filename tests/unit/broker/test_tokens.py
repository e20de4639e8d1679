"""Tokens: what they stand for, and everything that ends them."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from penstock.broker import BadTokenError, Credential, Mechanism, Security, Tokens, Users
from penstock.broker.tokens import TOKEN_LIFE_S
from penstock.core.errors import MESSAGE_CHARACTERS_MAX, InvalidRequestError
from tests.sim_tablet import SimNode, on_node

SECRET = b"s" * 32
SECURITY = Security("admin", "secret", Random(1), secret=SECRET)


class WallClock:
    """A clock that stands where it is put."""

    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0

    def wall(self) -> float:
        """The time of day."""
        return self.now_s

    def monotonic(self) -> float:
        """The same."""
        return self.now_s


def credential(password: str, salt: bytes = b"salt of a user") -> Credential:
    return Credential.of_password(Mechanism.SCRAM_SHA_256, 4096, salt, password)


def with_tokens(check: Callable[[Tokens, Users, WallClock], Awaitable[None]]) -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        users = Users(tablet, SECURITY)
        await users.change([("anna", credential("first"))])
        clock = WallClock()
        await check(Tokens(tablet, users, SECURITY, clock), users, clock)

    on_node(scenario)


def refused(tokens: Tokens, token: str) -> str:
    with pytest.raises(BadTokenError) as caught:
        tokens.user_of(token)
    return str(caught.value)


@pytest.mark.parametrize("user", ["anna", "admin"])
def test_a_token_stands_for_its_user_until_it_expires(user: str) -> None:
    async def check(tokens: Tokens, users: Users, clock: WallClock) -> None:
        token = tokens.issue(user)
        clock.now_s += TOKEN_LIFE_S - 1
        assert tokens.user_of(token) == user
        clock.now_s += 2
        assert "expired" in refused(tokens, token)

    with_tokens(check)


def test_a_token_ends_with_the_password_and_with_the_user() -> None:
    async def check(tokens: Tokens, users: Users, clock: WallClock) -> None:
        token = tokens.issue("anna")
        await users.change([("anna", credential("second"))])
        refused(tokens, token)
        token = tokens.issue("anna")
        assert tokens.user_of(token) == "anna"
        await users.change([], [("anna", Mechanism.SCRAM_SHA_256)])
        refused(tokens, token)
        refused(tokens, tokens.issue("anna"))  # a user without a credential has no token either

    with_tokens(check)


def test_a_revoked_token_is_refused_also_after_a_restart() -> None:
    async def scenario(node: SimNode) -> None:
        clock = WallClock()
        users = Users(tablet := await node.kv(1), SECURITY)
        await users.change([("anna", credential("first"))])
        tokens = Tokens(tablet, users, SECURITY, clock)
        revoked, other = tokens.issue("anna"), tokens.issue("admin")
        await tokens.revoke("anna")
        refused(tokens, revoked)
        after = tokens.issue("anna")
        await node.close()
        node.start()
        tablet = await node.kv(2)
        tokens = Tokens(tablet, Users(tablet, SECURITY), SECURITY, clock)
        assert "revoked" in refused(tokens, revoked)
        assert (tokens.user_of(after), tokens.user_of(other)) == ("anna", "admin")

    on_node(scenario)


def test_what_is_no_token_is_refused() -> None:
    async def check(tokens: Tokens, users: Users, clock: WallClock) -> None:
        good = tokens.issue("anna")
        raw = base64.urlsafe_b64decode(good + "=" * (-len(good) % 4))
        name = base64.urlsafe_b64encode(b"anna").decode()
        bad = ["", ".", f"{name}.9999999999.", f"{base64.urlsafe_b64encode(b'no one').decode()}.9999999999."]
        bad += [good + "=", good + "A", good[:-1], "\xff" * 20, "A" * 100_000, good.replace(good[0], "*", 1)]
        # Every byte counts, those of the MAC included, and so does its length.
        for changed in [raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :] for at in range(len(raw))]:
            bad.append(base64.urlsafe_b64encode(changed).rstrip(b"=").decode())
        bad += [base64.urlsafe_b64encode(raw[:size]).rstrip(b"=").decode() for size in range(len(raw))]
        for token in bad:
            refused(tokens, token)
        assert tokens.user_of(good) == "anna"

    with_tokens(check)


def test_what_is_stored_is_not_enough_to_make_a_token() -> None:
    async def check(tokens: Tokens, users: Users, clock: WallClock) -> None:
        token = tokens.issue("anna")
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        stored = users.credentials("anna")[0]
        for key in (stored.stored_key, stored.server_key, stored.salt, b""):
            forged = raw[:-32] + hmac.digest(key, raw[:-32], "sha256")
            refused(tokens, base64.urlsafe_b64encode(forged).rstrip(b"=").decode())

    with_tokens(check)


def test_an_error_does_not_repeat_megabytes_of_what_was_sent() -> None:
    text = str(InvalidRequestError(f"there is no topic {'x' * 60_000_000!r}; name another"))
    assert len(text) <= MESSAGE_CHARACTERS_MAX
    assert text.startswith("there is no topic")
    assert text.endswith("name another")
