"""What the subcommands of `penstock user` do that are about tokens."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from penstock.cli.exit_codes import ExitCode
from penstock.cli.http_api import HttpApi
from penstock.cli.output import Output

PAGE: Final = 500
KINDS: Final = {"session": "browser", "ydb": "YDB client", "api": "program"}

TokenAction = Callable[[HttpApi, Namespace, Output], int]


def list_tokens(api: HttpApi, arguments: Namespace, output: Output) -> int:
    """The valid tokens that the user may see, newest first."""
    tokens = [token for token in _tokens(api) if not arguments.names or token["user"] in arguments.names]
    if output.as_json:
        output.document(tokens)
    else:
        rows = [
            (
                token["id"],
                token["user"],
                KINDS[token["kind"]],
                token["name"],
                _time(token["created_ms"]),
                _time(token["expires_ms"]),
            )
            for token in tokens
        ]
        output.rows(("id", "user", "kind", "name", "created", "expires"), rows)
    return ExitCode.OK


def issue(api: HttpApi, arguments: Namespace, output: Output) -> int:
    """Print a new token, and nothing else, for a pipe."""
    body = {"name": arguments.purpose, "life_s": arguments.life_ms // 1000}
    token = api.call("POST", f"/users/{quote(arguments.name, safe='')}/tokens", body)
    if output.as_json:
        output.document(token)
    else:
        output.line(token["token"])
    return ExitCode.OK


def revoke(api: HttpApi, arguments: Namespace, output: Output) -> int:
    """Revoke all tokens of users."""
    for name in arguments.names:
        api.call("DELETE", f"/users/{quote(name, safe='')}/tokens")
        output.say(f"revoked the tokens of user {name}")
    if output.as_json:
        output.document([{"name": name} for name in arguments.names])
    return ExitCode.OK


def revoke_token(api: HttpApi, arguments: Namespace, output: Output) -> int:
    """Revoke some tokens."""
    for token_id in arguments.ids:
        api.call("DELETE", f"/tokens/{quote(token_id, safe='')}")
        output.say(f"revoked token {token_id}")
    if output.as_json:
        output.document([{"id": token_id} for token_id in arguments.ids])
    return ExitCode.OK


TOKEN_ACTIONS: Final[dict[str, TokenAction]] = {
    "tokens": list_tokens,
    "issue-token": issue,
    "revoke": revoke,
    "revoke-token": revoke_token,
}


def _tokens(api: HttpApi) -> Iterator[dict[str, Any]]:
    offset = 0
    while True:
        page = api.get(f"/tokens?limit={PAGE}&offset={offset}")
        yield from page["items"]
        offset += PAGE
        if offset >= page["total"]:
            return


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
