"""The client's side of SCRAM (RFC 5802, RFC 7677), without channel binding: two messages out, two checked. Pure."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from typing import Final

from penstock.spark.errors import BrokerRefusedError

DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
# A node that asks for more than that wants to keep us busy, not safe.
ITERATIONS_MAX: Final = 1 << 20


class ScramClient:
    """One exchange. `nonce` is a fresh random text without commas."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        self._digest = DIGESTS[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        self._bare = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._signature = b""

    def first(self) -> bytes:
        """What to say first."""
        return f"n,,{self._bare}".encode()

    def answer(self, challenge: bytes) -> bytes:
        """The proof, for what the node has said to that."""
        text = challenge.decode(errors="replace")
        fields = dict(item.split("=", 1) for item in text.split(",") if "=" in item)
        iterations = fields.get("i", "")
        if not fields.get("r", "").startswith(self._nonce) or not iterations.isdigit() or "s" not in fields:
            raise BrokerRefusedError("the node does not answer as SCRAM asks; is another sasl.mechanism meant?")
        if not 0 < int(iterations) <= ITERATIONS_MAX:
            raise BrokerRefusedError(f"the node asks for {iterations} iterations of SCRAM; up to {ITERATIONS_MAX} are made")
        salted = hashlib.pbkdf2_hmac(self._digest, self._password, b64decode(fields["s"]), int(iterations))
        client_key = hmac.digest(salted, b"Client Key", self._digest)
        final = f"c=biws,r={fields['r']}"
        message = f"{self._bare},{text},{final}".encode()
        stored = hashlib.new(self._digest, client_key).digest()
        proof = bytes(a ^ b for a, b in zip(client_key, hmac.digest(stored, message, self._digest), strict=True))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", self._digest), message, self._digest)
        return f"{final},p={b64encode(proof).decode()}".encode()

    def check(self, verdict: bytes) -> None:
        """Whether the node knows the password too; otherwise it may be anybody."""
        if not hmac.compare_digest(verdict.split(b",")[0], b"v=" + b64encode(self._signature)):
            raise BrokerRefusedError("the node does not know the password; it may be somebody else's")
