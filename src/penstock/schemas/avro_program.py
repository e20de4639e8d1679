"""Compiles an Avro schema to the program that kernels.avro_check runs over values, and says in words what it finds there."""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock.kernels import avro_check
from penstock.kernels.avro_check import AvroProgram
from penstock.schemas.avro_types import Array, AvroType, Enum, Fixed, Map, Record, Union

CALLS_MAX: Final = 1000  # how deep records, items and branches of a value may be in each other
NOWHERE: Final = -1  # in place of the run of a type whose values take no bytes

_PLAIN: Final = {
    "boolean": (avro_check.BOOLEAN, 0),
    "int": (avro_check.INT, 0),
    "long": (avro_check.LONG, 0),
    "float": (avro_check.RAW, 4),
    "double": (avro_check.RAW, 8),
    "bytes": (avro_check.BYTES, 0),
    "string": (avro_check.STRING, 0),
}
_REASONS: Final = {
    avro_check.TOO_SHORT: "the value ends within it",
    avro_check.TOO_LONG: "more bytes follow the value",
    avro_check.NO_BOOLEAN: "a boolean is 0 or 1",
    avro_check.NO_INT: "the number does not fit an int",
    avro_check.BAD_LENGTH: "the length is negative",
    avro_check.NO_TEXT: "the string is not UTF-8",
    avro_check.NO_SYMBOL: "the enum has no symbol of that number",
    avro_check.NO_BRANCH: "the union has no branch of that number",
    avro_check.TOO_DEEP: f"the value is nested deeper than {CALLS_MAX} levels",
    avro_check.BAD_BLOCK: "a block of items is not as long as it says",
}


class CompiledAvro:
    """The program of a schema, and the field that each of its steps reads."""

    def __init__(self, root: AvroType) -> None:
        compiler = _Compiler()
        compiler.compile_root(root)
        self.steps: Final = np.array(compiler.steps, np.int64).reshape(-1, avro_check.STEP_FIELDS)
        self.branches: Final = np.array(compiler.branches, np.int64)
        self.program: Final = AvroProgram(self.steps, self.branches)
        self._fields = compiler.fields

    def describe(self, reason: int, at: int, steps: list[int]) -> str:
        """Says what is wrong with a value, in which field, and at which of its bytes."""
        path = ""
        for number, step in enumerate(steps, 1):
            if self._fields[step]:
                path += ("." if path else "") + self._fields[step]
            if number < len(steps) and self.steps[step, 0] in (avro_check.ARRAY, avro_check.MAP):
                path += "[]"
        place = f"field {path!r}: " if path and reason != avro_check.TOO_LONG else ""
        return f"{place}{_REASONS[reason]}, at byte {at} of its payload"


class _Compiler:
    """Writes the runs of all types of a schema, each once."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int, int]] = []
        self.fields: list[str] = []  # which field of its record a step reads; empty for items and branches
        self.branches: list[int] = []
        self._runs: dict[int, int] = {}  # where the run of a type begins
        self._pending: list[tuple[AvroType, int, int]] = []  # types whose runs are to be written, and who is told where
        self._sizes: dict[int, bool] = {}

    def compile_root(self, root: AvroType) -> None:
        """Write the run of a type, at 0, and of all that it leads to."""
        self._run(root)
        while self._pending:
            of_type, step, branch = self._pending.pop()
            place = self._runs[id(of_type)] if id(of_type) in self._runs else self._run(of_type)
            if branch >= 0:
                self.branches[branch] = place
            else:
                operation, _, b = self.steps[step]
                self.steps[step] = (operation, place, b)

    def _run(self, of_type: AvroType) -> int:
        start = self._runs[id(of_type)] = len(self.steps)
        if isinstance(of_type, Record):
            for field in of_type.fields:
                self._write(field.type, field.name)
        else:
            self._write(of_type, "")
        self._add(avro_check.RETURN, 0, 0, "")
        return start

    def _write(self, of_type: AvroType, field: str) -> None:
        """Write the step that reads a value; none if there is nothing to read."""
        if self._takes_nothing(of_type):
            return
        if isinstance(of_type, Record):
            self._add_call(avro_check.RECORD, of_type, field)
        elif isinstance(of_type, Array):
            self._add_call(avro_check.ARRAY, of_type.items, field)
        elif isinstance(of_type, Map):
            self._add_call(avro_check.MAP, of_type.values, field)
        elif isinstance(of_type, Union):
            first = len(self.branches)
            self._add(avro_check.UNION, len(of_type.branches), first, field)
            self.branches += [NOWHERE] * len(of_type.branches)
            for number, branch in enumerate(of_type.branches):
                if not self._takes_nothing(branch):
                    self._pending.append((branch, -1, first + number))
        elif isinstance(of_type, Enum):
            self._add(avro_check.ENUM, len(of_type.symbols), 0, field)
        elif isinstance(of_type, Fixed):
            self._add(avro_check.RAW, of_type.size, 0, field)
        else:
            self._add(*_PLAIN[of_type.kind], 0, field)

    def _add(self, operation: int, a: int, b: int, field: str) -> None:
        self.steps.append((operation, a, b))
        self.fields.append(field)

    def _add_call(self, operation: int, called: AvroType, field: str) -> None:
        self._add(operation, NOWHERE, 0, field)
        if not self._takes_nothing(called):
            self._pending.append((called, len(self.steps) - 1, -1))

    def _takes_nothing(self, of_type: AvroType) -> bool:
        """Whether values of a type take no bytes: null, a fixed of none, and records of those."""
        if isinstance(of_type, Fixed):
            return of_type.size == 0
        if not isinstance(of_type, Record):
            return of_type.kind == "null"
        known = self._sizes.get(id(of_type))
        if known is None:
            self._sizes[id(of_type)] = False  # a record within itself has no value at all
            known = self._sizes[id(of_type)] = all(self._takes_nothing(field.type) for field in of_type.fields)
        return known
