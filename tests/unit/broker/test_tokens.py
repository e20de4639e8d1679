"""Tokens: what they stand for, and everything that ends them."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from penstock.broker import (
    BadTokenError,
    Credential,
    Mechanism,
    Security,
    TokenKind,
    Tokens,
    TooManyTokensError,
    UnknownTokenError,
    UnknownUserError,
    Users,
)
from penstock.broker import tokens as tokens_module
from penstock.broker.tokens import CLEAN_INTERVAL_S, TOKEN_LIFE_S
from penstock.core.errors import MESSAGE_CHARACTERS_MAX, InvalidRequestError, OutOfSpaceError
from penstock.tablet import KvTablet, Request, Result
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


async def issue(tokens: Tokens, user: str) -> str:
    return (await tokens.issue(user, TokenKind.YDB, "10.0.0.1"))[0]


def refused(tokens: Tokens, token: str) -> str:
    with pytest.raises(BadTokenError) as caught:
        tokens.user_of(token)
    return str(caught.value)


@pytest.mark.parametrize("user", ["anna", "admin"])
def test_a_token_stands_for_its_user_until_it_expires(user: str) -> None:
    async def check(tokens: Tokens, users: Users, clock: WallClock) -> None:
        token = await issue(tokens, user)
        clock.now_s += TOKEN_LIFE_S - 1
        assert tokens.user_of(token) == user
        clock.now_s += 2
        assert "expired" in refused(tokens, token)

    with_tokens(check)


def test_a_token_ends_with_the_password_and_with_the_user() -> None:
    async def check(tokens: Tokens, users: Users, clock: WallClock) -> None:
        token = await issue(tokens, "anna")
        await users.change([("anna", credential("second"))])
        refused(tokens, token)
        token = await issue(tokens, "anna")
        assert tokens.user_of(token) == "anna"
        await users.change([], [("anna", Mechanism.SCRAM_SHA_256)])
        refused(tokens, token)
        with pytest.raises(UnknownUserError):  # a user without a credential has no token either
            await issue(tokens, "anna")

    with_tokens(check)


def test_a_revoked_token_is_refused_also_after_a_restart() -> None:
    async def scenario(node: SimNode) -> None:
        clock = WallClock()
        users = Users(tablet := await node.kv(1), SECURITY)
        await users.change([("anna", credential("first"))])
        tokens = Tokens(tablet, users, SECURITY, clock)
        revoked, other = await issue(tokens, "anna"), await issue(tokens, "admin")
        await tokens.revoke_all("anna")
        refused(tokens, revoked)
        after = await issue(tokens, "anna")
        await node.close()
        node.start()
        tablet = await node.kv(2)
        tokens = Tokens(tablet, Users(tablet, SECURITY), SECURITY, clock)
        assert "revoked" in refused(tokens, revoked)
        assert (tokens.user_of(after), tokens.user_of(other)) == ("anna", "admin")

    on_node(scenario)


def test_one_of_several_tokens_is_revoked_also_after_a_restart() -> None:
    async def scenario(node: SimNode) -> None:
        clock = WallClock()
        users = Users(tablet := await node.kv(1), SECURITY)
        await users.change([("anna", credential("first"))])
        tokens = Tokens(tablet, users, SECURITY, clock)
        kept, _ = await tokens.issue("anna", TokenKind.SESSION, "Firefox at 10.0.0.1")
        lost, record = await tokens.issue("anna", TokenKind.API, "nightly job", 90)
        assert record is not None
        assert (record.name, record.kind, record.expires_s - record.created_s) == ("nightly job", TokenKind.API, 90)
        await tokens.revoke(tokens.record(record.id))
        assert "revoked" in refused(tokens, lost)
        await node.close()
        node.start()
        tablet = await node.kv(2)
        tokens = Tokens(tablet, Users(tablet, SECURITY), SECURITY, clock)
        assert "revoked" in refused(tokens, lost)
        assert tokens.user_of(kept) == "anna"
        assert [each.name for each in tokens.records("anna")] == ["Firefox at 10.0.0.1"]

    on_node(scenario)


def test_only_valid_tokens_are_listed() -> None:
    async def check(tokens: Tokens, users: Users, clock: WallClock) -> None:
        await tokens.issue("anna", TokenKind.API, "short", 60)
        await tokens.issue("admin", TokenKind.API, "of the administrator", 6000)
        clock.now_s += 1
        _, record = await tokens.issue("anna", TokenKind.API, "long", 6000)
        assert record is not None
        assert [each.name for each in tokens.records()] == ["long", *sorted(["short", "of the administrator"], key=ids(tokens))]
        clock.now_s += 100
        assert [each.name for each in tokens.records("anna")] == ["long"]
        await users.change([("anna", credential("second"))])
        assert [each.user for each in tokens.records()] == ["admin"]
        with pytest.raises(UnknownTokenError):
            tokens.record(record.id)

    with_tokens(check)


def ids(tokens: Tokens) -> Callable[[str], str]:
    return {record.name: record.id for record in tokens.records()}.__getitem__


def test_records_of_tokens_that_have_ended_are_deleted_in_time() -> None:
    async def scenario(node: SimNode) -> None:
        clock = WallClock()
        tablet = await node.kv(1)
        tokens = Tokens(tablet, Users(tablet, SECURITY), SECURITY, clock)
        for _ in range(3):
            await tokens.issue("admin", TokenKind.API, "short", 60)
        clock.now_s += CLEAN_INTERVAL_S
        await tokens.issue("admin", TokenKind.API, "new", 60)
        assert len(list(tablet.keys(b"k", b"l"))) == 1

    on_node(scenario)


def test_a_user_with_too_many_tokens_loses_the_oldest_session_and_gets_no_more_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(tokens: Tokens, users: Users, clock: WallClock) -> None:
        named, _ = await tokens.issue("anna", TokenKind.API, "job")
        sessions = []
        for _ in range(3):
            clock.now_s += 1
            sessions.append((await tokens.issue("anna", TokenKind.SESSION, "browser"))[0])
        assert "revoked" in refused(tokens, sessions[0])
        assert {tokens.user_of(token) for token in (named, *sessions[1:])} == {"anna"}
        with pytest.raises(TooManyTokensError, match="revoke"):
            await tokens.issue("anna", TokenKind.API, "another job")

    monkeypatch.setattr(tokens_module, "TOKENS_PER_USER_MAX", 3)
    with_tokens(check)


class FullTablet:
    """A tablet on a full disk."""

    generation = 1

    def __init__(self, tablet: KvTablet) -> None:
        self.keys, self.head = tablet.keys, tablet.head

    async def execute(self, request: Request) -> list[Result]:
        """Refuse."""
        raise OutOfSpaceError("the disk is full")


def test_people_can_sign_in_while_the_disk_is_full() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        tokens = Tokens(FullTablet(tablet), Users(tablet, SECURITY), SECURITY, WallClock())
        token, record = await tokens.issue("admin", TokenKind.SESSION, "Firefox at 10.0.0.1")
        assert record is None
        assert tokens.user_of(token) == "admin"
        await tokens.revoke_session(token)  # has nothing to delete, and does not fail
        with pytest.raises(OutOfSpaceError):
            await tokens.issue("admin", TokenKind.API, "job")

    on_node(scenario)


def test_what_is_no_token_is_refused() -> None:
    async def check(tokens: Tokens, users: Users, clock: WallClock) -> None:
        good = await issue(tokens, "anna")
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
        token = await issue(tokens, "anna")
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
