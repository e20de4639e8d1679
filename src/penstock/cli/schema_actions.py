"""What the subcommands of `penstock schema` do."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from penstock.cli.connection import Connection, identity_elsewhere
from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError, usage
from penstock.cli.kafka_client import CommandClient
from penstock.cli.output import Output, StatusLine
from penstock.cli.registry_api import RegistryApi
from penstock.cli.schema_topic import Line, read_lines, write_lines

TYPES: Final = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}
PAGE: Final = 500
_IMPORTED: Final = ("id", "version", "schema", "schemaType", "references", "metadata", "ruleSet")

Action = Callable[[RegistryApi, Namespace, Output], int]


def list_subjects(registry: RegistryApi, arguments: Namespace, output: Output) -> int:
    """Subjects with the latest version of each."""
    versions = list(_pages(registry, {"subjectPrefix": arguments.prefix, "latestOnly": "true"}))
    if output.as_json:
        output.document([_without_text(version) for version in versions])
    else:
        rows = [(item["subject"], item["version"], item["id"], item.get("schemaType", "AVRO")) for item in versions]
        output.rows(("subject", "version", "id", "type"), rows)
    return ExitCode.OK


def get(registry: RegistryApi, arguments: Namespace, output: Output) -> int:
    """The text of a schema; JSON has all of it."""
    path = f"/subjects/{_quoted(arguments.subject)}/versions/{_quoted(arguments.version)}" if arguments.id is None else ""
    schema = registry.get(path or f"/schemas/ids/{arguments.id}")
    if output.as_json:
        output.document(schema)
    else:
        output.line(schema["schema"].rstrip("\n"))
    return ExitCode.OK


def register(registry: RegistryApi, arguments: Namespace, output: Output) -> int:
    """Register a schema."""
    path = f"/subjects/{_quoted(arguments.subject)}/versions"
    answer = registry.call("POST", path + _normalized(arguments), _new_schema(arguments))
    if output.as_json:
        output.document({"subject": arguments.subject, "id": answer["id"]})
    else:
        output.line(str(answer["id"]))
    return ExitCode.OK


def check(registry: RegistryApi, arguments: Namespace, output: Output) -> int:
    """Whether a schema could be registered; the reasons if not."""
    path = f"/compatibility/subjects/{_quoted(arguments.subject)}/versions{_normalized(arguments)}"
    answer = registry.call("POST", path + ("&" if "?" in path else "?") + "verbose=true", _new_schema(arguments))
    if output.as_json:
        output.document(answer)
    elif answer["is_compatible"]:
        output.say("compatible")
    else:
        for message in answer.get("messages") or ["the schema is not compatible"]:
            output.line(message)
    return ExitCode.OK if answer["is_compatible"] else ExitCode.FAILED


def delete(registry: RegistryApi, arguments: Namespace, output: Output) -> int:
    """Delete a subject or a version."""
    path = f"/subjects/{_quoted(arguments.subject)}"
    path += f"/versions/{_quoted(arguments.version)}" if arguments.version is not None else ""
    answer = registry.call("DELETE", path + ("?permanent=true" if arguments.permanent else ""))
    versions = answer if isinstance(answer, list) else [answer]
    if output.as_json:
        output.document({"subject": arguments.subject, "versions": versions, "permanent": arguments.permanent})
    else:
        output.say(f"deleted {arguments.subject}, versions {', '.join(map(str, versions))}")
    return ExitCode.OK


def export(registry: RegistryApi, arguments: Namespace, output: Output) -> int:
    """All versions, those first that others refer to, then levels and modes; as lines, or as records of a topic."""
    lines = _export_lines(registry)
    if arguments.topic is None:
        for line in lines:
            output.line(json.dumps(line, ensure_ascii=False))
        return ExitCode.OK
    with _kafka(arguments) as client:
        written = write_lines(client, arguments.topic, lines)
    output.say(f"wrote {written} records to topic {arguments.topic}")
    if output.as_json:
        output.document({"topic": arguments.topic, "records": written})
    return ExitCode.OK


def _export_lines(registry: RegistryApi) -> list[Line]:
    live = {(item["subject"], item["version"]) for item in _pages(registry, {"subjectPrefix": ":*:", "deleted": "false"})}
    versions = list(_pages(registry, {"subjectPrefix": ":*:", "deleted": "true"}))
    for version in versions:
        if (version["subject"], version["version"]) not in live:
            version["deleted"] = True  # not all registries say so
    lines = sorted(versions, key=lambda item: (item["id"], item["subject"], item["version"]))
    for subject in [None, *sorted({version["subject"] for version in versions})]:
        for name in ("config", "mode"):
            path = f"/{name}" if subject is None else f"/{name}/{_quoted(subject)}"
            try:
                lines.append({name: registry.get(path), "of": subject})
            except CommandError as error:
                if "40408" not in str(error) and "40409" not in str(error) and "40401" not in str(error):
                    raise  # otherwise it has none of its own
    return lines


def import_lines(registry: RegistryApi, arguments: Namespace, output: Output) -> int:
    """Register schemas of an export or of another registry's topic with their ids; the mode of each subject is IMPORT meanwhile.
    Deleted versions are registered and deleted: what was written with them stays readable."""
    lines = _import_lines(arguments)
    versions = [line for line in lines if "schema" in line]
    subjects = sorted({version["subject"] for version in versions})
    for subject in subjects:
        registry.call("PUT", f"/mode/{_quoted(subject)}?force=true", {"mode": "IMPORT"})
    progress = StatusLine()
    try:
        for number, version in enumerate(versions):
            progress.show(f"registered {number:,} of {len(versions):,} versions")
            body = {name: value for name, value in version.items() if name in _IMPORTED}
            registry.call("POST", f"/subjects/{_quoted(version['subject'])}/versions", body)
        for version in versions:
            if version.get("deleted"):
                _delete_imported(registry, version)
    finally:
        progress.clear()
        for subject in subjects:
            registry.call("DELETE", f"/mode/{_quoted(subject)}")
    for line in lines:
        for name, known in (("config", "compatibilityLevel"), ("mode", "mode")):
            if name in line:
                path = f"/{name}" if line["of"] is None else f"/{name}/{_quoted(line['of'])}"
                wanted = {"compatibility" if name == "config" else "mode": line[name].get(known)}
                registry.call("PUT", path + ("?force=true" if name == "mode" else ""), wanted)
    output.say(f"imported {len(versions)} versions of {len(subjects)} subjects")
    if output.as_json:
        output.document({"versions": len(versions), "subjects": len(subjects)})
    return ExitCode.OK


def _import_lines(arguments: Namespace) -> list[Line]:
    if arguments.topic is not None:
        with _kafka(arguments) as client:
            return read_lines(client, arguments.topic)
    return [_object(line, number) for number, line in enumerate(_read(arguments.file).splitlines(), 1) if line.strip()]


def _delete_imported(registry: RegistryApi, version: Line) -> None:
    try:
        registry.call("DELETE", f"/subjects/{_quoted(version['subject'])}/versions/{version['version']}")
    except CommandError as error:
        if "40406" not in str(error):  # an import that is repeated finds it deleted
            raise


def _kafka(arguments: Namespace) -> CommandClient:
    identity = identity_elsewhere(arguments, "kafka")
    if arguments.kafka is None:
        return Connection(arguments).client()
    return CommandClient(arguments.kafka, arguments.timeout, identity)


def _pages(registry: RegistryApi, query: dict[str, str]) -> Iterator[dict[str, Any]]:
    """All versions of a list, some at a time."""
    offset = 0
    while True:
        page = registry.get(f"/schemas?{urlencode({**query, 'offset': str(offset), 'limit': str(PAGE)})}")
        yield from page
        if len(page) < PAGE:
            return
        offset += PAGE


def _new_schema(arguments: Namespace) -> dict[str, Any]:
    kind = arguments.type.upper() if arguments.type else TYPES.get(Path(arguments.file).suffix)
    if kind is None:
        raise usage(f"the type of {arguments.file} is not known by its name; give --type avro, json or protobuf")
    return {"schema": _read(arguments.file), "schemaType": kind, "references": arguments.reference}


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise usage(f"{file} cannot be read: {error}") from error


def _object(line: str, number: int) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except ValueError as error:
        raise usage(f"line {number} is not JSON: {error}") from None
    if not isinstance(content, dict) or not content.keys() & {"schema", "config", "mode"}:
        raise usage(f"line {number} is not from `penstock schema export`")
    return content


def _without_text(version: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in version.items() if name != "schema"}


def _normalized(arguments: Namespace) -> str:
    return "?normalize=true" if arguments.normalize else ""


def _quoted(name: str) -> str:
    return quote(str(name), safe="")


ACTIONS: Final[dict[str, Action]] = {
    "list": list_subjects,
    "get": get,
    "register": register,
    "check": check,
    "delete": delete,
    "export": export,
    "import": import_lines,
}
