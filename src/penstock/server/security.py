"""Security settings from the configuration: the administrator, tokens for peers, and TLS certificates."""

from __future__ import annotations

import ssl
from random import SystemRandom  # noqa: TID251 - salts and nonces must not be predictable

from penstock.broker import Security
from penstock.server.config import NodeConfig
from penstock.server.errors import BadSettingError


def security_of(config: NodeConfig) -> Security | None:
    """The security of the broker; None without `sasl`. Raises BadSettingError if the administrator's password cannot be read."""
    if not config.sasl:
        return None
    password = config.admin_password
    if config.admin_password_file is not None:
        try:
            password = config.admin_password_file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise BadSettingError(f"admin_password_file: {config.admin_password_file} cannot be read: {error}") from error
    if not password:
        raise BadSettingError("the administrator's password is empty")
    return Security(
        config.admin_user,
        password,
        SystemRandom(),
        allow_without_rule=config.allow_without_rule,
    )


def peer_token(config: NodeConfig) -> str | None:
    """The token for peer clusters; None if not configured. Raises BadSettingError if it cannot be read."""
    if config.peer_token_file is None:
        return None
    try:
        return config.peer_token_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettingError(f"peer_token_file: {config.peer_token_file} cannot be read: {error}") from error


def tls_context(config: NodeConfig) -> ssl.SSLContext | None:
    """The TLS context of the configured certificate; None without one. Raises BadSettingError if it cannot be used."""
    if config.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(config.tls_cert, config.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise BadSettingError(
            f"tls_cert {config.tls_cert} and tls_key {config.tls_key} cannot be used: {error}; both are PEM files, the "
            f"certificate first and then those that vouch for it, the key without a password"
        ) from error
    return context
