"""Sessions of browsers in a cluster: every node signs users in, whichever leads, and a session is valid at all of them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.cluster.running_cluster import WAIT_S, RunningCluster, running_cluster, until

PASSWORD = "open sesame"


class Answer(NamedTuple):
    """What a node answered."""

    status: int
    content: Any
    cookie: str


def ask(cluster: RunningCluster, number: int, path: str, body: object = None, cookie: str = "") -> Answer:
    """Call the API of a node as a browser does that has this cookie."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Cookie": cookie}
    request = urllib.request.Request(f"{cluster.url(number)}/api/v1{path}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as response:
            return Answer(response.status, json.loads(response.read()), response.headers.get("Set-Cookie", "").partition(";")[0])
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, json.loads(error.read()), "")


def test_a_session_that_a_node_forwarded_is_valid_at_every_node_and_outlives_the_leader(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    secured = ["--sasl", "true", "--admin-password-file", str(tmp_path / "password")]
    with running_cluster(tmp_path, options=dict.fromkeys((1, 2, 3), secured)) as cluster:
        leader = cluster.active()
        first, second = (number for number in (1, 2, 3) if number != leader)
        wrong = ask(cluster, first, "/sign-in", {"user": "admin", "password": "guess"})
        assert (wrong.status, wrong.cookie) == (HTTPStatus.UNAUTHORIZED, "")
        assert ask(cluster, first, "/cluster").status == HTTPStatus.UNAUTHORIZED
        session = ask(cluster, first, "/sign-in", {"user": "admin", "password": PASSWORD}).cookie
        for number in (1, 2, 3):
            assert ask(cluster, number, "/cluster", cookie=session).content["user"] == "admin"
        cluster.wait_ready(first)
        cluster.wait_ready(second)
        cluster.kill(leader)

        def is_signed_in() -> bool:
            try:
                answers = [ask(cluster, number, "/cluster", cookie=session) for number in (first, second)]
            except urllib.error.URLError:
                return False  # a node that begins to lead listens again
            assert HTTPStatus.UNAUTHORIZED not in {answer.status for answer in answers}, answers
            return all(answer.status == HTTPStatus.OK for answer in answers)

        until("no other node has taken over", is_signed_in)
        assert ask(cluster, second, "/sign-out", {}, session).cookie.endswith('=""')
