"""What the subcommands of `penstock user` do. A password never leaves the command: the node gets it salted and iterated."""

from __future__ import annotations

import secrets
import sys
from argparse import Namespace
from collections.abc import Callable
from getpass import getpass
from hashlib import pbkdf2_hmac
from pathlib import Path
from typing import Final

from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError, usage
from penstock.cli.kafka_client import CommandClient
from penstock.cli.output import Output
from penstock.kafka.client import RequestRefusedError
from penstock.kafka.protocol import keys, sasl

MECHANISMS: Final = {1: ("SCRAM-SHA-256", "sha256"), 2: ("SCRAM-SHA-512", "sha512")}
ITERATIONS: Final = 8192
SALT_SIZE: Final = 24

Action = Callable[[CommandClient, Namespace, Output], int]


def set_password(client: CommandClient, arguments: Namespace, output: Output) -> int:
    """Give a user a credential of every kind there is."""
    password = _new_password(arguments.name, arguments.new_password_file).encode()
    upsertions = []
    for number, (_, hash_name) in MECHANISMS.items():
        salt = secrets.token_bytes(SALT_SIZE)
        salted = pbkdf2_hmac(hash_name, password, salt, ITERATIONS)
        upsertions.append(
            sasl.ScramCredentialUpsertion(
                name=arguments.name, mechanism=number, iterations=ITERATIONS, salt=salt, salted_password=salted
            )
        )
    _alter(client, sasl.AlterUserScramCredentialsRequest(upsertions=upsertions))
    output.say(f"user {arguments.name} has a new password")
    if output.as_json:
        output.document({"name": arguments.name, "mechanisms": [name for name, _ in MECHANISMS.values()]})
    return ExitCode.OK


def list_users(client: CommandClient, _arguments: Namespace, output: Output) -> int:
    """Names and mechanisms; the administrator is not among them."""
    users = _users(client)
    if output.as_json:
        output.document([{"name": name, "mechanisms": [MECHANISMS[kind][0] for kind in kinds]} for name, kinds in users.items()])
    else:
        rows = [(name, ", ".join(MECHANISMS[kind][0] for kind in kinds)) for name, kinds in users.items()]
        output.rows(("name", "mechanisms"), rows)
    return ExitCode.OK


def remove(client: CommandClient, arguments: Namespace, output: Output) -> int:
    """Take all credentials of users away."""
    known = _users(client)
    for name in arguments.names:
        if name not in known:
            raise CommandError(f"there is no user {name!r}; `penstock user list` lists the users")
    gone = [sasl.ScramCredentialDeletion(name=name, mechanism=kind) for name in arguments.names for kind in known[name]]
    _alter(client, sasl.AlterUserScramCredentialsRequest(deletions=gone))
    for name in arguments.names:
        output.say(f"deleted user {name}")
    if output.as_json:
        output.document([{"name": name} for name in arguments.names])
    return ExitCode.OK


ACTIONS: Final[dict[str, Action]] = {"set": set_password, "list": list_users, "remove": remove}


def _users(client: CommandClient) -> dict[str, list[int]]:
    request = sasl.DescribeUserScramCredentialsRequest(users=None)
    answer = client.call(keys.DESCRIBE_USER_SCRAM_CREDENTIALS, request, sasl.DescribeUserScramCredentialsResponse)
    if answer.error_code:
        raise RequestRefusedError("users", answer.error_code, answer.error_message)
    return {result.user: [info.mechanism for info in result.credential_infos] for result in answer.results}


def _alter(client: CommandClient, request: sasl.AlterUserScramCredentialsRequest) -> None:
    answer = client.call(keys.ALTER_USER_SCRAM_CREDENTIALS, request, sasl.AlterUserScramCredentialsResponse)
    for result in answer.results:
        if result.error_code:
            raise RequestRefusedError(f"user {result.user!r}", result.error_code, result.error_message)


def _new_password(name: str, file: str | None) -> str:
    if file is not None:
        try:
            password = Path(file).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise usage(f"--new-password-file: {file} cannot be read: {error}") from error
    elif sys.stdin.isatty():
        password = getpass(f"new password of {name}: ")
        if getpass("repeat it: ") != password:
            raise usage("the passwords differ; nothing was changed")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise usage("the password is empty; nothing was changed")
    return password
