"""Profiles, and which server a command takes: its options, the environment, a profile, or the default."""

from __future__ import annotations

import argparse
import io
import stat
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.client_options import http_options
from penstock.cli.connection import Connection
from penstock.cli.failure import CommandError
from penstock.cli.main import main
from penstock.cli.profile_file import load_profiles, profiles_path

PROD = ["--bootstrap", "prod:9092", "--http", "https://prod:8080", "--user", "anna"]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))


def connection(*argv: str, **variables: str) -> Connection:
    arguments: argparse.Namespace = http_options().parse_args(argv)
    return Connection(arguments, variables)


def create(name: str, *argv: str) -> None:
    assert main(["profile", "create", name, *argv]) == 0


def test_only_the_owner_can_read_the_saved_password() -> None:
    create("prod", *PROD)
    assert stat.S_IMODE(profiles_path().stat().st_mode) == 0o600
    assert load_profiles().named("prod").password == "secret"


def test_the_first_profile_is_the_current_one_until_another_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    create("prod", *PROD)
    create("test", "--bootstrap", "test:9092")
    assert connection().address("bootstrap") == "prod:9092"
    assert main(["profile", "use", "test"]) == 0
    assert connection().address("bootstrap") == "test:9092"
    capsys.readouterr()
    main(["profile", "list", "--no-headers"])
    assert capsys.readouterr().out == "\tprod\tprod:9092\tanna\t\n*\ttest\ttest:9092\t\t\n"
    main(["profile", "delete", "test"])
    assert load_profiles().current is None


def test_a_profile_has_the_address_of_the_admin_api_and_the_user() -> None:
    create("prod", *PROD)
    assert connection().address("http") == "https://prod:8080"
    identity = connection().identity()
    assert (identity.user, identity.password) == ("anna", "secret")


@pytest.mark.parametrize(
    ("argv", "variables"),
    [
        (["--bootstrap", "other:1"], {}),
        (["--http", "http://other"], {}),
        ([], {"PENSTOCK_BOOTSTRAP": "other:1"}),
        (["--bootstrap", "other:1"], {"PENSTOCK_PROFILE": "prod"}),
    ],
)
def test_the_password_of_a_profile_goes_to_no_other_server(argv: list[str], variables: dict[str, str]) -> None:
    create("prod", *PROD)
    assert connection(*argv, **variables).identity().user is None


def test_a_profile_that_is_named_overrides_variables_but_not_options() -> None:
    create("prod", *PROD)
    named = connection("--profile", "prod", PENSTOCK_BOOTSTRAP="other:1", PENSTOCK_USER="bob")
    assert named.address("bootstrap") == "prod:9092"
    assert named.identity().user == "anna"
    assert connection("--profile", "prod", "--bootstrap", "new:1").address("bootstrap") == "new:1"
    assert connection(PENSTOCK_PROFILE="prod", PENSTOCK_BOOTSTRAP="other:1").address("bootstrap") == "prod:9092"


def test_without_anything_it_is_this_machine() -> None:
    assert connection().address("bootstrap") == "127.0.0.1:9092"
    assert connection().address("http") == "http://127.0.0.1:8080"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["create", "prod", "--bootstrap", "x:1"], "add --replace"),
        (["use", "absent"], "there is no profile 'absent'"),
        (["delete", "absent"], "there is no profile 'absent'"),
        (["create", "new", "--bootstrap", "x:1", "--password-file", "p"], "--password-file needs --user"),
    ],
)
def test_mistakes_are_told(argv: list[str], words: str, capsys: pytest.CaptureFixture[Any]) -> None:
    create("prod", *PROD)
    assert main(["profile", *argv]) != 0
    assert words in capsys.readouterr().err


def test_a_broken_file_is_told_with_its_path() -> None:
    profiles_path().parent.mkdir()
    profiles_path().write_text("{")
    with pytest.raises(CommandError, match=str(profiles_path())):
        connection().address("bootstrap")
