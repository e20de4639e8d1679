"""What is in deploy/: texts that are checked as far as they can be where neither Docker nor systemd runs."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.cli.exit_codes import ExitCode
from penstock.server import SETTINGS, NodeConfig
from tests.debian_tools import NotAvailableError, unpacked_tool

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "deploy" / "docker"
UNIT = ROOT / "deploy" / "systemd" / "penstock.service"
DOCKERFILE = re.sub(r"^#.*\n", "", (DOCKER / "Dockerfile").read_text(), flags=re.MULTILINE)
STEPS = [line.strip() for line in DOCKERFILE.replace("\\\n", " ").splitlines() if line.strip()]
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
HTTP_PORT = NodeConfig().http_port
KAFKA_PORT = NodeConfig().kafka_port


def _steps(word: str) -> list[str]:
    return [step.removeprefix(word).strip() for step in STEPS if step.startswith(f"{word} ")]


def test_the_image_is_built_in_stages_of_fixed_versions() -> None:
    assert len(_steps("FROM")) == 2
    assert all("latest" not in base and ":" in base for base in _steps("FROM"))
    assert _steps("ARG")[0].startswith("PYTHON_VERSION=3.")


def test_the_image_does_not_run_as_root() -> None:
    last_stage = STEPS[max(at for at, step in enumerate(STEPS) if step.startswith("FROM ")) :]
    users = [step for step in last_stage if step.startswith("USER ")]
    assert users == ["USER 10001:10001"]
    assert last_stage.index(users[0]) < last_stage.index('ENTRYPOINT ["penstock"]')


def test_the_image_leaves_no_lists_of_packages_behind() -> None:
    for step in _steps("RUN"):
        if "apt-get install" in step:
            assert "--no-install-recommends" in step
            assert "rm -rf /var/lib/apt/lists/*" in step


def test_the_image_copies_only_what_there_is_and_what_is_sent_to_the_builder() -> None:
    sent = {
        line.removeprefix("!") for line in (DOCKER / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")
    }
    for step in _steps("COPY"):
        if not step.startswith("--from="):
            for source in step.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert source in sent, f"{source} is not sent to the builder"


def test_the_image_asks_itself_for_its_health_where_a_node_answers() -> None:
    (check,) = _steps("HEALTHCHECK")
    assert f"http://127.0.0.1:{HTTP_PORT}/healthz" in check
    assert _steps("EXPOSE") == [f"{KAFKA_PORT} {HTTP_PORT}"]


def test_variables_are_settings() -> None:
    known = {setting.variable for setting in SETTINGS.values()}
    used = set(re.findall(r"\b(PENSTOCK_[A-Z_]+)", (DOCKER / "Dockerfile").read_text() + UNIT.read_text()))
    used |= set(COMPOSE["services"]["penstock"]["environment"])
    assert used - known == set()


def test_compose_mounts_what_is_there() -> None:
    for name, service in COMPOSE["services"].items():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (DOCKER / source).exists(), f"{name}: {source}"
            else:
                assert source in COMPOSE["volumes"], f"{name}: {source}"


def test_compose_opens_ports_on_this_machine_only() -> None:
    for name, service in COMPOSE["services"].items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name


def test_compose_pins_its_images() -> None:
    for name, service in COMPOSE["services"].items():
        if "build" not in service:
            assert re.fullmatch(r"[\w./-]+:v?\d+(\.\d+)+", service["image"]), name


def test_the_service_is_not_started_again_when_that_cannot_help() -> None:
    (listed,) = re.findall(r"^RestartPreventExitStatus=(.+)$", UNIT.read_text(), re.MULTILINE)
    hopeless = {ExitCode.USAGE, ExitCode.DIRECTORY_UNUSABLE, ExitCode.DIRECTORY_MISMATCH}
    assert {int(code) for code in listed.split()} == {code.value for code in hopeless}


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    """With a program that is there, since ours is not installed where the unit says."""
    try:
        tool = unpacked_tool("systemd", "systemd-analyze")
    except NotAvailableError as error:
        pytest.skip(str(error))
    copy = tmp_path / "penstock.service"
    copy.write_text(UNIT.read_text().replace("/opt/penstock/bin/penstock", "/bin/true"))
    # Systemd's own units, which it looks for where it is installed.
    units = next(folder for folder in tool.program.parents if (folder / "lib").exists()) / "lib" / "systemd" / "system"
    environment = {**os.environ, **tool.variables, "SYSTEMD_UNIT_PATH": f"{units}:"}
    argv = [str(tool.program), "verify", str(copy)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
