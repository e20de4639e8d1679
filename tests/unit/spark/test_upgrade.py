"""Which changes of a deployed pipeline go with what it has committed."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.spark.pipelines.deployed import DeployedFile, read_deployed
from penstock.spark.pipelines.errors import SpecError
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.pipelines.upgrade import IncompatibleChangeError, check_upgrade

EXPORT = """
pipeline: p
kind: export
source: {topics: [a, b], value: {format: json, schema: "id BIGINT, at BIGINT"}}
target: {table: {format: delta, location: lake, merge: {key: [id], order_by: at}}}
"""
TRANSFORM = """
pipeline: p
kind: transform
source: {topics: [a]}
transform: {sql: SELECT value FROM a}
target: {topic: t}
"""


def spec(directory: Path, text: str) -> PipelineSpec:
    file = directory / "p.yaml"
    file.write_text(text)
    return read_deployed(DeployedFile(str(file), str(directory), "", "127.0.0.1:9092"))


@pytest.mark.parametrize(
    ("text", "change", "reason"),
    [
        (EXPORT, ("topics: [a, b]", "topics: [a]"), "source.topics lacks b"),
        (EXPORT, ("location: lake", "location: other"), "target was delta table lake, and is delta table other"),
        (EXPORT, ("key: [id]", "key: [at]"), "merge.key was id, and is at"),
        (EXPORT, ("order_by: at", "order_by: at, history: true"), "merge.history was false, and is true"),
        (EXPORT, ("source:", "brokers: other:9092\nsource:"), "brokers were 127.0.0.1:9092, and are other:9092"),
        (TRANSFORM, ("topic: t", "topic: u"), "target was topic t, and is topic u"),
    ],
)
def test_a_change_that_does_not_go_with_the_offsets_is_refused(
    tmp_path: Path, text: str, change: tuple[str, str], reason: str
) -> None:
    before, after = spec(tmp_path, text), spec(tmp_path, text.replace(*change))
    with pytest.raises(IncompatibleChangeError, match="--reset") as refused:
        check_upgrade(before, after, is_reset=False)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("text", "change"),
    [
        (EXPORT, ("topics: [a, b]", "topics: [a, b, c]")),
        (EXPORT, ("at BIGINT", "at BIGINT, name STRING")),
        (TRANSFORM, ("SELECT value", "SELECT upper(value) AS value")),
        (TRANSFORM, ("target:", "trigger: {every: 5m}\ntarget:")),
    ],
)
def test_other_changes_continue_where_it_was(tmp_path: Path, text: str, change: tuple[str, str]) -> None:
    check_upgrade(spec(tmp_path, text), spec(tmp_path, text.replace(*change)), is_reset=False)


def test_a_query_with_state_is_not_changed(tmp_path: Path) -> None:
    before = spec(tmp_path, TRANSFORM)
    (tmp_path / ".penstock" / "p").mkdir(parents=True)
    with pytest.raises(IncompatibleChangeError, match="is of another transform"):
        check_upgrade(before, spec(tmp_path, TRANSFORM.replace("SELECT", "SELECT DISTINCT")), is_reset=False)


def test_a_query_whose_state_is_in_a_store_is_not_changed_unless_it_says_that_it_has_none(tmp_path: Path) -> None:
    remote = TRANSFORM.replace("transform: {", "transform: {checkpoint: 's3a://states/p', ")
    changes = ("SELECT value", "SELECT upper(value) AS value")
    before = spec(tmp_path, remote)
    with pytest.raises(IncompatibleChangeError, match="its state at s3a://states/p is of another transform"):
        check_upgrade(before, spec(tmp_path, remote.replace(*changes)), is_reset=False)
    check_upgrade(before, spec(tmp_path, remote.replace("target:", "trigger: {every: 5m}\ntarget:")), is_reset=False)
    without = remote.replace("transform: {", "transform: {state: stateless, ")
    check_upgrade(spec(tmp_path, without), spec(tmp_path, without.replace(*changes)), is_reset=False)


def test_what_its_table_knows_cannot_be_reset(tmp_path: Path) -> None:
    before = spec(tmp_path, EXPORT)
    with pytest.raises(IncompatibleChangeError, match="the offsets are in delta table lake"):
        check_upgrade(before, spec(tmp_path, EXPORT), is_reset=True)
    check_upgrade(before, spec(tmp_path, EXPORT.replace("lake", "other")), is_reset=True)


def test_a_relative_path_of_another_machine_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(EXPORT)
    with pytest.raises(SpecError, match=r"p\.yaml:5: target\.table\.location: a relative path begins at /not/here"):
        read_deployed(DeployedFile(str(file), "/not/here", str(tmp_path), "127.0.0.1:9092"))
