"""Who may call the admin API, from where, and what it lets each do."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.e2e.http.api_client import JSON, ApiClient, client_of, eventually
from tests.e2e.kafka.secured import CERTIFICATE
from tests.e2e.running_node import RunningNode, penstock, running_node
from tests.e2e.test_secured_node import PASSWORD, secured_node

READER, READER_PASSWORD = "reader", "read: all about it"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with secured_node(tmp_path_factory.mktemp("secured"), tls=True, more=["--http-port", "0"]) as running:
        admin = client_of(running, user="admin", password=PASSWORD, tls=_trusting())
        for name in ("mine", "other"):
            admin.post("/topics", {"name": name, "partitions": 2})
            admin.post(f"/topics/{name}/messages", {"value": name, "partition": 0})
        signed_in = {
            "PENSTOCK_BOOTSTRAP": running.bootstrap,
            "PENSTOCK_USER": "admin",
            "PENSTOCK_PASSWORD": PASSWORD,
            "PENSTOCK_TLS_CA": str(CERTIFICATE),
        }
        made = penstock("user", "set", READER, stdin=READER_PASSWORD.encode() + b"\n", variables=signed_in)
        assert made.returncode == 0, made.stderr
        for group in ("mine-group", "other-group"):
            topic = group.partition("-")[0]
            done = penstock("group", "reset", group, "--topic", topic, "--to", "earliest", "--yes", variables=signed_in)
            assert done.returncode == 0, done.stderr
        for resource in (["--topic", "mine"], ["--group", "mine-group"]):
            allowed = penstock("access", "allow", *resource, READER, "read", variables=signed_in)
            assert allowed.returncode == 0, allowed.stderr
        yield running


@pytest.fixture
def admin(secured: RunningNode) -> ApiClient:
    return client_of(secured, user="admin", password=PASSWORD, tls=_trusting())


@pytest.fixture
def reader(secured: RunningNode) -> ApiClient:
    return client_of(secured, user=READER, password=READER_PASSWORD, tls=_trusting())


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(CERTIFICATE))
    context.check_hostname = False
    return context


def test_nobody_gets_in_without_a_password(secured: RunningNode) -> None:
    anonymous = client_of(secured, tls=_trusting())
    for path in ("/cluster", "/topics", "/openapi.json", "/topics/mine/messages", "/nothing"):
        refused = anonymous.call("GET", path)
        assert (refused.status, refused.code) == (401, "NOT_SIGNED_IN")
        assert refused.headers["www-authenticate"].startswith("Basic")
    assert anonymous.send("GET", "/").status == 200, "the page of the console, which asks for the password"
    assert anonymous.send("GET", "/docs/").status == 401
    assert anonymous.send("GET", "/metrics").status == 401
    assert anonymous.send("GET", "/healthz").status == 200
    for user, password in (("admin", "wrong"), (READER, PASSWORD), ("stranger", ""), ("", PASSWORD)):
        wrong = client_of(secured, user=user, password=password, tls=_trusting())
        assert wrong.call("GET", "/cluster").status == 401
    garbled = anonymous.send("GET", "/api/v1/cluster", headers={"Authorization": "Basic \xff\xfe"})
    assert garbled.status == 401


def test_without_tls_nothing_is_answered(secured: RunningNode) -> None:
    listener = secured.ready["listeners"]["http"]
    with socket.create_connection((listener["host"], listener["port"]), timeout=5) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with suppress(ConnectionResetError):
            assert not plain.recv(100).startswith(b"HTTP")


def test_a_user_sees_what_rules_let_it_see(reader: ApiClient, admin: ApiClient) -> None:
    assert reader.get("/cluster")["user"] == READER
    assert [item["name"] for item in reader.get("/topics")["items"]] == ["mine"]
    assert {"mine", "other"} <= {item["name"] for item in admin.get("/topics")["items"]}
    assert reader.get("/topics/mine")["messages"] == 1
    assert reader.get("/topics/mine/messages")["items"][0]["value"]["data"] == "mine"
    # Lists are at most a few seconds old.
    eventually(lambda: [item["name"] for item in reader.get("/consumers")["items"]] == ["mine-group"])
    assert reader.get("/consumers/mine-group")["lag_messages"] == 1
    overview = reader.get("/overview")
    assert (overview["topics"], overview["consumers"], overview["storage"]) == (1, 1, None)
    assert [item["name"] for item in reader.get("/queues")["items"]] == ["mine"]
    assert reader.call("PUT", "/queues/mine/registrations/mine-group", {"vital": False}).status == 200
    assert reader.post("/consumers/mine-group/reset", {"topic": "mine", "to": "latest", "dry_run": True})["items"]


def test_a_user_learns_what_it_may_do_and_signs_out(reader: ApiClient, admin: ApiClient) -> None:
    assert reader.get("/rights", kind="topic", name="mine")["operations"] == ["READ", "DESCRIBE"]
    assert reader.get("/rights", kind="topic", name="other")["operations"] == []
    assert reader.get("/rights", kind="cluster")["operations"] == []
    assert "READ" in reader.get("/rights", kind="topic")["operations"], "of some topic"
    assert {"CREATE", "ALTER"} <= set(admin.get("/rights", kind="cluster")["operations"])
    assert reader.call("POST", "/sign-out", {}).headers["clear-site-data"] == '"cookies"'


def test_a_session_is_a_cookie_that_ends_with_the_tokens_of_the_user(secured: RunningNode, admin: ApiClient) -> None:
    anonymous = client_of(secured, tls=_trusting())
    refused = anonymous.call("POST", "/sign-in", {"user": READER, "password": "wrong"})
    assert (refused.status, refused.code) == (401, "NOT_SIGNED_IN")
    cookie = _signed_in(anonymous)
    name, _, attributes = cookie.partition("=")
    assert name.startswith("penstock_session_")
    assert {"HttpOnly", "Secure", "SameSite=Strict"} <= set(attributes.split("; "))
    session = {"Cookie": cookie.partition(";")[0]}
    assert anonymous.send("GET", "/api/v1/cluster", headers=session).json["user"] == READER
    # Not for a node of another cluster, nor after a change.
    other = {"Cookie": session["Cookie"].replace("penstock_session_", "penstock_session_1")}
    assert anonymous.send("GET", "/api/v1/cluster", headers=other).status == 401
    assert anonymous.send("GET", "/api/v1/cluster", headers={"Cookie": session["Cookie"][:-2] + "xx"}).status == 401
    assert admin.call("DELETE", f"/users/{READER}/tokens").status == 200
    ended = anonymous.send("GET", "/api/v1/cluster", headers=session)
    assert (ended.status, "session has ended" in ended.json["error"]["message"]) == (401, True)
    assert (
        anonymous.send("GET", "/api/v1/cluster", headers={**session, "X-Penstock-Console": "1"}).headers.get("www-authenticate")
        is None
    ), "the browser does not ask for a password, the console does"


def test_a_session_is_listed_until_its_browser_signs_out(secured: RunningNode, reader: ApiClient) -> None:
    anonymous = client_of(secured, tls=_trusting())
    session = {"Cookie": _signed_in(anonymous).partition(";")[0], "Content-Type": JSON}
    newest = reader.get("/tokens")["items"][0]
    assert (newest["user"], newest["kind"], newest["name"]) == (READER, "session", "browser at 127.0.0.1")
    assert anonymous.send("POST", "/api/v1/sign-out", headers=session, body=b"{}").status == 200
    assert anonymous.send("GET", "/api/v1/cluster", headers=session).status == 401, "also for one who has copied the cookie"
    assert newest["id"] not in [item["id"] for item in reader.get("/tokens")["items"]]


def test_a_program_authenticates_with_a_token_until_that_is_revoked(
    secured: RunningNode, admin: ApiClient, reader: ApiClient
) -> None:
    made = reader.post(f"/users/{READER}/tokens", {"name": "nightly job", "life_s": 3600})
    other = admin.post(f"/users/{READER}/tokens", {"name": "weekly job", "life_s": 3600})
    assert made["expires_ms"] - made["created_ms"] == 3_600_000
    program = client_of(secured, tls=_trusting())
    bearer = {"Authorization": f"Bearer {made['token']}"}
    assert program.send("GET", "/api/v1/cluster", headers=bearer).json["user"] == READER
    assert program.send("GET", "/schema-registry/subjects", headers=bearer).status == 200
    assert all("token" not in item for item in admin.get("/tokens", search="job")["items"])
    assert reader.call("DELETE", f"/tokens/{made['id']}").status == 200
    refused = program.send("GET", "/api/v1/cluster", headers=bearer)
    assert (refused.status, "revoked" in refused.json["error"]["message"]) == (401, True)
    bearer = {"Authorization": f"Bearer {other['token']}"}
    assert program.send("GET", "/api/v1/cluster", headers=bearer).status == 200, "the other one is not revoked"
    assert admin.call("DELETE", f"/tokens/{made['id']}").status == 404


def test_users_do_not_see_or_revoke_tokens_of_others(admin: ApiClient, reader: ApiClient) -> None:
    of_admin = admin.post("/users/admin/tokens", {"name": "backup", "life_s": 3600})
    assert {item["user"] for item in reader.get("/tokens")["items"]} <= {READER}
    assert reader.call("DELETE", f"/tokens/{of_admin['id']}").status == 403
    assert reader.call("DELETE", "/tokens/0123456789abcdef").status == 403, "as if it existed"
    assert reader.call("DELETE", "/users/admin/tokens").status == 403
    assert reader.call("POST", "/users/admin/tokens", {"name": "mine now", "life_s": 3600}).status == 403
    assert admin.call("POST", f"/users/{READER}/tokens", {"name": "for ever", "life_s": 10**9}).status == 400


def test_who_may_alter_the_cluster_gets_no_token_of_the_administrator(secured: RunningNode, admin: ApiClient) -> None:
    assert admin.call("PUT", "/users/deputy", {"password": "of the deputy"}).status == 200
    rule = {"user": "deputy", "operation": "alter", "kind": "cluster", "name": "kafka-cluster"}
    assert admin.call("POST", "/access-rules", rule).status == 200
    deputy = client_of(secured, user="deputy", password="of the deputy", tls=_trusting())
    assert deputy.call("POST", f"/users/{READER}/tokens", {"name": "job", "life_s": 3600}).status == 200
    assert deputy.call("POST", "/users/admin/tokens", {"name": "job", "life_s": 3600}).status == 403
    assert admin.call("DELETE", "/users/deputy").status == 200


def test_a_clone_has_the_access_rules_of_the_topic_if_asked_for(
    secured: RunningNode, admin: ApiClient, reader: ApiClient
) -> None:
    assert admin.post("/topics/mine/clone", {"name": "mine-bare"})["access_rules"] == 0
    assert reader.call("GET", "/topics/mine-bare/messages").status == 403
    assert admin.post("/topics/mine/clone", {"name": "mine-copy", "access_rules": True})["access_rules"] == 1
    assert reader.call("GET", "/topics/mine-copy/messages").status == 200
    assert reader.call("POST", "/topics/mine/clone", {"name": "mine-own", "access_rules": True}).status == 403
    for name in ("mine-bare", "mine-copy"):
        assert admin.call("DELETE", f"/topics/{name}").status == 200


def test_other_sites_cannot_use_a_session(secured: RunningNode) -> None:
    anonymous = client_of(secured, tls=_trusting())
    session = {"Cookie": _signed_in(anonymous).partition(";")[0], "Origin": "https://evil.example", "Content-Type": JSON}
    refused = anonymous.send("POST", "/api/v1/consumers/mine-group/reset", headers=session, body=b"{}")
    assert (refused.status, refused.code) == (403, "FOREIGN_REQUEST")


def _signed_in(client: ApiClient) -> str:
    return client.call("POST", "/sign-in", {"user": READER, "password": READER_PASSWORD}).headers["set-cookie"]


def test_users_are_created_and_deleted(secured: RunningNode, admin: ApiClient, reader: ApiClient) -> None:
    assert admin.call("PUT", "/users/ada", {"password": "lovelace"}).status == 200
    listed = {item["name"]: item for item in admin.get("/users")["items"]}
    assert listed["ada"] == {
        "name": "ada",
        "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"],
        "is_admin": False,
        "tokens": 0,
        "token_revocations": 0,
    }
    assert listed["admin"]["is_admin"]
    ada = client_of(secured, user="ada", password="lovelace", tls=_trusting())
    assert ada.get("/cluster")["user"] == "ada"
    assert admin.call("PUT", "/users/admin", {"password": "x"}).status == 422
    assert admin.call("DELETE", "/users/admin").status == 422
    assert reader.call("GET", "/users").status == 403
    assert reader.call("PUT", "/users/ada", {"password": "mine"}).status == 403
    assert reader.call("DELETE", "/users/ada").status == 403
    assert admin.call("DELETE", "/users/ada").status == 200
    assert admin.call("DELETE", "/users/ada").status == 404
    assert ada.call("GET", "/cluster").status == 401


def test_access_rules_are_added_and_deleted(admin: ApiClient, reader: ApiClient) -> None:
    rule = {"user": READER, "operation": "describe_configs", "kind": "topic", "name": "mi", "pattern": "prefixed"}
    assert reader.call("GET", "/topics/mine/config").status == 403
    assert reader.call("POST", "/access-rules", rule).status == 403
    assert reader.call("GET", "/access-rules").status == 403
    assert admin.call("POST", "/access-rules", rule).status == 200
    assert reader.call("GET", "/topics/mine/config").status == 200
    assert {**rule, "permission": "allow", "host": "*"} in admin.get("/access-rules", search="mi")["items"]
    assert admin.call("POST", "/access-rules/delete", rule).status == 200
    assert reader.call("GET", "/topics/mine/config").status == 403
    assert admin.call("POST", "/access-rules/delete", rule).status == 404
    wrong = admin.call("POST", "/access-rules", {**rule, "kind": "group", "operation": "write"})
    assert (wrong.status, wrong.code) == (422, "INVALID_ACCESS_RULE")


@pytest.mark.parametrize(
    ("request_line", "body"),
    [
        ("GET /topics/other", None),
        ("GET /topics/absent", None),  # whether it exists is not revealed
        ("GET /topics/other/partitions", None),
        ("GET /topics/other/messages", None),
        ("GET /topics/other/messages/0/0", None),
        ("GET /topics/other/messages/0/0/value", None),
        ("GET /topics/other/tail", None),
        ("GET /topics/other/consumers", None),
        ("GET /topics/mine/config", None),
        ("PATCH /topics/mine/config", {"set": {"retention.ms": "1"}}),
        ("POST /topics", {"name": "new"}),
        ("DELETE /topics/mine", None),
        ("POST /topics/mine/partitions", {"total": 3}),
        ("POST /topics/mine/trim", {"offsets": {"0": 1}}),
        ("POST /topics/mine/messages", {"value": "x"}),
        ("GET /consumers/other-group", None),
        ("GET /consumers/absent", None),
        ("DELETE /consumers/mine-group", None),
        ("POST /consumers/other-group/reset", {"topic": "mine", "to": "latest"}),
        ("POST /consumers/mine-group/reset", {"topic": "other", "to": "latest"}),
        ("GET /queues/other", None),
        ("PUT /queues/mine/registrations/mine-group", {"vital": True}),
        ("PUT /queues/mine/registrations/other-group", {"vital": False}),
        ("PUT /queues/other/registrations/mine-group", {"vital": False}),
        ("DELETE /queues/mine/registrations/other-group", None),
        ("PUT /queues/mine/trimming", {"enable": True}),
        ("GET /storage", None),
        ("POST /storage/scrub", None),
        ("GET /streams/other", None),
        ("GET /pipelines", None),
        ("GET /pipelines/p", None),
        ("GET /settings", None),
        ("GET /history?metric=produce_bytes", None),
        ("GET /history?metric=produce_bytes&topic=other", None),
        ("GET /history?metric=lag_messages&topic=mine&consumer=other-group", None),
    ],
)
def test_what_no_rule_allows_is_refused(reader: ApiClient, request_line: str, body: object) -> None:
    method, path = request_line.split()
    refused = reader.call(method, path, body)
    assert (refused.status, refused.code) == (403, "NOT_ALLOWED"), refused
    assert READER in refused.json["error"]["message"]


def test_secrets_are_not_shown(admin: ApiClient) -> None:
    answer = admin.call("GET", "/settings", limit=500)
    assert PASSWORD not in answer.body.decode()


def test_every_answer_has_the_headers_that_browsers_heed(admin: ApiClient) -> None:
    for path in ("/api/v1/cluster", "/api/v1/nothing", "/healthz", "/"):
        headers = admin.send("GET", path).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
    assert admin.call("GET", "/cluster").headers["cache-control"] == "no-store"


def test_another_site_cannot_have_a_browser_change_anything(node: RunningNode, api: ApiClient) -> None:
    body = b'{"name": "forged"}'
    for content_type in ("text/plain", "application/x-www-form-urlencoded", ""):
        refused = api.send("POST", "/api/v1/topics", body, {"Content-Type": content_type})
        assert (refused.status, refused.code) == (415, "WRONG_CONTENT_TYPE")
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{api.port}", f"http://127.0.0.1:{api.port + 1}"):
        refused = api.send("POST", "/api/v1/topics", body, {"Content-Type": JSON, "Origin": origin})
        assert (refused.status, refused.code) == (403, "FOREIGN_REQUEST")
    for path in ("/api/v1/topics/forged", "/api/v1/storage/scrub"):
        method = "POST" if path.endswith("scrub") else "DELETE"
        assert api.send(method, path, None, {"Origin": "http://evil.example"}).status == 403
    own = api.send("POST", "/api/v1/topics", body, {"Content-Type": JSON, "Origin": api.address})
    assert own.status == 200


def test_a_name_that_was_pointed_at_this_machine_is_not_answered(api: ApiClient) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):
        assert api.send("GET", "/api/v1/topics", headers={"Host": host}).status in (400, 403)
    for host in ("localhost", f"127.0.0.1:{api.port}", f"[::1]:{api.port}"):
        assert api.send("GET", "/api/v1/topics", headers={"Host": host}).status == 200


def test_a_body_is_bounded(api: ApiClient) -> None:
    large = b'{"name": "' + b"x" * (9 << 20) + b'"}'
    refused = api.send("POST", "/api/v1/topics", large, {"Content-Type": JSON})
    assert (refused.status, refused.code) == (413, "REQUEST_TOO_LARGE")


def test_what_is_not_http_does_not_fill_the_log(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("noise")
    with running_node(path / "log", ["--data-dir", str(path / "data"), "--http-port", "0"]) as running:
        listener = running.ready["listeners"]["http"]
        post = b"POST /api/v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        for noise in (
            b"\x16\x03\x01 hello\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET /" + b"x" * 100_000,
            post + b"Content-Length: 100\r\n\r\n{",
            post + b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n",
            post + b"Content-Length: -1\r\n\r\n{}",
        ):
            with socket.create_connection((listener["host"], listener["port"]), timeout=5) as connection:
                connection.sendall(noise)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):
                    pass
        assert running.stop() == 0
    assert "Traceback" not in (path / "log").read_text()


def test_who_is_over_its_quota_waits_for_its_answer(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("quota")
    limits = ["--produce-bytes-per-s", "1000000", "--fetch-bytes-per-s", "1000000"]
    with running_node(path / "log", ["--data-dir", str(path / "data"), "--http-port", "0", *limits]) as running:
        api = client_of(running)
        api.post("/topics", {"name": "slowed"})
        started = time.monotonic()
        for _ in range(3):
            api.post("/topics/slowed/messages", {"value": "x" * 900_000})
        assert time.monotonic() - started > 1  # 2.7 MB, of which the first second's worth is free
        started = time.monotonic()
        assert api.get("/topics/slowed/messages")["scanned_bytes"] > 2_500_000
        assert time.monotonic() - started > 1
