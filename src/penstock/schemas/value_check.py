"""Checks values against their schemas, many at a time: those of a batch of records that name one schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.kernels.avro_check import CALL_FIELDS
from penstock.kernels.schema_ids import PAYLOAD_AT, PAYLOAD_SIZE, RECORD
from penstock.schemas.avro_program import CALLS_MAX, CompiledAvro
from penstock.schemas.errors import InvalidSchemaError, MissingLibraryError, UnreadableValueError
from penstock.schemas.schema import Schema

Buffer = bytes | bytearray | memoryview


class ValueCheck(Protocol):
    """The check of one schema. It may run in any thread."""

    def find_invalid(self, data: Buffer, payloads: NDArray[np.int64], found_max: int) -> list[tuple[int, str]]:
        """The records whose payloads do not match, at most so many, and what is wrong with each. `payloads` is a table of
        kernels.schema_ids: where in the data they are."""
        ...


def check_of(schema: Schema) -> ValueCheck:
    """The check of a schema. InvalidSchemaError if values cannot be checked against it, MissingLibraryError if that needs what is
    not installed."""
    try:
        return _CHECKS[schema.kind](schema)
    except RecursionError:
        raise InvalidSchemaError("the schema is nested too deeply for values to be checked") from None
    except ModuleNotFoundError as error:
        raise MissingLibraryError(
            f"values of type {schema.kind} need {error.name}; run: pip install 'penstock[schemas]'"
        ) from error


class _AvroCheck:
    """Runs a compiled program."""

    def __init__(self, compiled: CompiledAvro) -> None:
        self._compiled = compiled

    def find_invalid(self, data: Buffer, payloads: NDArray[np.int64], found_max: int) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        calls = np.empty((CALLS_MAX, CALL_FIELDS), np.int64)
        first = 0
        while len(found) < found_max:
            number, reason, at, steps = self._compiled.program.find_invalid(data, payloads, first, calls)
            if number < 0:
                break
            found.append((int(payloads[number, RECORD]), self._compiled.describe(reason, at, steps)))
            first = number + 1
        return found


class _PayloadCheck:
    """Calls a library that is compiled, for one payload after another."""

    def __init__(self, check: Callable[[bytes], None]) -> None:
        self._check = check

    def find_invalid(self, data: Buffer, payloads: NDArray[np.int64], found_max: int) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        view = memoryview(data)
        for row in payloads.tolist():
            try:
                self._check(bytes(view[row[PAYLOAD_AT] : row[PAYLOAD_AT] + row[PAYLOAD_SIZE]]))
            except UnreadableValueError as error:
                found.append((row[RECORD], str(error)))
                if len(found) == found_max:
                    break
        return found


def _json(schema: Any) -> ValueCheck:
    from penstock.schemas.json_payload import JsonPayload

    return _PayloadCheck(JsonPayload(schema).check)


def _protobuf(schema: Any) -> ValueCheck:
    from penstock.schemas.protobuf_payload import ProtobufPayload

    return _PayloadCheck(ProtobufPayload(schema).check)


_CHECKS: Final[dict[str, Callable[[Any], ValueCheck]]] = {
    "AVRO": lambda schema: _AvroCheck(CompiledAvro(schema.root)),
    "JSON": _json,
    "PROTOBUF": _protobuf,
}
