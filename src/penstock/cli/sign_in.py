"""How a command says who it is to a node that asks: TLS if the node speaks it, then a user and a password by SASL."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError, usage

if TYPE_CHECKING:
    import socket

# Over TLS the password can be sent as it is, whichever credential the node has of the user; otherwise it never is.
PLAIN: Final = "PLAIN"
SCRAM: Final = "SCRAM-SHA-256"
ITERATIONS_MAX: Final = 1_000_000

Exchange = Callable[[bytes], bytes]


class Identity(NamedTuple):
    """Who a command is, and which certificates it trusts. Without a user it says nothing; without certificates it uses no TLS."""

    user: str | None = None
    password: str = ""
    tls_ca: str | None = None

    @property
    def mechanism(self) -> str:
        """How it says who it is."""
        return SCRAM if self.tls_ca is None else PLAIN

    def wrap(self, connection: socket.socket, host: str) -> socket.socket:
        """The connection with TLS, if that is asked for. OSError if the other side is not who it should be."""
        if self.tls_ca is None:
            return connection
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.tls_ca)
        except OSError as error:
            raise usage(f"--tls-ca: {self.tls_ca} cannot be used: {error}") from error
        try:
            return context.wrap_socket(connection, server_hostname=host)
        except ssl.SSLError as error:
            raise CommandError(
                f"{host} does not speak TLS, or is not to be trusted: {error}; see --tls-ca", ExitCode.NO_CONNECTION
            ) from error

    def prove(self, exchange: Exchange) -> None:
        """Go through the exchange that the mechanism asks for; each token is answered by the next."""
        if self.mechanism == PLAIN:
            exchange(f"\0{self.user}\0{self.password}".encode())
            return
        import secrets
        from base64 import b64encode

        name = (self.user or "").replace("=", "=3D").replace(",", "=2C")
        nonce = secrets.token_urlsafe(18)
        bare = f"n={name},r={nonce}"
        challenge = exchange(f"n,,{bare}".encode()).decode()
        final, signature = _answer(self.password, nonce, bare, challenge)
        if exchange(final) != b"v=" + b64encode(signature):
            raise CommandError("the node does not know the password either; it may be somebody else's")


def _answer(password: str, nonce: str, bare: str, challenge: str) -> tuple[bytes, bytes]:
    """The last message of the client, and the signature that the node must answer with."""
    import hmac
    from base64 import b64decode, b64encode
    from hashlib import pbkdf2_hmac, sha256

    fields = dict(item.split("=", 1) for item in challenge.split(",") if "=" in item)
    iterations = int(fields.get("i", "0"))
    if not fields.get("r", "").startswith(nonce) or not 0 < iterations <= ITERATIONS_MAX:
        raise CommandError("the node does not answer as SCRAM asks")
    salted = pbkdf2_hmac("sha256", password.encode(), b64decode(fields["s"]), iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    without_proof = f"c=biws,r={fields['r']}"
    message = f"{bare},{challenge},{without_proof}".encode()
    signature = hmac.digest(sha256(client_key).digest(), message, "sha256")
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    expected = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), message, "sha256")
    return f"{without_proof},p={b64encode(proof).decode()}".encode(), expected
