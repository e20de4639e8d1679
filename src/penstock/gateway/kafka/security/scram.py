"""The server's side of SCRAM (RFC 5802, RFC 7677), without channel binding. Pure.

    client: n,,n=user,r=nonce
    server: r=nonce + own nonce,s=salt,i=iterations
    client: c=biws,r=both nonces,p=proof
    server: v=signature

The client proves that it knows the password, the server that it knows the credential, and neither is ever sent.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable
from hashlib import new as new_hash

from penstock.broker import Credential
from penstock.core.errors import InvalidRequestError


class AuthenticationError(InvalidRequestError):
    """A client is not who it says, or does not say so in the right form."""

    code = "authentication_failed"


class ScramServer:
    """One exchange. `credential_of` gives what is known of a user, and something that fits no password for one who is not."""

    def __init__(self, credential_of: Callable[[str], Credential], nonce: str) -> None:
        self._credential_of = credential_of
        self._nonce = nonce  # the server's part of it, then all of it
        self._gs2_header = ""
        self._first_messages = ""
        self._credential: Credential | None = None
        self.user = ""
        self.is_complete = False

    def step(self, message: bytes) -> bytes:
        """Answer the client's next message. AuthenticationError if that is the end of it."""
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
        hash_name = credential.mechanism.hash_name
        proof = _decoded(proof_text)
        signature = hmac.digest(credential.stored_key, auth_message, hash_name)
        if len(proof) != len(signature):
            raise AuthenticationError("wrong user name or password")
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        if not hmac.compare_digest(new_hash(hash_name, client_key).digest(), credential.stored_key):
            raise AuthenticationError("wrong user name or password")
        self.is_complete = True
        return "v=" + b64encode(hmac.digest(credential.server_key, auth_message, hash_name)).decode()


def _split_first(text: str) -> tuple[str, str, str]:
    """Channel binding, the id to act as, and the rest of the first message."""
    parts = text.split(",", 2)
    if len(parts) < 3 or (parts[1] and not parts[1].startswith("a=")):
        raise AuthenticationError("the first SCRAM message has no proper beginning")
    return parts[0], parts[1][2:], parts[2]


def _fields(text: str) -> dict[str, str]:
    found = {}
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if not equals or name in found:
            raise AuthenticationError("a SCRAM message is not a list of fields")
        found[name] = value
    return found


def _plain_name(name: str) -> str:
    """A name as it was before commas and equals signs were written in another way."""
    if "=" in name.replace("=2C", "").replace("=3D", ""):
        raise AuthenticationError("the name of the user is not written as SCRAM asks")
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise AuthenticationError("a field of a SCRAM message is not base64") from error
