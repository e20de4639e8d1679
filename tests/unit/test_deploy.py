"""What is in deploy/: texts that are checked as far as they can be where neither Docker nor systemd runs."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from penstock.cli.exit_codes import ExitCode
from penstock.interconnect import TlsFiles
from penstock.server import SETTINGS, NodeConfig
from tests.debian_tools import NotAvailableError, unpacked_tool

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "deploy" / "docker"
CLUSTER = ROOT / "deploy" / "cluster"
UNITS = [ROOT / "deploy" / "systemd" / name for name in ("penstock.service", "penstock@.service")]
DOCKERFILE = re.sub(r"^#.*\n", "", (DOCKER / "Dockerfile").read_text(), flags=re.MULTILINE)
STEPS = [line.strip() for line in DOCKERFILE.replace("\\\n", " ").splitlines() if line.strip()]
COMPOSE: dict[Path, dict[str, Any]] = {
    folder: yaml.safe_load((folder / "compose.yaml").read_text()) for folder in (DOCKER, CLUSTER)
}
SERVICES = [(folder, name, service) for folder, found in COMPOSE.items() for name, service in found["services"].items()]
MANIFESTS = {
    f"{file.stem} {manifest['kind']}": manifest
    for file in sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
    for manifest in yaml.safe_load_all(file.read_text())
}
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
    texts = [DOCKER / "Dockerfile", *UNITS, *(ROOT / "deploy" / "kubernetes").glob("*.yaml")]
    used = {name for text in texts for name in re.findall(r"\b(PENSTOCK_[A-Z_]+)", text.read_text())}
    for _, _, service in SERVICES:
        used |= {name for name in service.get("environment", ()) if name.startswith("PENSTOCK_")}
    assert used - known == set()


def test_compose_mounts_what_is_there() -> None:
    for folder, name, service in SERVICES:
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (folder / source).exists(), f"{name}: {source}"
            else:
                assert source in COMPOSE[folder]["volumes"], f"{name}: {source}"


def test_compose_opens_ports_on_this_machine_only() -> None:
    for _, name, service in SERVICES:
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name


def test_compose_pins_its_images() -> None:
    for _, name, service in SERVICES:
        if service["image"] != "penstock":  # which is built here
            assert re.fullmatch(r"[\w./-]+:v?\d+(\.\d+)+", service["image"]), name


def test_the_nodes_of_the_composed_cluster_differ_where_they_must() -> None:
    nodes = [service for _, name, service in SERVICES if name.startswith("penstock-")]
    assert len(nodes) == 3
    for key in ("PENSTOCK_NODE_NAME", "PENSTOCK_ADVERTISED_HOST", "PENSTOCK_KAFKA_PORT", "PENSTOCK_INTERCONNECT_KEY"):
        assert len({node["environment"][key] for node in nodes}) == 3, key
    for node in nodes:  # clients connect to the port that metadata names
        port = node["environment"]["PENSTOCK_KAFKA_PORT"]
        assert f"127.0.0.1:{port}:{port}" in node["ports"]


def test_certificates_are_of_one_authority(tmp_path: Path) -> None:
    script = [str(CLUSTER / "certificates.sh"), str(tmp_path)]
    for names in (["a"], ["a", "b"]):  # what is there is kept
        subprocess.run([*script, *names], check=True, capture_output=True, timeout=60)
    files = {name: TlsFiles(tmp_path / f"{name}.pem", tmp_path / f"{name}.key.pem", tmp_path / "ca.pem") for name in "ab"}
    client, server = files["a"].client_context(), files["b"].server_context()
    assert _shakes_hands(client, server)
    assert (tmp_path / "ca.key.pem").stat().st_mode & 0o077 == 0


def _shakes_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> bool:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    for _ in range(4):
        for side in list(sides):
            try:
                side.do_handshake()
                sides.remove(side)
            except ssl.SSLWantReadError:
                continue
    return not sides


@pytest.mark.parametrize("name", MANIFESTS)
def test_kubernetes_accepts_the_manifests(name: str) -> None:
    assert kubernetes_validate.validate(MANIFESTS[name], "1.30", strict=True) == "1.30"


def test_pods_of_nodes_are_asked_where_a_node_answers() -> None:
    pod = MANIFESTS["penstock StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"kafka": KAFKA_PORT, "http": HTTP_PORT, "interconnect": NodeConfig().interconnect_port}
    assert {port["name"]: port["port"] for port in MANIFESTS["penstock Service"]["spec"]["ports"]} == ports
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert not pod["enableServiceLinks"]  # PENSTOCK_PORT and the like would be unknown settings
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    files = [variable["value"] for variable in container["env"] if variable["name"].startswith("PENSTOCK_INTERCONNECT_")]
    assert all(file.startswith(mounted["interconnect"] + "/") for file in files)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: str(unit.name))
def test_the_service_is_not_started_again_when_that_cannot_help(unit: Path) -> None:
    (listed,) = re.findall(r"^RestartPreventExitStatus=(.+)$", unit.read_text(), re.MULTILINE)
    hopeless = {ExitCode.USAGE, ExitCode.DIRECTORY_UNUSABLE, ExitCode.DIRECTORY_MISMATCH}
    assert {int(code) for code in listed.split()} == {code.value for code in hopeless}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: str(unit.name))
def test_systemd_understands_the_unit(unit: Path, tmp_path: Path) -> None:
    """With a program that is there, since ours is not installed where the unit says."""
    try:
        tool = unpacked_tool("systemd", "systemd-analyze")
    except NotAvailableError as error:
        pytest.skip(str(error))
    copy = tmp_path / unit.name.replace("@", "@a")  # an instance
    copy.write_text(unit.read_text().replace("/opt/penstock/bin/penstock", "/bin/true"))
    # Systemd's own units, which it looks for where it is installed.
    units = next(folder for folder in tool.program.parents if (folder / "lib").exists()) / "lib" / "systemd" / "system"
    environment = {**os.environ, **tool.variables, "SYSTEMD_UNIT_PATH": f"{units}:"}
    argv = [str(tool.program), "verify", str(copy)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
