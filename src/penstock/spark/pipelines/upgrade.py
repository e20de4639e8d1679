"""Whether a changed pipeline may continue from what it has committed: offsets and state belong to a source, a target and keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from penstock.core.errors import InvalidRequestError
from penstock.spark.pipelines.spec import PipelineSpec, SourceSpec, TableSpec


class IncompatibleChangeError(InvalidRequestError):
    """A change of a pipeline does not go with what it has committed."""

    code = "pipeline_change"


def check_upgrade(before: PipelineSpec, after: PipelineSpec, *, is_reset: bool) -> None:
    """Raise IncompatibleChangeError with all reasons why `after` cannot continue where `before` is; with `is_reset`, why it
    cannot start over."""
    reasons = list(_changes(before, after))
    if is_reset:
        reason = _reset_trouble(before, after)
        if reason is not None:
            raise IncompatibleChangeError(f"pipeline {after.name!r} cannot start over: {reason}")
    elif reasons:
        raise IncompatibleChangeError(
            f"pipeline {after.name!r} cannot continue from its last commit: {'; '.join(reasons)}. Give it another name, or "
            "start over with --reset: it forgets offsets and state and reads from source.start; rows in the target stay"
        )


def _changes(before: PipelineSpec, after: PipelineSpec) -> Iterator[str]:
    if before.kind != after.kind:
        yield f"kind was {before.kind}, and is {after.kind}"
    if before.brokers != after.brokers:
        yield f"brokers were {before.brokers}, and are {after.brokers}"
    yield from _source_changes(before.source, after.source)
    if (before.target.topic, _place(before.target.table)) != (after.target.topic, _place(after.target.table)):
        yield f"target was {before.target}, and is {after.target}"
    elif before.target.table is not None and after.target.table is not None:
        yield from _table_changes(before.target.table, after.target.table)
    if _has_state(before) and before.transform != after.transform:
        yield f"its state at {before.checkpoint} is of another transform"


def _source_changes(before: SourceSpec, after: SourceSpec) -> Iterator[str]:
    gone = sorted(set(before.topics) - set(after.topics))
    if gone and not after.pattern:
        yield f"source.topics lacks {', '.join(gone)}, which it has read"
    elif str(before) != str(after) and not (before.topics and after.topics):
        yield f"source was {before}, and is {after}"


def _table_changes(before: TableSpec, after: TableSpec) -> Iterator[str]:
    if before.partition_by != after.partition_by:
        yield f"partition_by was {_listed(before.partition_by)}, and is {_listed(after.partition_by)}"
    old, new = before.merge, after.merge
    if (old is None) != (new is None):
        yield "merge was " + ("not set, and is set" if old is None else "set, and is not")
    elif old is not None and new is not None:
        if old.key != new.key:
            yield f"merge.key was {_listed(old.key)}, and is {_listed(new.key)}"
        if old.history != new.history:
            yield f"merge.history was {str(old.history).lower()}, and is {str(new.history).lower()}"


def _reset_trouble(before: PipelineSpec, after: PipelineSpec) -> str | None:
    if after.kind == "load":
        return "what it has loaded is recorded under its name; give it another name"
    if after.target.table is not None and _place(before.target.table) == _place(after.target.table):
        return f"the offsets are in {after.target.table}; give it another name and another table"
    return None


def _place(table: TableSpec | None) -> tuple[str | None, ...] | None:
    return None if table is None else (table.format, table.location, table.name)


def _has_state(spec: PipelineSpec) -> bool:
    if spec.transform is None or spec.transform.state == "stateless":
        return False
    # A remote one was set by hand, which only a query with state needs, and the node may have no access to it.
    return "://" in spec.checkpoint or Path(spec.checkpoint).is_dir()


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "empty"
