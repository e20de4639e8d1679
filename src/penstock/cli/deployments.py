"""`penstock pipeline deploy` and what is done with deployed pipelines, by the admin API of a node."""

from __future__ import annotations

import re
import sys
import time
from argparse import Namespace
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError, usage
from penstock.cli.http_api import HttpApi
from penstock.cli.output import Output, StatusLine, waiting

DEPLOY_S: Final = 180.0  # the node checks a pipeline before it answers
FOLLOW_S: Final = 0.5
LISTED_MAX: Final = 500
_NAMED_FILE: Final = re.compile(r"""\b(schema_file|descriptor_file|python)["']?\s*:\s*["']?([^"'\s,}]+)""")

Action = Callable[[HttpApi, Namespace, Output], int]


def deploy(api: HttpApi, arguments: Namespace, output: Output) -> int:
    """Send the files of a pipeline to the node."""
    file = Path(arguments.file).absolute()
    files = _files(file, arguments.more)
    body = {
        "file": file.name,
        "files": {path: b64encode(content).decode() for path, content in files.items()},
        "directory": str(file.parent.resolve()),
        "application": arguments.application,
        "master": arguments.master,
        "conf": dict(arguments.conf),
        "is_reset": arguments.reset,
        "takes_over": arguments.take_over,
    }
    with waiting("checking the pipeline"):
        pipeline = api.call("POST", "/pipelines", body, timeout_s=DEPLOY_S)
    if output.as_json:
        output.document(pipeline)
    else:
        deployment = pipeline["deployment"]
        shared = f", application {deployment['application']}" if deployment["application"] else ""
        output.line(f"pipeline {pipeline['name']} is deployed, version {deployment['version']}{shared}")
    return ExitCode.OK


def list_deployed(api: HttpApi, arguments: Namespace, output: Output) -> int:
    """A line a deployed pipeline."""
    items: list[dict[str, Any]] = api.get(f"/pipelines?limit={LISTED_MAX}")["items"]
    deployed = [item for item in items if item["deployment"] is not None]
    if output.as_json:
        output.document(deployed)
        return ExitCode.OK
    output.rows(
        ("name", "kind", "state", "version", "application", "restarts", "lag", "dead letters", "last error"),
        [
            (
                item["name"],
                item["kind"],
                item["deployment"]["state"],
                item["deployment"]["version"],
                item["deployment"]["application"],
                item["deployment"]["restarts"],
                item["lag_rows"],
                item["dead_letters"],
                (item["deployment"]["last_error"] or "").partition("\n")[0],
            )
            for item in deployed
        ],
    )
    return ExitCode.OK


def control(api: HttpApi, arguments: Namespace, output: Output) -> int:
    """Pause, resume or stop."""
    pipeline = api.call("POST", f"/pipelines/{quote(arguments.name, safe='')}/{arguments.action}", {})
    if output.as_json:
        output.document(pipeline)
    else:
        output.line(f"pipeline {arguments.name} is {pipeline['deployment']['state']}")
    return ExitCode.OK


def undeploy(api: HttpApi, arguments: Namespace, output: Output) -> int:
    """Stop and forget."""
    api.call("DELETE", f"/pipelines/{quote(arguments.name, safe='')}")
    output.line(f"pipeline {arguments.name} is not deployed any more; its target and its offsets stay")
    return ExitCode.OK


def replay_dead_letters(api: HttpApi, arguments: Namespace, output: Output) -> int:
    """Send dead letters back, and show how far that is."""
    path = f"/pipelines/{quote(arguments.name, safe='')}/dead-letters/replay"
    line = StatusLine()
    try:
        replay = api.call("POST", path, {})
        while replay["state"] == "running":
            total = f" of {replay['total']:,}" if replay["total"] else ""
            line.show(f"sent back {replay['replayed']:,}{total} dead letters")
            time.sleep(FOLLOW_S)
            replay = api.get(path)
    finally:
        line.clear()
    if replay["state"] != "done":
        reason = replay["error"] or "the node has restarted meanwhile"
        raise CommandError(
            f"{reason}; {replay['replayed']:,} dead letters were sent back, and another replay continues after them"
        )
    if output.as_json:
        output.document(replay)
    else:
        output.line(f"{replay['replayed']:,} dead letters were sent back to their topics")
    return ExitCode.OK


def logs(api: HttpApi, arguments: Namespace, output: Output) -> int:
    """Print the end of a log, and what follows if asked for."""
    path = f"/pipelines/{quote(arguments.name, safe='')}/log"
    part = api.get(path)
    while True:
        sys.stdout.write(part["text"])
        sys.stdout.flush()
        if not arguments.follow:
            return ExitCode.OK
        if not part["text"]:
            time.sleep(FOLLOW_S)
        part = api.get(f"{path}?offset={part['next_offset']}")


def _files(file: Path, more: list[str]) -> dict[str, bytes]:
    """The contents of a pipeline's file, of those that it names, and of those that are given, by their paths below it."""
    content = _read(file)
    text = content.decode("utf-8", "replace")
    files = {file.name: content}
    for field, named in _NAMED_FILE.findall(text):
        path = Path(named.partition(":")[0] if field == "python" else named)
        if field == "python" and path.suffix != ".py":
            continue  # a function of the file itself
        if not path.is_absolute():
            files[_below(file.parent, file.parent / path)] = _read(file.parent / path)
    for given in more:
        path = Path(given).absolute()
        files[_below(file.parent, path)] = _read(path)
    return files


def _below(directory: Path, path: Path) -> str:
    try:
        return path.resolve().relative_to(directory.resolve()).as_posix()
    except ValueError:
        raise usage(f"{path} is not below {directory}, where the pipeline's file is; put it there to deploy it") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise usage(f"{path} cannot be read: {error.strerror}") from error


ACTIONS: Final[dict[str, Action]] = {
    "deploy": deploy,
    "list": list_deployed,
    "pause": control,
    "resume": control,
    "stop": control,
    "undeploy": undeploy,
    "replay-dead-letters": replay_dead_letters,
    "logs": logs,
}
