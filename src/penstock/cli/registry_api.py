"""A schema registry as commands see it: that of a node, or any other that has Confluent's API."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, urlsplit

from penstock.cli.connection import Connection, identity_elsewhere
from penstock.cli.failure import CommandError, usage
from penstock.cli.http_api import HttpApi
from penstock.client.admin_api import AdminNames
from penstock.schemas import (
    Schema,
    UnreadableValueError,
    ValueCodec,
    codec_of,
    framed_value,
    parse_schema,
    split_frame,
)

NODE_PATH: Final = "/schema-registry"
_NAMES: Final = AdminNames(
    "--registry",
    "--registry-user NAME and --registry-password-file FILE (or PENSTOCK_REGISTRY_PASSWORD)",
    "--registry-tls-ca",
)


def make_registry(arguments: argparse.Namespace) -> RegistryApi:
    """The registry that the options ask for."""
    identity = identity_elsewhere(arguments, "registry")
    if arguments.registry is None:
        connection = Connection(arguments)
        return RegistryApi(HttpApi(connection.address("http"), connection.identity(), arguments.timeout, NODE_PATH))
    parts = urlsplit(arguments.registry)
    if parts.username is not None:
        raise usage("--registry has a password, which others can see in the list of processes; give --registry-user instead")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise usage(f"--registry is {arguments.registry!r}; write it as http://host:port, with a path if it has one")
    address = f"{parts.scheme}://{parts.netloc}"
    return RegistryApi(HttpApi(address, identity, arguments.timeout, parts.path.rstrip("/"), _NAMES))


class RegistryApi:
    """Calls of a registry, and the codecs of its schemas."""

    def __init__(self, api: HttpApi) -> None:
        self._api = api
        self._codecs: dict[int, ValueCodec | None] = {}

    def get(self, path: str) -> Any:
        """What is there."""
        return self._api.get(path)

    def call(self, method: str, path: str, body: object = None) -> Any:
        """One call; CommandError says why it did not succeed."""
        return self._api.call(method, path, body)

    def as_json(self, raw: bytes | None) -> bytes | None:
        """A key or value as JSON, by the schema that it names. One that names none, or does not match it, stays as it is."""
        frame = None if raw is None else split_frame(raw)
        if frame is None:
            return raw
        schema_id, payload = frame
        codec = self._codec(schema_id)
        if codec is None:
            return raw
        try:
            return json.dumps(codec.decode(payload), ensure_ascii=False).encode()
        except UnreadableValueError:
            return raw

    def encoder(self, subject: str) -> Callable[[bytes], bytes]:
        """What makes values with the latest schema of a subject of JSON. It raises ValueError if one does not match."""
        version = self.get(f"/subjects/{quote(subject, safe='')}/versions/latest")
        codec = codec_of(self._parsed(version))

        def encode(text: bytes) -> bytes:
            try:
                return framed_value(version["id"], codec.encode(json.loads(text)))
            except UnreadableValueError as error:
                raise ValueError(str(error)) from error

        return encode

    def _codec(self, schema_id: int) -> ValueCodec | None:
        """The codec of a schema; None if there is no such schema, as with values that only look as if they named one."""
        if schema_id not in self._codecs:
            try:
                self._codecs[schema_id] = codec_of(self._parsed(self.get(f"/schemas/ids/{schema_id}")))
            except CommandError as error:
                if "40403" not in str(error):
                    raise
                self._codecs[schema_id] = None
        return self._codecs[schema_id]

    def _parsed(self, fields: dict[str, Any]) -> Schema:
        references: dict[str, Schema] = {}
        self._collect(fields.get("references") or [], references)
        return parse_schema(fields.get("schemaType") or "AVRO", fields["schema"], references)

    def _collect(self, named: list[dict[str, Any]], schemas: dict[str, Schema]) -> None:
        for reference in named:
            if reference["name"] in schemas:
                continue
            if len(schemas) > 1000:
                raise CommandError("the schema leads to more than 1000 references")
            path = f"/subjects/{quote(reference['subject'], safe='')}/versions/{reference['version']}?deleted=true"
            version = self.get(path)
            self._collect(version.get("references") or [], schemas)
            schemas[reference["name"]] = parse_schema(version.get("schemaType") or "AVRO", version["schema"], schemas)
