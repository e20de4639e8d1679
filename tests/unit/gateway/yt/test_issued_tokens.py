"""Tokens that the broker issued, sent to the YT port."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.broker import BadTokenError as InvalidTokenError
from penstock.gateway.yt.permissions import BadTokenError, Tokens


class IssuedTokens:
    """A broker's tokens: one is valid."""

    def user_of(self, token: str) -> str:
        """The user of the valid one."""
        if token != "AgAAvalid":
            raise InvalidTokenError("the token of 'anna' was revoked; sign in again")
        return "anna"


def user_of(authorization: str) -> str:
    broker: Any = SimpleNamespace(options=SimpleNamespace(security=object()), tokens=IssuedTokens())
    return asyncio.run(Tokens(cast(Any, broker)).user(authorization, "10.0.0.1"))


@pytest.mark.parametrize("scheme", ["OAuth", "Bearer"])
def test_an_issued_token_authenticates_its_user(scheme: str) -> None:
    assert user_of(f"{scheme} AgAAvalid") == "anna"


@pytest.mark.parametrize(
    ("authorization", "words"),
    [("OAuth AgAAother", "was revoked"), ("OAuth ", "issue-token"), ("Basic AgAAvalid", "issue-token")],
)
def test_other_tokens_are_refused(authorization: str, words: str) -> None:
    with pytest.raises(BadTokenError, match=words):
        user_of(authorization)
