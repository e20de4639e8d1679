"""The connection of a node or a command to the etcd that its settings name."""

from __future__ import annotations

from random import Random

from penstock.coordination import Coordination, EtcdOptions, cluster_prefix, connect_etcd
from penstock.core.errors import ConfigError, InvalidRequestError
from penstock.server.config import NodeConfig
from penstock.server.errors import BadSettingError


def etcd_options(config: NodeConfig) -> EtcdOptions:
    """How to reach etcd. BadSettingError if the settings do not say so, or contradict each other."""
    try:
        return EtcdOptions(
            config.etcd or (),
            cluster_prefix(config.cluster_name),
            ca_file=config.etcd_ca,
            cert_file=config.etcd_cert,
            key_file=config.etcd_key,
            user=config.etcd_user or "",
            password=_password(config) if config.etcd_user else "",
        )
    except (ConfigError, InvalidRequestError) as error:
        raise BadSettingError(str(error)) from error


def connect_coordination(config: NodeConfig, random: Random) -> Coordination:
    """Coordination on etcd; connections are made when it is used."""
    return Coordination(connect_etcd(etcd_options(config), random))


def _password(config: NodeConfig) -> str:
    file = config.etcd_password_file
    if file is None:
        return config.etcd_password or ""
    try:
        return file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettingError(f"etcd_password_file: {file} cannot be read: {error}") from error
