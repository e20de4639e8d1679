"""The malformed schemas of other projects' own tests, sent to the registry: each is refused with 422 and a reason.

Avro's are in the tests of the avro package, those of JSON Schema in JSON-Schema-Test-Suite, which the archive of jsonschema
carries, and those of Protobuf in the tests of protocompile, a module of Go. Schemas that the suites take for valid are sent too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.compat.outcome import Outcome
from tests.compat.preparation import NotPreparedError
from tests.compat.suites import HERE

AVRO, JSON_SCHEMA = "avro==1.12.0", "jsonschema==4.26.0"
PROTOCOMPILE = "github.com/bufbuild/protocompile@v0.14.1"
DRAFTS: Final = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
TIMEOUT_S: Final = 30
REFUSED: Final = 422
LIST_AVRO: Final = (
    "import json, avro.test.test_schema as suite; "
    "print(json.dumps([[one.valid, one.data if isinstance(one.data, str) else json.dumps(one.data)] for one in suite.EXAMPLES]))"
)
_IMPORT: Final = re.compile(r'import\s+(?:public\s+|weak\s+)?"([^"]+)"')


class Case(NamedTuple):
    """A schema with the files that it may import, and the answers that are right."""

    name: str
    kind: str
    files: tuple[tuple[str, str], ...]  # one is the schema itself, if there is only one
    statuses: tuple[int, ...]


def prepare(home: Path) -> None:
    """Fetch the suites; NotPreparedError if they cannot be had."""
    home.mkdir(parents=True, exist_ok=True)
    for requirement in (AVRO, JSON_SCHEMA):
        folder = home / requirement.replace("==", "-")
        if not folder.is_dir():
            name = requirement.partition("=")[0]
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", name, "--dest", str(home)]
            _output([*pip, requirement])
            with tarfile.open(home / f"{folder.name}.tar.gz") as archive:
                archive.extractall(home, filter="data")
    if not (home / "protobuf.json").exists():
        if shutil.which("go") is None:
            raise NotPreparedError("go is not on this machine")
        module = json.loads(_output(["go", "mod", "download", "-json", PROTOCOMPILE], home))["Dir"]
        _output(["go", "build", "-o", str(home / "list"), str(HERE / "clients" / "protobuf_cases" / "main.go")], home)
        tests = [f"{module}/parser/validate_test.go", f"{module}/linker/linker_test.go"]
        (home / "protobuf.json").write_text(_output([str(home / "list"), *tests]), encoding="utf-8")


def _output(command: list[str], folder: Path | None = None, **variables: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, **variables})
    if done.returncode != 0:
        raise NotPreparedError(f"{' '.join(command[:4])} failed: {(done.stderr or done.stdout).strip()[-1000:]}")
    return done.stdout


def cases(home: Path) -> Iterator[Case]:
    """All cases of the three suites."""
    yield from _avro_cases(home / AVRO.replace("==", "-"))
    yield from _json_cases(home / JSON_SCHEMA.replace("==", "-") / "json" / "tests")
    yield from _protobuf_cases(home / "protobuf.json")


def _avro_cases(folder: Path) -> Iterator[Case]:
    for number, (is_valid, text) in enumerate(json.loads(_output([sys.executable, "-c", LIST_AVRO], PYTHONPATH=str(folder)))):
        kind = "valid" if is_valid else "malformed"
        yield Case(f"avro/{kind}/{number}", "AVRO", (("", text),), (200 if is_valid else REFUSED,))


def _json_cases(tests: Path) -> Iterator[Case]:
    """A group whose schema is a meta-schema has schemas as data. The schemas of all other groups are valid; some of them refer to
    what is elsewhere."""
    for draft, meta in DRAFTS.items():
        for path in sorted((tests / draft).rglob("*.json")):
            for place, group in enumerate(json.loads(path.read_text(encoding="utf-8"))):
                name = f"{draft}/{path.relative_to(tests / draft).with_suffix('')}/{place}"
                schema = group["schema"]
                if isinstance(schema, dict) and schema.get("$ref") == meta:
                    for number, test in enumerate(group["tests"]):
                        kind = "valid" if test["valid"] else "malformed"
                        yield _json_case(f"json/{kind}/{name}/{number}", test["data"], meta, (200 if test["valid"] else REFUSED,))
                is_remote = "localhost:1234" in json.dumps(group)
                yield _json_case(f"json/schema/{name}", schema, meta, (200, REFUSED) if is_remote else (200,))


def _json_case(name: str, schema: Any, meta: str, statuses: tuple[int, ...]) -> Case:
    whole = {"$schema": meta, **schema} if isinstance(schema, dict) else schema
    return Case(name, "JSON", (("", json.dumps(whole)),), statuses)


def _protobuf_cases(path: Path) -> Iterator[Case]:
    seen: set[str] = set()
    for entry in json.loads(path.read_text(encoding="utf-8")):
        kind = "malformed" if entry["error"] else "valid"
        name = f"protobuf/{kind}/{entry['name']}"
        while name in seen:
            name += "_again"
        seen.add(name)
        statuses = (200, REFUSED) if entry["differs"] else (REFUSED if entry["error"] else 200,)
        yield Case(name, "PROTOBUF", tuple((file, text) for file, text in entry["files"]), statuses)


class Registry:
    """A registry that cases are sent to."""

    def __init__(self, url: str) -> None:
        self._url = url

    def run(self, case: Case) -> Outcome:
        """Send a case: files before those that import them. The first that is refused decides."""
        files = dict(case.files)
        sent: dict[str, str] = {}
        status, content = 0, None
        for file in _in_order(files):
            subject = f"{case.name.replace('/', '.')}.{file or 'schema'}"
            references = [{"name": name, "subject": of, "version": 1} for name, of in sent.items()]
            status, content = self._register(subject, {"schema": files[file], "schemaType": case.kind, "references": references})
            if status != 200:
                break
            sent[file] = subject
        if status not in case.statuses:
            return Outcome("failed", f"the answer is {status}: {content}"[:300])
        if status == REFUSED and not (isinstance(content, dict) and content.get("message")):
            return Outcome("failed", f"no reason is given: {content}"[:300])
        return Outcome("passed", "")

    def _register(self, subject: str, body: dict[str, Any]) -> tuple[int, Any]:
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        url = f"{self._url}/subjects/{subject}/versions"
        request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                return int(response.status), json.loads(response.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())
        except OSError as error:
            return 0, f"no answer: {error}"


def _in_order(files: dict[str, str]) -> list[str]:
    """Files, each behind those that it imports, as far as there is such an order."""
    order: list[str] = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        for imported in _IMPORT.findall(files[name]):
            if imported in files and imported not in path:
                visit(imported, (*path, imported))
        if name not in order:
            order.append(name)

    for name in files:
        visit(name, (name,))
    return order
