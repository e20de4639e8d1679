"""Stored bytes of users, tokens, access rules and quotas, pinned: what an older Penstock wrote must stay readable.

A file here changes only together with the version in its format and code that still reads the old one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from penstock.broker import (
    AccessRule,
    Credential,
    Mechanism,
    Operation,
    Permission,
    ResourceKind,
    RuleFilter,
    RulePattern,
    Security,
    TokenKind,
    TokenRecord,
    Tokens,
    Users,
)
from penstock.broker.access import AccessRules
from penstock.broker.quotas import CHANGES_QUOTA, PRODUCE_QUOTA, QuotaEntity, Quotas
from penstock.broker.system_tablet import TableTablet
from penstock.core.clock import SystemClock
from penstock.tablet import Request, Write
from tests.sim_tablet import SimNode, on_node

FOLDER = Path(__file__).parent
RULE = AccessRule(ResourceKind.TOPIC, "orders-", RulePattern.PREFIXED, "User:anna", "10.0.0.1", Operation.WRITE, Permission.DENY)
CREDENTIAL = Credential(Mechanism.SCRAM_SHA_512, 5000, b"\x01salt", b"\x02stored", b"\x03server")


TOKEN = TokenRecord(
    "f5b165224a58b791", "admin", TokenKind.API, "nightly report", 1_800_000_000, 1_800_003_600, "0851e07fb16e941f"
)


class FixedClock:
    """A clock that does not move."""

    def wall(self) -> float:
        """The time of day."""
        return TOKEN.created_s

    monotonic = wall


def tokens_of_admin(tablet: TableTablet) -> Tokens:
    security = Security("admin", "secret", Random(1), secret=b"s" * 32)
    return Tokens(tablet, Users(tablet, security), security, FixedClock())


async def add_token(tablet: TableTablet) -> None:
    await tokens_of_admin(tablet).issue("admin", TokenKind.API, TOKEN.name, 3600)


def token_of(tablet: TableTablet) -> object:
    return tokens_of_admin(tablet).records()


async def add_rule(tablet: TableTablet) -> None:
    await AccessRules(tablet).add([RULE])


async def add_user(tablet: TableTablet) -> None:
    await Users(tablet, None).change([("anna", CREDENTIAL)])


async def add_quota(tablet: TableTablet) -> None:
    quotas = Quotas(tablet, {}, SystemClock())
    await quotas.change(QuotaEntity("anna", ""), {PRODUCE_QUOTA: 1000.0, CHANGES_QUOTA: 0.5})


def rules_of(tablet: TableTablet) -> object:
    return AccessRules(tablet).matching(RuleFilter())


def users_of(tablet: TableTablet) -> object:
    users = Users(tablet, None)
    return {name: users.credentials(name) for name in users.names()}


def quotas_of(tablet: TableTablet) -> object:
    return Quotas(tablet, {}, SystemClock()).entities()


CASES: dict[str, tuple[Callable[[TableTablet], object], object]] = {
    "access_rule": (rules_of, [RULE]),
    "user_credential": (users_of, {"anna": [CREDENTIAL]}),
    "token_record": (token_of, [TOKEN]),
    "client_quota": (quotas_of, [(QuotaEntity("anna", ""), {PRODUCE_QUOTA: 1000.0, CHANGES_QUOTA: 0.5})]),
}
WRITERS = {"access_rule": add_rule, "user_credential": add_user, "token_record": add_token, "client_quota": add_quota}


def stored(name: str) -> tuple[bytes, bytes]:
    """A key and its value as they were written once."""
    key, value = (FOLDER / f"{name}.hex").read_text().split()
    return bytes.fromhex(key), bytes.fromhex(value)


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_does_not_drift(name: str) -> None:
    async def scenario(node: SimNode) -> list[tuple[bytes, bytes | None]]:
        tablet = await node.kv(1)
        await WRITERS[name](tablet)
        return [(key, tablet.head(key)) for key in tablet.keys(b"", None)]

    assert on_node(scenario) == [stored(name)]


@pytest.mark.parametrize("name", CASES)
def test_what_was_written_is_read(name: str) -> None:
    read, expected = CASES[name]

    async def scenario(node: SimNode) -> object:
        tablet = await node.kv(1)
        key, value = stored(name)
        await tablet.execute(Request((Write(key, b"", head=value),)))
        return read(tablet)

    assert on_node(scenario) == expected
