"""A node that asks who its clients are: users sign in by password, and access rules hold for them as for Kafka's."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import ydb

from penstock.gateway.ydb.protos import discovery
from tests.e2e.running_node import RunningNode, penstock
from tests.e2e.ydb.raw_stream import RawStream
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
        node.ready["log"] = folder / "log"
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
    with pytest.raises(ydb.ConnectionFailure, match="no valid token"), connected(secured):
        pass


def test_a_wrong_password_is_refused(secured: RunningNode) -> None:
    with pytest.raises(ydb.Error, match="wrong user name or password"):
        _credentials(secured, "ann", "not hers").get_auth_token()
    with pytest.raises(ydb.Error, match="wrong user name or password"):
        _credentials(secured, "stranger", "at all").get_auth_token()


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


def _who_am_i(node: RunningNode, token: str | None) -> tuple[str, grpc.StatusCode]:
    """Whom a token stands for, and with which status of gRPC that was answered."""
    with grpc.insecure_channel(f"127.0.0.1:{ydb_port(node)}") as channel:
        call = channel.unary_unary(
            "/Ydb.Discovery.V1.DiscoveryService/WhoAmI",
            request_serializer=discovery.WhoAmIRequest.SerializeToString,
            response_deserializer=discovery.WhoAmIResponse.FromString,
        )
        try:
            response = call(
                discovery.WhoAmIRequest(),
                timeout=30,
                metadata=[("x-ydb-database", "/local"), *([("x-ydb-auth-ticket", token)] if token is not None else [])],
            )
        except grpc.RpcError as error:
            return "", error.code()
        result = discovery.WhoAmIResult()
        response.operation.result.Unpack(result)
        return result.user, grpc.StatusCode.OK


def test_a_token_that_was_not_given_out_is_unauthenticated(secured: RunningNode, tmp_path: Path) -> None:
    good = _credentials(secured, "ann", "of ann").get_auth_token()
    assert _who_am_i(secured, good) == ("ann", grpc.StatusCode.OK)
    no_one, ann = (urlsafe_b64encode(name).decode() for name in (b"no one", b"ann"))
    for token in (None, "", f"{no_one}.9999999999.", f"{ann}.9999999999.", good[:-1], good + "A", "x" * 5000):
        assert _who_am_i(secured, token) == ("", grpc.StatusCode.UNAUTHENTICATED), token
    assert "Traceback" not in secured.ready["log"].read_text()


def test_a_stream_with_a_bad_token_is_unauthenticated(secured: RunningNode) -> None:
    with RawStream(ydb_port(secured), "StreamWrite") as stream, pytest.raises(grpc.RpcError) as caught:
        stream.receive()
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_a_new_password_ends_the_tokens_of_the_old_one(secured: RunningNode, tmp_path: Path) -> None:
    _write_secret(tmp_path / "password", PASSWORD)
    _write_secret(tmp_path / "other", "of ben")
    setting = ("user", "set", "ben", "--new-password-file", str(tmp_path / "other"))
    _as_admin(secured, tmp_path, *setting)
    token = _credentials(secured, "ben", "of ben").get_auth_token()
    assert _who_am_i(secured, token)[0] == "ben"
    _as_admin(secured, tmp_path, *setting)
    assert _who_am_i(secured, token) == ("", grpc.StatusCode.UNAUTHENTICATED)
    token = _credentials(secured, "ben", "of ben").get_auth_token()
    _as_admin(secured, tmp_path, "user", "remove", "ben")
    assert _who_am_i(secured, token) == ("", grpc.StatusCode.UNAUTHENTICATED)


def test_a_token_outlives_a_restart_but_not_the_secret_it_was_made_with(tmp_path: Path) -> None:
    _write_secret(tmp_path / "password", PASSWORD)
    argv = ["--sasl", "true", "--admin-password-file", str(tmp_path / "password")]
    with ydb_node(tmp_path, argv) as node:
        token = _credentials(node, "admin", PASSWORD).get_auth_token()
    with ydb_node(tmp_path, argv) as node:
        assert _who_am_i(node, token)[0] == "admin"
    secret = tmp_path / "data" / "secret.json"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert not any(
        bytes.fromhex(json.loads(secret.read_text())["secret"]) in path.read_bytes()
        for path in (tmp_path / "data").rglob("*")
        if path.is_file() and path != secret
    )
    secret.unlink()
    with ydb_node(tmp_path, argv) as node:
        assert _who_am_i(node, token) == ("", grpc.StatusCode.UNAUTHENTICATED)


def test_tokens_are_revoked_by_a_command(tmp_path: Path) -> None:
    _write_secret(tmp_path / "password", PASSWORD)
    argv = ["--sasl", "true", "--admin-password-file", str(tmp_path / "password"), "--http-port", "0"]
    with ydb_node(tmp_path, argv) as node:
        credentials = _credentials(node, "admin", PASSWORD)
        token = credentials.get_auth_token()
        http = f"http://127.0.0.1:{node.ready['listeners']['http']['port']}"
        sign_in = ("--http", http, "--user", "admin", "--password-file", str(tmp_path / "password"))
        done = penstock("user", "revoke", "admin", *sign_in)
        assert (done.returncode, done.stdout) == (0, b"revoked the tokens of user admin\n"), done.stderr
        assert _who_am_i(node, token) == ("", grpc.StatusCode.UNAUTHENTICATED)
        assert _who_am_i(node, _credentials(node, "admin", PASSWORD).get_auth_token())[0] == "admin"
        unknown = penstock("user", "revoke", "no one", *sign_in)
        assert unknown.returncode == 1
        assert b"there is no user" in unknown.stderr
