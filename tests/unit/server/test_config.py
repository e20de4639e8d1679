"""The configuration of a node: which source wins, and how what is wrong is told."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from penstock.blob import Erasure
from penstock.server import SETTINGS, BadSettingError, NodeConfig, load_config


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "some.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)


def test_nothing_need_be_said() -> None:
    assert load_config({}, {}) == NodeConfig()


def test_every_source_overrides_the_one_before(tmp_path: Path) -> None:
    path = _file(tmp_path, 'kafka_port = 1\nhost = "one"\nnode_id = 1')
    config = load_config({"kafka_port": "3"}, {"PENSTOCK_KAFKA_PORT": "2", "PENSTOCK_HOST": "two"}, path)
    assert (config.kafka_port, config.host, config.node_id) == (3, "two", 1)


def test_the_file_in_the_working_directory_is_read() -> None:
    Path("penstock.toml").write_text("kafka_port = 7", encoding="utf-8")
    assert load_config({}, {}).kafka_port == 7


def test_the_environment_can_name_the_file(tmp_path: Path) -> None:
    path = _file(tmp_path, "kafka_port = 7")
    assert load_config({}, {"PENSTOCK_CONFIG": str(path)}).kafka_port == 7


def test_a_path_in_a_file_is_relative_to_the_file(tmp_path: Path) -> None:
    path = _file(tmp_path, 'data_dir = "data"\ndisks = ["a", "/b"]')
    config = load_config({}, {}, path)
    assert config.data_dir == tmp_path / "data"
    assert config.disks == (tmp_path / "a", Path("/b"))


def test_disks_come_as_a_list_from_every_source() -> None:
    assert load_config({"disks": ["a", "b"]}, {}).disks == (Path("a"), Path("b"))
    assert load_config({}, {"PENSTOCK_DISKS": "a:b"}).disks == (Path("a"), Path("b"))


def test_none_turns_a_listener_off() -> None:
    assert load_config({"kafka_port": "none"}, {}).kafka_port is None


@pytest.mark.parametrize(
    ("text", "size"), [("1024", 1024), ("1KiB", 1024), ("2 MiB", 2 << 20), ("3gib", 3 << 30), ("5MB", 5_000_000)]
)
def test_sizes_may_have_units(text: str, size: int) -> None:
    assert load_config({"cache_bytes": text}, {}).cache_bytes == size


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("drain_timeout_s", "1.5m", 90.0),
        ("drain_timeout_s", "250ms", 0.25),
        ("stream_ttl_s", "7d", 604_800.0),
        ("offsets_retention_minutes", "7d", 10_080),
        ("group_session_timeout_max_ms", "10 m", 600_000),
    ],
)
def test_durations_may_have_units(key: str, text: str, value: float) -> None:
    assert getattr(load_config({key: text}, {}), key) == value


def test_an_unknown_key_is_named_with_its_file_and_a_likely_meaning(tmp_path: Path) -> None:
    path = _file(tmp_path, "kafka_prot = 9092")
    with pytest.raises(BadSettingError, match=r"some\.toml: unknown key 'kafka_prot'; did you mean kafka_port\?"):
        load_config({}, {}, path)


def test_an_unknown_variable_is_an_error() -> None:
    with pytest.raises(
        BadSettingError, match="unknown environment variable PENSTOCK_KAFKA_PROT; did you mean PENSTOCK_KAFKA_PORT"
    ):
        load_config({}, {"PENSTOCK_KAFKA_PROT": "9092"})


def test_variables_of_others_are_none_of_our_business() -> None:
    assert load_config({}, {"PATH": "/bin", "PENSTOCK_BOOTSTRAP": "host:1"}) == NodeConfig()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kafka_port", "65536"),
        ("kafka_port", "-1"),
        ("kafka_port", "http"),
        ("kafka_port", ""),
        ("erasure", "raid-5"),
        ("durability", "maybe"),
        ("node_id", "-1"),
        ("node_id", "1.5"),
        ("host", "not a host"),
        ("host", ""),
        ("data_dir", ""),
        ("disks", [""]),
        ("cache_bytes", "0"),
        ("cache_bytes", "1 parsec"),
        ("drain_timeout_s", "nan"),
        ("drain_timeout_s", "0"),
        ("drain_timeout_s", "inf"),
        ("drain_timeout_s", "0s"),
        ("drain_timeout_s", "3 weeks"),
        ("offsets_retention_minutes", "90s"),
        ("group_session_timeout_max_ms", "1000d"),
        ("auto_create_topics", "yes"),
        ("default_partitions", "0"),
        ("log_level", "loud"),
    ],
)
def test_a_bad_value_is_told_with_its_key_its_source_and_what_is_allowed(key: str, value: object) -> None:
    with pytest.raises(BadSettingError) as caught:
        load_config({key: value}, {})
    text = str(caught.value)
    assert text.startswith(f"option {SETTINGS[key].option}: {key} is ")
    assert SETTINGS[key].kind.allowed in text


@pytest.mark.parametrize(
    "line", ['kafka_port = "9092x"', "kafka_port = true", "host = 5", 'disks = "a"\nhost = 1', "node_id = 1.0"]
)
def test_a_value_of_the_wrong_type_in_a_file_is_an_error(tmp_path: Path, line: str) -> None:
    with pytest.raises(BadSettingError, match=r"some\.toml: "):
        load_config({}, {}, _file(tmp_path, line))


def test_a_variable_with_a_bad_value_is_named() -> None:
    with pytest.raises(BadSettingError, match="environment variable PENSTOCK_NODE_ID: node_id is 'x'"):
        load_config({}, {"PENSTOCK_NODE_ID": "x"})


def test_a_file_that_is_not_there_or_not_toml_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadSettingError, match=r"cannot read the configuration file .*absent\.toml: No such file"):
        load_config({}, {}, tmp_path / "absent.toml")
    with pytest.raises(BadSettingError, match=r"some\.toml is not TOML"):
        load_config({}, {}, _file(tmp_path, "kafka_port"))


def test_the_defaults_shown_are_the_defaults() -> None:
    """What the help says, read as a user would write it, gives what is used."""
    for field in fields(NodeConfig):
        setting = SETTINGS[field.name]
        if field.default is None:
            assert setting.default.startswith(("that of the data directory", "those of the data directory", "the host;", "none"))
        else:
            assert setting.kind.read(setting.default) == field.default


def test_every_erasure_can_be_chosen() -> None:
    assert SETTINGS["erasure"].kind.choices == tuple(erasure.value for erasure in Erasure)


def test_members_report_more_often_than_their_sessions_last() -> None:
    with pytest.raises(BadSettingError, match=r"consumer_heartbeat_interval_s is 9\.0; it must be less than .* which is 8\.0"):
        load_config({"consumer_heartbeat_interval_s": "9", "consumer_session_timeout_s": "8"}, {})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sasl": "true"}, "no password"),
        ({"sasl": "true", "admin_password": "a", "admin_password_file": "b"}, "give the password once"),
        ({"admin_password": "a"}, "sasl is false"),
        ({"tls_cert": "a"}, "one of them is missing"),
        ({"tls_key": "a"}, "one of them is missing"),
        ({"kafka_tls_port": "9093"}, "no certificate"),
    ],
)
def test_security_that_is_only_half_there_is_refused(settings: dict[str, str], said: str) -> None:
    environ = {SETTINGS[key].variable: value for key, value in settings.items()}
    with pytest.raises(BadSettingError, match=said):
        load_config({}, environ)


def test_a_password_is_nowhere_to_be_read() -> None:
    config = load_config({"sasl": "true"}, {"PENSTOCK_ADMIN_PASSWORD": "open sesame"})
    assert config.admin_password == "open sesame"
    assert "open sesame" not in repr(config)
    with pytest.raises(BadSettingError) as caught:
        load_config({"sasl": "true"}, {"PENSTOCK_ADMIN_PASSWORD": "open\0sesame"})
    assert "sesame" not in str(caught.value)


def test_files_named_in_a_file_are_relative_to_it(tmp_path: Path) -> None:
    path = _file(tmp_path, 'sasl = true\nadmin_password_file = "password"\ntls_cert = "cert.pem"\ntls_key = "/key.pem"')
    config = load_config({}, {}, path)
    assert config.admin_password_file == tmp_path / "password"
    assert (config.tls_cert, config.tls_key) == (tmp_path / "cert.pem", Path("/key.pem"))


def test_consoles_of_other_clusters_are_named_without_credentials() -> None:
    peers = {"east": "https://east.example:8080"}
    assert load_config({"console_peers": "east=https://east.example:8080"}, {}).console_peers == peers
    with pytest.raises(BadSettingError, match="without credentials"):
        load_config({"console_peers": "east=https://anna:secret@east.example"}, {})
