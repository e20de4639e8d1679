"""A node that asks who its clients are: users sign in by password, and access rules hold for them as for Kafka's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ydb

from tests.e2e.running_node import RunningNode, penstock
from tests.e2e.ydb.ydb_node import connected, ydb_node, ydb_port

PASSWORD = "of the administrator"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node with an administrator and a user who has no rights yet."""
    folder = tmp_path_factory.mktemp("secured")
    _write_secret(folder / "password", PASSWORD)
    _write_secret(folder / "other", "of ann")
    with ydb_node(folder, ["--sasl", "true", "--admin-password-file", str(folder / "password")]) as node:
        _as_admin(node, folder, "user", "set", "ann", "--new-password-file", str(folder / "other"))
        yield node


def _write_secret(path: Path, secret: str) -> None:
    path.write_text(secret, encoding="utf-8")


def _as_admin(node: RunningNode, folder: Path, *argv: str) -> None:
    sign_in = ("--user", "admin", "--password-file", str(folder / "password"))
    done = penstock(*argv, *sign_in, variables={"PENSTOCK_BOOTSTRAP": node.bootstrap})
    assert done.returncode == 0, done.stderr


def _credentials(node: RunningNode, user: str, password: str) -> Any:
    config = ydb.DriverConfig(f"grpc://127.0.0.1:{ydb_port(node)}", "/local")
    return ydb.StaticCredentials(config, user, password)


def test_nobody_is_served_without_a_token(secured: RunningNode) -> None:
    with pytest.raises((ydb.Unauthenticated, ydb.issues.ConnectionFailure, TimeoutError)), connected(secured):
        pass


def test_a_wrong_password_is_refused(secured: RunningNode) -> None:
    with pytest.raises(ydb.Error, match="wrong user name or password"):
        _credentials(secured, "ann", "not hers").get_auth_token()
    with pytest.raises(ydb.Error, match="wrong user name or password"):
        _credentials(secured, "nobody", "at all").get_auth_token()


def test_the_administrator_may_do_everything(secured: RunningNode) -> None:
    with connected(secured, _credentials(secured, "admin", PASSWORD)) as driver:
        client = driver.topic_client
        client.create_topic("/local/mine", consumers=["reader"])
        with client.writer("/local/mine", producer_id="source") as writer:
            writer.write("hello")
        with client.reader("/local/mine", consumer="reader") as reader:
            assert reader.receive_message(timeout=30).data == b"hello"


def test_others_may_do_what_the_rules_allow(secured: RunningNode, tmp_path: Path) -> None:
    with connected(secured, _credentials(secured, "admin", PASSWORD)) as driver:
        driver.topic_client.create_topic("/local/hers", consumers=["reader"])
    _write_secret(tmp_path / "password", PASSWORD)
    with connected(secured, _credentials(secured, "ann", "of ann")) as driver:
        client = driver.topic_client
        with pytest.raises(ydb.Unauthorized, match="may not WRITE"), client.writer("/local/hers") as writer:
            writer.wait_init()
        with pytest.raises(ydb.Unauthorized, match="may not CREATE"):
            client.create_topic("/local/another")
        _as_admin(secured, tmp_path, "access", "allow", "ann", "write", "--topic", "hers")
        with client.writer("/local/hers") as writer:
            writer.write("by ann")
        with pytest.raises(ydb.Unauthorized, match="may not READ"), client.reader("/local/hers", consumer="reader") as reader:
            reader.receive_batch(timeout=30)
