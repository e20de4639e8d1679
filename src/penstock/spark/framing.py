"""Values as the serializers of Confluent write them: a zero byte, the id of the schema in four bytes, then the value itself."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import UnavailableError
from penstock.spark.arrow_types import project
from penstock.spark.errors import MalformedValueError, OptionError
from penstock.spark.malformed import MalformedValue
from penstock.spark.value_format import ValueFormat, bytes_column, decode_column

PREFIX_BYTES: Final = 5
TIMEOUT_S: Final = 10.0
VALUE_BYTES_MAX: Final = (1 << 31) - 1


class RegistryError(UnavailableError):
    """The schema registry cannot be reached, or does not know a schema."""

    code = "schema_registry"


class RegisteredSchema:
    """A schema by its id: its text, and whether it is AVRO, JSON or PROTOBUF."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.text = str(fields["schema"])
        self.kind = str(fields.get("schemaType", "AVRO"))
        self.references = fields.get("references") or ()


class SchemaRegistry:
    """Reads schemas from a registry by its REST API; one that was read is kept, as ids never change. The URL may hold a user and
    a password."""

    _known: Final[dict[tuple[str, str], RegisteredSchema]] = {}

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        parts = urlsplit(self._url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise OptionError("the registry must be an address such as http://127.0.0.1:8081")
        host = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
        self._shown = urlunsplit((parts.scheme, host, parts.path, "", ""))  # without a password
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"

    def schema(self, schema_id: int) -> RegisteredSchema:
        """The schema of an id."""
        return self._read(f"/schemas/ids/{schema_id}", keeps=True)

    def latest(self, subject: str) -> RegisteredSchema:
        """The last version of a subject's schema."""
        return self._read(f"/subjects/{subject}/versions/latest", keeps=False)

    def _read(self, path: str, *, keeps: bool) -> RegisteredSchema:
        known = self._known.get((self._url, path))
        if known is not None:
            return known
        try:
            request = urllib.request.Request(self._shown + path, headers=self._headers)
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                schema = RegisteredSchema(json.load(answer))
        except urllib.error.HTTPError as error:
            with error:
                raise RegistryError(
                    f"the schema registry answers {path} with {error.code} {error.reason}: {self._shown}"
                ) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RegistryError(f"the schema registry at {self._shown} cannot be read: {error}") from error
        if keeps:
            self._known[self._url, path] = schema
        return schema


def frame_of(value: bytes | None) -> int | None:
    """The id of the schema that a value is framed with; None if it does not look framed."""
    if value is None or len(value) <= PREFIX_BYTES or value[0] != 0:
        return None
    return int.from_bytes(value[1:PREFIX_BYTES], "big")


def framing_hint(value: bytes | None) -> str:
    """What to say of a value that could not be decoded and looks framed; empty for others."""
    schema_id = frame_of(value)
    if schema_id is None:
        return ""
    return (
        f" (it begins with a zero byte and the number {schema_id}, as Confluent's serializers write with schema {schema_id} of a "
        "registry: give the registry's address)"
    )


class FramedFormat:
    """Values of any schemas of a registry: each is decoded with its own, and its fields are taken by name."""

    wrapping: tuple[bytes, bytes, bytes] | None = None

    def __init__(
        self, kind: pa.DataType, registry: SchemaRegistry, make: Callable[[RegisteredSchema], ValueFormat], *, fails: bool
    ) -> None:
        self._kind = kind
        self._registry = registry
        self._make = make
        self._formats: dict[int, ValueFormat] = {}
        self._fails = fails
        self.malformed: list[MalformedValue] | None = None

    def decode(self, text: pa.Buffer, starts: Any, valid: pa.Buffer | None, offsets: Any) -> pa.Array:
        """See `ValueFormat`."""
        values = bytes_column(text, starts, valid)
        is_valid = values.is_valid().to_numpy(zero_copy_only=False)
        sizes = np.diff(np.asarray(starts))
        data = np.frombuffer(text, np.uint8)
        begins = np.asarray(starts)[:-1]
        framed = is_valid & (sizes > PREFIX_BYTES)
        framed[framed] = data[begins[framed]] == 0
        ids = np.zeros(len(values), np.int64)
        for at in range(1, PREFIX_BYTES):
            ids[framed] = (ids[framed] << 8) | data[begins[framed] + at]
        for row in np.flatnonzero(is_valid & ~framed):
            self._refuse(int(row), "not framed with the id of a schema, though a registry is given", offsets)
        parts: list[pa.Array] = []
        places: list[Any] = []
        for schema_id in np.unique(ids[framed]):
            rows = np.flatnonzero(framed & (ids == schema_id))
            parts.append(self._decode_one(int(schema_id), values, rows, offsets))
            places.append(rows)
        return self._together(parts, places, len(values))

    def _decode_one(self, schema_id: int, values: pa.Array, rows: Any, offsets: Any) -> pa.Array:
        form = self._formats.get(schema_id)
        if form is None:
            form = self._formats[schema_id] = self._make(self._registry.schema(schema_id))
        form.malformed = [] if self.malformed is not None else None
        own = pc.binary_slice(values.take(pa.array(rows)), PREFIX_BYTES, stop=VALUE_BYTES_MAX)
        decoded = project(decode_column(form, own, np.asarray(offsets)[rows]), self._kind)
        if self.malformed is not None and form.malformed:
            self.malformed += [MalformedValue(int(rows[bad.row]), f"{bad.reason}; schema {schema_id}") for bad in form.malformed]
        return decoded

    def _together(self, parts: list[pa.Array], places: list[Any], count: int) -> pa.Array:
        """Rows of all schemas in the order of the values; null where there is none."""
        if not parts:
            return pa.nulls(count, self._kind)
        at = np.full(count, -1, np.int64)
        at[np.concatenate(places)] = np.arange(sum(len(rows) for rows in places))
        return pa.concat_arrays(parts).take(pa.array(at, mask=at < 0))

    def _refuse(self, row: int, reason: str, offsets: Any) -> None:
        if self._fails:
            raise MalformedValueError(f"the value at offset {offsets[row]} is {reason}")
        if self.malformed is not None:
            self.malformed.append(MalformedValue(row, reason))
