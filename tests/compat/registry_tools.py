"""The calls that Redpanda Console, Kafka UI and AKHQ make to a schema registry, and what they need of the answers.

A check is one page of a tool, or one button on it: its calls in their order, with the headers that the tool sends. All is as it
was read in the sources of the tools; none of them has to be on this machine.
"""

from __future__ import annotations

import json
import secrets
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tests.compat.outcome import Outcome

CONFLUENT: Final = "application/vnd.schemaregistry.v1+json"
JAVA_ACCEPTS: Final = f"{CONFLUENT}, application/vnd.schemaregistry+json; qs=0.9, application/json; qs=0.5"
TIMEOUT_S: Final = 60
NARROW: Final = '{"type":"record","name":"Order","fields":[{"name":"n","type":"int"}]}'
WIDE: Final = '{"type":"record","name":"Order","fields":[{"name":"n","type":"long"}]}'
OTHER: Final = '{"type":"record","name":"Order","fields":[{"name":"n","type":"string"}]}'


class Answer(NamedTuple):
    """The status of an answer, and its content."""

    status: int
    content: Any


class Tool(NamedTuple):
    """A tool by the headers that it sends, at a registry, with a subject of its own."""

    url: str
    accepts: str
    content_type: str
    subject: str

    def call(self, method: str, path: str, body: Any = None) -> Answer:
        """One call; `SUBJECT` in its path is that of the tool."""
        headers = {"Accept": self.accepts} | ({} if body is None else {"Content-Type": self.content_type})
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path.replace("SUBJECT", self.subject), data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                return Answer(response.status, json.loads(response.read()))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, json.loads(error.read()))

    def expect(self, method: str, path: str, body: Any = None, **fields: type) -> Any:
        """What a call answers, which must succeed and have these fields."""
        answer = self.call(method, path, body)
        assert answer.status == 200, f"{method} {path}: {answer}"
        for name, kind in fields.items():
            assert isinstance(answer.content.get(name), kind), f"{method} {path} has no {name}: {answer.content}"
        return answer.content

    def refuse(self, number: int, method: str, path: str, body: Any = None) -> None:
        """A call must fail with a number of Confluent's."""
        answer = self.call(method, path, body)
        assert answer.content.get("error_code") == number, f"{method} {path}: {answer}"
        assert answer.status == int(str(number)[:3]), f"{method} {path}: {answer}"


def _register(tool: Tool, text: str = NARROW) -> int:
    body = {"schema": text, "schemaType": "AVRO", "references": []}
    return int(tool.expect("POST", "/subjects/SUBJECT/versions", body, id=int)["id"])


def console_overview(tool: Tool) -> None:
    """Redpanda Console: the list of subjects, with and without deleted ones, and the settings above it."""
    _register(tool)
    for path in ("/subjects", "/subjects?deleted=true", "/schemas/types", "/contexts"):
        assert isinstance(tool.expect("GET", path), list)
    assert tool.subject in tool.expect("GET", f"/subjects?subjectPrefix={tool.subject}")
    tool.expect("GET", "/mode", mode=str)
    tool.expect("GET", "/config", compatibilityLevel=str)


def console_subject(tool: Tool) -> None:
    """Redpanda Console: the page of a subject whose settings are those of all, and one of whose versions is deleted."""
    schema_id = _register(tool)
    _register(tool, WIDE)
    tool.expect("DELETE", "/subjects/SUBJECT/versions/1")
    assert tool.expect("GET", "/subjects/SUBJECT/versions") == [2]
    assert tool.expect("GET", "/subjects/SUBJECT/versions?deleted=true") == [1, 2]
    tool.refuse(40408, "GET", "/config/SUBJECT")
    tool.refuse(40409, "GET", "/mode/SUBJECT")
    shown = tool.expect("GET", "/subjects/SUBJECT/versions/1?deleted=true", subject=str, version=int, id=int, schema=str)
    assert shown["id"] == schema_id
    tool.expect("GET", "/subjects/SUBJECT/versions/latest?deleted=true", schema=str)
    assert tool.expect("GET", "/subjects/SUBJECT/versions/2/referencedby") == []
    usages = tool.expect("GET", f"/schemas/ids/{schema_id}/versions?deleted=true")
    assert {"subject": tool.subject, "version": 1} in usages


def console_edits(tool: Tool) -> None:
    """Redpanda Console: check and add a version, change and reset the settings, delete for good."""
    _register(tool)
    path = "/compatibility/subjects/SUBJECT/versions/latest?verbose=true"
    assert tool.expect("POST", path, {"schema": WIDE}, is_compatible=bool)["is_compatible"]
    refused = tool.expect("POST", path, {"schema": OTHER}, is_compatible=bool, messages=list)
    assert not refused["is_compatible"]
    tool.expect("PUT", "/config/SUBJECT", {"compatibility": "FULL"}, compatibility=str)
    tool.expect("GET", "/config/SUBJECT", compatibilityLevel=str)
    tool.expect("DELETE", "/config/SUBJECT")
    tool.expect("PUT", "/mode/SUBJECT", {"mode": "READONLY"}, mode=str)
    tool.expect("DELETE", "/mode/SUBJECT")
    assert tool.expect("DELETE", "/subjects/SUBJECT") == [1]
    assert tool.expect("DELETE", "/subjects/SUBJECT?permanent=true") == [1]


def kafka_ui_list(tool: Tool) -> None:
    """Kafka UI: the list with the latest version of each subject and its level; the level of all, by a path with a slash."""
    _register(tool)
    assert tool.subject in tool.expect("GET", "/subjects")
    tool.expect("GET", "/subjects/SUBJECT/versions/latest", subject=str, version=int, id=int, schema=str)
    tool.expect("GET", "/config/SUBJECT?defaultToGlobal=true", compatibilityLevel=str)
    level = tool.expect("GET", "/config/", compatibilityLevel=str)["compatibilityLevel"]
    tool.expect("PUT", "/config/", {"compatibility": level}, compatibility=str)


def kafka_ui_subject(tool: Tool) -> None:
    """Kafka UI: versions of a subject, a new one, one that is refused, its level, and its deletion."""
    _register(tool)
    assert tool.expect("GET", "/subjects/SUBJECT/versions") == [1]
    tool.expect("GET", "/subjects/SUBJECT/versions/1", schema=str)
    tool.refuse(40401, "GET", "/subjects/SUBJECT-none/versions/latest")
    body = {"schema": OTHER, "schemaType": "AVRO"}
    assert not tool.expect("POST", "/compatibility/subjects/SUBJECT/versions/latest", body, is_compatible=bool)["is_compatible"]
    answer = tool.call("POST", "/subjects/SUBJECT/versions", body)
    assert answer.status == 409, f"a schema that is not compatible: {answer}"
    assert tool.call("POST", "/subjects/SUBJECT/versions", {"schema": "{", "schemaType": "AVRO"}).status == 422
    tool.expect("PUT", "/config/SUBJECT", {"compatibility": "NONE"}, compatibility=str)
    _register(tool, OTHER)
    tool.expect("DELETE", "/subjects/SUBJECT/versions/2")
    assert tool.expect("DELETE", "/subjects/SUBJECT") == [1]


def akhq_list(tool: Tool) -> None:
    """AKHQ: all subjects with their latest versions; of one without a level of its own, the level of all."""
    _register(tool)
    assert tool.subject in tool.expect("GET", "/subjects?deleted=false")
    tool.expect("GET", "/subjects/SUBJECT/versions/latest", subject=str, version=int, id=int, schema=str)
    assert tool.call("GET", "/config/SUBJECT?defaultToGlobal=false").status == 404
    tool.expect("GET", "/config?defaultToGlobal=false", compatibilityLevel=str)


def akhq_subject(tool: Tool) -> None:
    """AKHQ: look a schema up, check, register and update, then delete a version and the subject."""
    schema_id = _register(tool)
    found = tool.expect("POST", "/subjects/SUBJECT?normalize=false&deleted=false", {"schema": NARROW}, id=int, version=int)
    assert found["id"] == schema_id
    path = "/compatibility/subjects/SUBJECT/versions/latest?normalize=false&verbose=true"
    tool.expect("POST", path, {"schema": WIDE, "references": []}, is_compatible=bool)
    newest = tool.expect("POST", "/subjects/SUBJECT/versions?normalize=false", {"schema": WIDE, "schemaType": "AVRO"}, id=int)
    assert tool.expect("GET", "/subjects/SUBJECT/versions/latest")["id"] == newest["id"]
    assert tool.expect("PUT", "/config/SUBJECT", {"compatibility": "FORWARD"})["compatibility"] == "FORWARD"
    tool.expect("GET", f"/schemas/ids/{schema_id}?fetchMaxId=false&subject=SUBJECT", schema=str)
    assert tool.expect("DELETE", "/subjects/SUBJECT/versions/2?permanent=false") == 2
    assert tool.expect("DELETE", "/subjects/SUBJECT?permanent=false") == [1]


CHECKS: Final[dict[Callable[[Tool], None], tuple[str, str]]] = {
    console_overview: (CONFLUENT, CONFLUENT),
    console_subject: (CONFLUENT, CONFLUENT),
    console_edits: (CONFLUENT, CONFLUENT),
    kafka_ui_list: ("application/json", "application/json"),
    kafka_ui_subject: ("application/json", "application/json"),
    akhq_list: (JAVA_ACCEPTS, CONFLUENT),
    akhq_subject: (JAVA_ACCEPTS, CONFLUENT),
}


def run_checks(url: str, names: list[str]) -> dict[str, Outcome]:
    """What became of each check."""
    outcomes: dict[str, Outcome] = {}
    for check, (accepts, content_type) in CHECKS.items():
        if check.__name__ not in names:
            continue
        try:
            check(Tool(url, accepts, content_type, f"{check.__name__}-{secrets.token_hex(4)}"))
            outcomes[check.__name__] = Outcome("passed", "")
        except (AssertionError, OSError, ValueError, AttributeError, TypeError) as error:
            outcomes[check.__name__] = Outcome("failed", f"{type(error).__name__}: {error}"[:500])
    return outcomes
