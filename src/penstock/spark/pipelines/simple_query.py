"""Queries that only choose columns and compare them with constants, found in Spark's plan and computed by Arrow in the task that
reads: their rows do not pass through Java, which takes longer than reading and writing them.

What is not listed here is left to Spark: a query gives the same rows either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.pipelines.query import attribute_id, plan_items

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Of these types Spark and Arrow compare values alike; strings only by their bytes, as Spark does by default.
_TYPES: Final = frozenset({"int", "bigint", "timestamp", "string", "binary"})
_COMPARISONS: Final = {
    "EqualTo": "equal",
    "LessThan": "less",
    "LessThanOrEqual": "less_equal",
    "GreaterThan": "greater",
    "GreaterThanOrEqual": "greater_equal",
}
_FLIPPED: Final = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
_TEXT: Final = {"StartsWith": "starts_with", "EndsWith": "ends_with", "Contains": "match_substring"}
_LOGIC: Final = {"And": "and_kleene", "Or": "or_kleene"}


class _NotSimpleError(Exception):
    """A part of the plan has to be computed by Spark."""


class Condition(NamedTuple):
    """A function of Arrow: of a column and a constant, or of other conditions."""

    function: str
    column: str = ""
    constant: Any = None
    parts: tuple[Condition, ...] = ()

    def evaluate(self, rows: pa.RecordBatch) -> Any:
        """True, false or null for each row."""
        compute: Callable[..., Any] = getattr(pc, self.function)
        if self.parts:
            return compute(*(part.evaluate(rows) for part in self.parts))
        column = rows.column(self.column)
        if self.function in ("is_null", "is_valid"):
            return compute(column)
        if self.function in _TEXT.values():
            return compute(column, pattern=self.constant)
        return compute(column, pa.scalar(self.constant, column.type))


class SimpleQuery(NamedTuple):
    """The columns of the result, each with the name that it has in the source, and the conditions that rows must meet."""

    columns: tuple[tuple[str, str], ...]
    conditions: tuple[Condition, ...]

    def select(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The result rows."""
        names, read = zip(*self.columns, strict=True)
        for rows in batches:
            chosen = rows
            for condition in self.conditions:
                chosen = chosen.filter(condition.evaluate(chosen))
            if chosen.num_rows:
                yield pa.RecordBatch.from_arrays([chosen.column(name) for name in read], names=list(names))


def simple_query(result: DataFrame) -> SimpleQuery | None:
    """What a result is made of, or None if Spark has to compute it. Its only source has to be a task that reads ranges."""
    plan = result._jdf.queryExecution().optimizedPlan()
    try:
        sources, conditions = _plan(plan)
        columns = tuple((str(attribute.name()), _source(attribute, sources)) for attribute in plan_items(plan.output()))
    except _NotSimpleError:
        return None
    return SimpleQuery(columns, tuple(conditions))


def _plan(node: Any) -> tuple[dict[int, str], list[Condition]]:
    """The columns of the source by the ids of a node's attributes, and the conditions so far."""
    children = plan_items(node.children())
    name = node.nodeName()
    if name == "MapInArrow" and children[0].nodeName() == "Range":
        return {attribute_id(attribute): str(attribute.name()) for attribute in plan_items(node.output())}, []
    if name not in ("Project", "Filter"):
        raise _NotSimpleError
    sources, conditions = _plan(children[0])
    if name == "Filter":
        return sources, [*conditions, _condition(node.condition(), sources)]
    chosen = {}
    for expression in plan_items(node.projectList()):
        attribute = expression.child() if _kind(expression) == "Alias" else expression
        chosen[attribute_id(expression)] = _source(attribute, sources)
    return chosen, conditions


def _condition(expression: Any, sources: Mapping[int, str]) -> Condition:
    kind, parts = _kind(expression), plan_items(expression.children())
    if kind in _LOGIC:
        return Condition(_LOGIC[kind], parts=tuple(_condition(part, sources) for part in parts))
    if kind == "Not":
        return Condition("invert", parts=(_condition(parts[0], sources),))
    if kind in ("IsNull", "IsNotNull"):
        return Condition("is_null" if kind == "IsNull" else "is_valid", _source(parts[0], sources))
    if kind in _COMPARISONS:
        function = _COMPARISONS[kind]
        if _kind(parts[0]) == "Literal":
            parts, function = parts[::-1], _FLIPPED.get(function, function)
        return Condition(function, _comparable(parts[0], parts[1], sources), _constant(parts[1]))
    if kind in _TEXT and _type(parts[0]) == "string":
        return Condition(_TEXT[kind], _comparable(parts[0], parts[1], sources), _constant(parts[1]))
    if kind == "In":
        column, *listed = parts
        equals = [Condition("equal", _comparable(column, item, sources), _constant(item)) for item in listed]
        while len(equals) > 1:
            equals[:2] = [Condition("or_kleene", parts=(equals[0], equals[1]))]
        return equals[0]
    raise _NotSimpleError


def _comparable(attribute: Any, literal: Any, sources: Mapping[int, str]) -> str:
    """The source of an attribute that is of the same type as a literal."""
    if _type(attribute) not in _TYPES or _type(attribute) != _type(literal):
        raise _NotSimpleError
    return _source(attribute, sources)


def _constant(literal: Any) -> Any:
    if _kind(literal) != "Literal" or literal.value() is None:
        raise _NotSimpleError
    value = literal.value()
    return str(value.toString()) if _type(literal) == "string" else value


def _source(attribute: Any, sources: Mapping[int, str]) -> str:
    if _kind(attribute) != "AttributeReference" or attribute_id(attribute) not in sources:
        raise _NotSimpleError
    return sources[attribute_id(attribute)]


def _kind(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())


def _type(expression: Any) -> str:
    return str(expression.dataType().simpleString())
