"""Values of topics with a JSON Schema: JSON that the schema is checked against."""

from __future__ import annotations

from typing import Any, Final

import jsonschema_rs
import msgspec

from penstock.schemas.errors import InvalidSchemaError, UnreadableValueError
from penstock.schemas.json_branches import BRANCHES_MAX, check_branches, depth_limit, depth_of
from penstock.schemas.json_schema import JsonSchema

# Patterns come from strangers, and are run on every value: one that goes back and forth for longer fails.
PATTERN_STEPS_MAX: Final = 100_000
PATTERN_BYTES_MAX: Final = 1 << 20
_VALIDATORS: Final[dict[str, Any]] = {
    "http://json-schema.org/draft-04/schema#": jsonschema_rs.Draft4Validator,
    "http://json-schema.org/draft-06/schema#": jsonschema_rs.Draft6Validator,
    "http://json-schema.org/draft-07/schema#": jsonschema_rs.Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema_rs.Draft201909Validator,
    "https://json-schema.org/draft/2020-12/schema": jsonschema_rs.Draft202012Validator,
}


class JsonPayload:
    """Checks values against a schema. InvalidSchemaError if it cannot be compiled, or would take too long."""

    def __init__(self, schema: JsonSchema) -> None:
        check_branches(schema)
        self._depth_max = depth_limit(schema)
        limits = jsonschema_rs.FancyRegexOptions(
            backtrack_limit=PATTERN_STEPS_MAX, size_limit=PATTERN_BYTES_MAX, dfa_size_limit=PATTERN_BYTES_MAX
        )
        try:
            self._validator = _VALIDATORS[schema.draft](schema.root, retriever=schema.retrieve, pattern_options=limits)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            raise InvalidSchemaError(f"the schema cannot be compiled: {error}") from error

    def check(self, payload: bytes) -> None:
        """Check a payload. UnreadableValueError says in which field it does not match."""
        try:
            value = msgspec.json.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UnreadableValueError(f"the value is not JSON: {error}") from error
        self.check_value(value)

    def check_value(self, value: Any) -> None:
        """The same of a value that is decoded."""
        if self._depth_max is not None and depth_of(value) > self._depth_max:
            raise UnreadableValueError(
                f"the value is nested deeper than {self._depth_max} levels, where its JSON Schema would look at one part of it "
                f"more than {BRANCHES_MAX} times"
            )
        try:
            if self._validator.is_valid(value):
                return
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            place = "/".join(map(str, error.instance_path))
            raise UnreadableValueError(f"the value does not match its JSON Schema at /{place}: {error.message[:300]}") from error
        except (ValueError, TypeError) as error:
            raise UnreadableValueError(f"the value cannot be checked against its JSON Schema: {error}") from error
