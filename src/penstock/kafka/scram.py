"""SCRAM (RFC 5802, RFC 7677) without channel binding, the client's side. Pure: no I/O, the nonce comes in.

    client: n,,n=user,r=nonce
    server: r=nonce + own nonce,s=salt,i=iterations
    client: c=biws,r=both nonces,p=proof
    server: v=signature

It is our own because Kafka's brokers do not apply SASLprep to names and passwords, which the common library insists on.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from typing import Final

from penstock.core.errors import PenstockError

DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
# A node that asks for more wants to keep the client busy, not safe.
ITERATIONS_MAX: Final = 1 << 20


class ScramError(PenstockError):
    """The other side does not speak SCRAM, or does not know the password."""

    code = "scram"


class ScramClient:
    """One exchange. `nonce` is a fresh random text without commas."""

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
