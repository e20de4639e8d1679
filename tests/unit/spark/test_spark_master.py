"""Which Spark a session and a pipeline use, and the ones that they refuse."""

from __future__ import annotations

import pytest

from penstock.spark.errors import OptionError
from penstock.spark.pipelines.deployment_check import check_deployment
from penstock.spark.pipelines.spark_master import choose_master
from penstock.spark.session import session


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MASTER", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)


def test_the_option_goes_before_the_setting_and_that_before_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_master(None, {}) == "local[*]"
    monkeypatch.setenv("MASTER", "yarn")
    assert choose_master(None, {}) == "yarn"
    assert choose_master(None, {"spark.master": "local[1]"}) == "local[1]"
    assert choose_master("spark://host:7077", {"spark.master": "local[1]"}) == "spark://host:7077"


@pytest.mark.parametrize(
    ("given", "settings"), [("sc://host:15002", {}), (None, {"spark.master": "sc://host"}), (None, {"spark.remote": "sc://host"})]
)
def test_a_pipeline_refuses_spark_connect_in_one_sentence(given: str | None, settings: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"is Spark Connect, which .* spark://host:7077 or --master yarn$"):
        choose_master(given, settings)


def test_a_variable_that_asks_for_spark_connect_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://elsewhere")
    with pytest.raises(OptionError, match=r"^sc://elsewhere is Spark Connect.*unset SPARK_REMOTE"):
        choose_master("spark://host:7077", {})


def test_a_deployment_on_spark_connect_is_refused_before_it_is_stored() -> None:
    with pytest.raises(OptionError, match="is Spark Connect"):
        check_deployment({"file": {}, "master": "sc://host", "conf": {}})


def test_a_session_has_a_master_or_a_remote() -> None:
    with pytest.raises(OptionError, match=r"master is yarn and remote is sc://host"):
        session(master="yarn", remote="sc://host")
