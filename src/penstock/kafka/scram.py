"""SCRAM (RFC 5802, RFC 7677) without channel binding, both sides. Pure: no I/O, nonces come in.

    client: n,,n=user,r=nonce
    server: r=nonce + own nonce,s=salt,i=iterations
    client: c=biws,r=both nonces,p=proof
    server: v=signature

The client proves that it knows the password, the server that it knows the credential, and neither is ever sent.
It is our own because Kafka's brokers do not apply SASLprep to names and passwords, which the common library insists on.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final, Protocol

from penstock.core.errors import InvalidRequestError, PenstockError

DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
# A node that asks for more wants to keep the client busy, not safe.
ITERATIONS_MAX: Final = 1 << 20


class ScramError(PenstockError):
    """The other side does not speak SCRAM, or does not know the password."""

    code = "scram"


class AuthenticationError(InvalidRequestError):
    """A client does not prove that it is the user it names, or sends a malformed message."""

    code = "authentication_failed"


class ScramCredential(Protocol):
    """What a server stores of a password, as far as an exchange needs it."""

    @property
    def iterations(self) -> int: ...
    @property
    def salt(self) -> bytes: ...
    @property
    def stored_key(self) -> bytes: ...
    @property
    def server_key(self) -> bytes: ...


class ScramClient:
    """The client's side of one exchange. `nonce` is a fresh random text without commas."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        self._digest = DIGESTS[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        self._bare = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._signature = b""

    def first(self) -> bytes:
        """Return the client's first message."""
        return f"n,,{self._bare}".encode()

    def answer(self, challenge: bytes) -> bytes:
        """Return the message with the proof, given the node's first message."""
        text = challenge.decode(errors="replace")
        fields = dict(item.split("=", 1) for item in text.split(",") if "=" in item)
        iterations = fields.get("i", "")
        if not fields.get("r", "").startswith(self._nonce) or not iterations.isdigit() or "s" not in fields:
            raise ScramError("the node does not answer as SCRAM asks; is another mechanism meant?")
        if not 0 < int(iterations) <= ITERATIONS_MAX:
            raise ScramError(f"the node asks for {iterations} iterations of SCRAM; at most {ITERATIONS_MAX} are made")
        salted = hashlib.pbkdf2_hmac(self._digest, self._password, b64decode(fields["s"]), int(iterations))
        client_key = hmac.digest(salted, b"Client Key", self._digest)
        final = f"c=biws,r={fields['r']}"
        message = f"{self._bare},{text},{final}".encode()
        stored_key = hashlib.new(self._digest, client_key).digest()
        proof = bytes(a ^ b for a, b in zip(client_key, hmac.digest(stored_key, message, self._digest), strict=True))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", self._digest), message, self._digest)
        return f"{final},p={b64encode(proof).decode()}".encode()

    def check(self, verdict: bytes) -> None:
        """Raise ScramError unless the node has proven that it knows the password too."""
        if not hmac.compare_digest(verdict.split(b",")[0], b"v=" + b64encode(self._signature)):
            raise ScramError("the node does not know the password; it may be somebody else's")


class ScramServer:
    """The server's side of one exchange. `credential_of` returns the credential of a user; for an unknown user, one that fits no
    password."""

    def __init__(self, mechanism: str, credential_of: Callable[[str], ScramCredential], nonce: str) -> None:
        self._digest = DIGESTS[mechanism]
        self._credential_of = credential_of
        self._nonce = nonce  # the server's part of it, then all of it
        self._gs2_header = ""
        self._first_messages = ""
        self._credential: ScramCredential | None = None
        self.user = ""
        self.is_complete = False

    def step(self, message: bytes) -> bytes:
        """Returns the answer to the client's next message. Raises AuthenticationError if the exchange has failed."""
        try:
            text = message.decode()
        except UnicodeDecodeError as error:
            raise AuthenticationError("a SCRAM message is not UTF-8") from error
        if self.is_complete:
            raise AuthenticationError("the SCRAM exchange is over")
        return (self._answer_first(text) if self._credential is None else self._answer_final(text)).encode()

    def _answer_first(self, text: str) -> str:
        binding, authorization_id, bare = _split_first(text)
        if binding not in ("n", "y"):
            raise AuthenticationError("channel binding is not offered")
        fields = _fields(bare)
        self.user = _plain_name(fields.get("n", ""))
        client_nonce = fields.get("r", "")
        if not self.user or not client_nonce or "m" in fields:
            raise AuthenticationError("the first SCRAM message has no user, no nonce, or asks for what is not known")
        if authorization_id and _plain_name(authorization_id) != self.user:
            raise AuthenticationError("a user can act only as itself")
        self._gs2_header = text[: len(text) - len(bare)]
        self._nonce = client_nonce + self._nonce
        credential = self._credential = self._credential_of(self.user)
        answer = f"r={self._nonce},s={b64encode(credential.salt).decode()},i={credential.iterations}"
        self._first_messages = f"{bare},{answer}"
        return answer

    def _answer_final(self, text: str) -> str:
        credential = self._credential
        assert credential is not None
        without_proof, _, proof_text = text.rpartition(",p=")
        fields = _fields(without_proof)
        if fields.get("r") != self._nonce or _decoded(fields.get("c", "")) != self._gs2_header.encode():
            raise AuthenticationError("the last SCRAM message does not belong to the first")
        auth_message = f"{self._first_messages},{without_proof}".encode()
        proof = _decoded(proof_text)
        signature = hmac.digest(credential.stored_key, auth_message, self._digest)
        if len(proof) != len(signature):
            raise AuthenticationError("wrong user name or password")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._digest, client_key).digest(), credential.stored_key):
            raise AuthenticationError("wrong user name or password")
        self.is_complete = True
        return "v=" + b64encode(hmac.digest(credential.server_key, auth_message, self._digest)).decode()


def _split_first(text: str) -> tuple[str, str, str]:
    """Returns the channel binding, the authorization id and the rest of the first message."""
    parts = text.split(",", 2)
    if len(parts) < 3 or (parts[1] and not parts[1].startswith("a=")):
        raise AuthenticationError("the first SCRAM message has no proper beginning")
    return parts[0], parts[1][2:], parts[2]


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if not equals or name in fields:
            raise AuthenticationError("a SCRAM message is not a list of fields")
        fields[name] = value
    return fields


def _plain_name(name: str) -> str:
    """Returns a user name with its commas and equals signs unescaped."""
    if "=" in name.replace("=2C", "").replace("=3D", ""):
        raise AuthenticationError("the name of the user is not written as SCRAM asks")
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise AuthenticationError("a field of a SCRAM message is not base64") from error
