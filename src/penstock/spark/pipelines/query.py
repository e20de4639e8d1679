"""The transformation of a pipeline: a SQL query or a function on DataFrames, and whether it needs state."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.core.errors import PenstockError
from penstock.spark.pipelines.errors import SpecError
from penstock.spark.pipelines.spec import PipelineSpec, TransformSpec
from penstock.spark.pipelines.spec_file import load_module
from penstock.spark.pipelines.static_tables import read_static_table
from penstock.spark.pipelines.views import ALL_TOPICS, View, identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Stateless nodes of a plan. Any other node above a stream needs state.
_ROW_BY_ROW: Final = frozenset(
    {
        "Project",
        "Filter",
        "SubqueryAlias",
        "View",
        "Generate",
        "MapInArrow",
        "MapInPandas",
        "Union",
        "ResolvedHint",
        "Repartition",
        "RepartitionByExpression",
        "WithCTE",
        "CTERelationDef",
        "CTERelationRef",
        "EventTimeWatermark",
        "StreamingRelation",
        "StreamingRelationV2",
        "UnresolvedHint",
    }
)
_JOINS_BY_STREAM_SIDE: Final = {
    "left": frozenset({"INNER", "CROSS", "LEFT OUTER", "LEFT SEMI", "LEFT ANTI"}),
    "right": frozenset({"INNER", "CROSS", "RIGHT OUTER"}),
}


class Query:
    """A pipeline's transformation in a session of its own, where its views are."""

    def __init__(self, spec: PipelineSpec, spark: SparkSession, views: list[View]) -> None:
        assert spec.transform is not None
        self._spec = spec
        self._transform: TransformSpec = spec.transform
        self._spark = spark.newSession()
        self._views = views
        # Pyspark logs errors of queries with the whole stack of Java, besides raising them.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
        self._function = self._load() if spec.transform.python is not None else None

    @property
    def session(self) -> SparkSession:
        """Where the views are."""
        return self._spark

    def apply(self, frames: Mapping[str, DataFrame], *, is_stream: bool = False) -> DataFrame:
        """The result of the transformation. Raises SpecError if Spark rejects it."""
        from pyspark.errors import PySparkException

        inputs = {name: self._marked(name, frame) if is_stream else frame for name, frame in frames.items()}
        try:
            for name, table in self._transform.tables.items():
                inputs[name] = read_static_table(self._spark, self._spec, f"transform.tables.{name}", table)
            return self._call(inputs) if self._function is not None else self._select(inputs)
        except PySparkException as error:
            raise self._spec.fault(self.field, _reason(error)) from error

    def stateful_parts(self) -> list[str]:
        """The parts of the query that need state; empty if it is stateless."""
        frame = self.apply({view.name: view.stand_in(self._spark) for view in self._views}, is_stream=True)
        if not frame.isStreaming:
            raise self._spec.fault(self.field, "the result does not come from any of the topics; use one of the views in it")
        names: list[str] = []
        _walk(frame._jdf.queryExecution().analyzed(), names)
        return list(dict.fromkeys(names))

    @property
    def field(self) -> str:
        """The field of the file with the transformation."""
        return "transform.sql" if self._function is None else "transform.python"

    def _marked(self, name: str, frame: DataFrame) -> DataFrame:
        late = self._transform.watermark_of(name)
        return frame if late is None else frame.withWatermark(late.column, late.delay)

    def _select(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        assert self._transform.sql is not None
        for name, frame in inputs.items():
            for alias in {
                name,
                identifier(name),
                *([ALL_TOPICS] if len(self._views) == 1 and name == self._views[0].name else []),
            }:
                frame.createOrReplaceTempView(f"`{alias}`")
        return self._spark.sql(self._transform.sql)

    def _call(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        from pyspark.sql import DataFrame

        assert self._function is not None
        try:
            result = self._function(**_arguments(self._spec, self._function, inputs, self._spark))
        except (PenstockError, KeyboardInterrupt):
            raise
        except Exception as error:
            raise self._spec.fault("transform.python", f"the function fails: {type(error).__name__}: {_reason(error)}") from error
        if not isinstance(result, DataFrame):
            raise self._spec.fault(
                "transform.python", f"the function returns {type(result).__name__}; it must return a DataFrame"
            )
        return result

    def _load(self) -> Callable[..., Any]:
        from pyspark import cloudpickle

        given = self._transform.python
        if callable(given):
            module = inspect.getmodule(given)
            transform: Any = given
        else:
            path, _, name = str(given).rpartition(":")
            try:
                module = load_module(self._spec.code_path(path))
            except SpecError as error:
                raise self._spec.fault("transform.python", f"{error}") from error
            transform = getattr(module, name, None)
            if not callable(transform):
                raise self._spec.fault("transform.python", f"there is no function {name} in {path}")
        if module is not None and module.__name__.startswith("penstock_pipeline_"):
            # Executors cannot import it: it is pickled with the tasks.
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call] # pyspark's copy has no types
        function: Callable[..., Any] = transform
        return function


def _arguments(spec: PipelineSpec, function: Callable[..., Any], inputs: Mapping[str, DataFrame], spark: Any) -> dict[str, Any]:
    """The arguments of a function: views and tables by the names of its parameters; a single view under any name."""
    wanted = list(inspect.signature(function).parameters)
    by_name: dict[str, Any] = {identifier(name): frame for name, frame in inputs.items()} | {"spark": spark}
    others = [name for name in wanted if name not in by_name]
    views = [identifier(name) for name in inputs if name not in (spec.transform.tables if spec.transform else {})]
    if len(others) == 1 and len(views) == 1 and views[0] not in wanted:
        by_name[others[0]] = by_name[views[0]]
        others = []
    if others:
        raise spec.fault(
            "transform.python",
            f"the function takes {', '.join(wanted)}, but there is no {', '.join(others)}; name its parameters as the views are: "
            f"{', '.join(sorted(by_name))}",
        )
    return {name: by_name[name] for name in wanted}


def _walk(node: Any, names: list[str]) -> None:
    """Collect the stateful nodes above a stream."""
    if not node.isStreaming():
        return
    name = node.nodeName()
    children, inner = plan_items(node.children()), plan_items(node.subqueries())
    if any(child.isStreaming() for child in inner):
        names.append("a subquery on a topic")
    if name == "Join":
        sides = [side for side, child in zip(("left", "right"), children, strict=True) if child.isStreaming()]
        kind = node.joinType().sql()
        if len(sides) == 2 or kind not in _JOINS_BY_STREAM_SIDE[sides[0]]:
            names.append(f"a join of topics ({kind.lower()})")
    elif name not in _ROW_BY_ROW:
        names.append(name)
    for child in children:
        _walk(child, names)


def used_columns(frame: DataFrame) -> set[str]:
    """The columns of its views that the result depends on, from Spark's optimised plan."""
    plan = frame._jdf.queryExecution().optimizedPlan()
    aliases: dict[int, str] = {}
    used = {attribute_id(attribute) for attribute in plan_items(plan.output())}
    left = [plan]
    while left:
        node = left.pop()
        children = plan_items(node.children())
        if node.nodeName() == "MapInArrow" and children[0].nodeName() == "Range":
            aliases.update({attribute_id(attribute): str(attribute.name()) for attribute in plan_items(node.output())})
            continue
        used |= {attribute_id(attribute) for attribute in plan_items(node.references().toSeq())}
        left += children
        left += plan_items(node.subqueries())
    return {name for key, name in aliases.items() if key in used}


def attribute_id(attribute: Any) -> int:
    """The id of an attribute in a plan, which its alias does not share."""
    return int(attribute.exprId().id())


def plan_items(sequence: Any) -> list[Any]:
    """The items of a sequence of Scala."""
    return [sequence.apply(at) for at in range(sequence.size())]


def _reason(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.split("\nJVM stacktrace")[0].splitlines()[0]
