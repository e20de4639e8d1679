"""Files of pipelines that a node has in its care."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.spark.pipelines.deployed import DeployedFile, read_deployed
from penstock.spark.pipelines.errors import SpecError

FILE = "pipeline: copy\nkind: replay\nsource: {topics: [a]}\ntarget: {topic: b}\n"


def deployed(directory: Path, text: str) -> DeployedFile:
    """A file, where the node has it."""
    place = directory / "pipelines" / "copy" / "1"
    place.mkdir(parents=True)
    (place / "copy.yaml").write_text(text)
    return DeployedFile(str(place / "copy.yaml"), str(directory), str(directory), "127.0.0.1:9092")


def test_errors_name_the_file_without_the_place_where_the_node_has_it(tmp_path: Path) -> None:
    spec = read_deployed(deployed(tmp_path, FILE))
    assert str(spec.fault("target.topic", "no such thing")) == "copy.yaml:4: target.topic: no such thing"
    assert spec.code_path("code.py") == str(tmp_path / "pipelines" / "copy" / "1" / "code.py")


def test_a_mistake_in_the_file_names_it_the_same_way(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"^copy\.yaml:2: kind: "):
        read_deployed(deployed(tmp_path, FILE.replace("replay", "repeat")))


def test_a_relative_path_of_a_secret_begins_where_the_file_was_deployed_from(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("open, sesame\n")
    spec = read_deployed(deployed(tmp_path, FILE + "options: {kafka.client.id: '${file:secret}'}\n"))
    assert spec.options["kafka.client.id"] == "open, sesame"
