"""SCRAM, the server's side: the example of the RFC, and every way in which a client can be wrong."""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import suppress
from hashlib import new as new_hash
from hashlib import pbkdf2_hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker import Credential, Mechanism
from penstock.kafka.scram import AuthenticationError, ScramClient, ScramServer

SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = f"n,,n=user,r={CLIENT_NONCE}".encode()
PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
# Mostly what belongs into such messages, so that more than the first look at them is tried.
PIECES = (
    st.lists(
        st.sampled_from(["n,,", "n=", "r=", "user", CLIENT_NONCE, SERVER_NONCE, "c=biws", ",", "p=", "=", "AAAA", "ü", "\0"])
        | st.text()
    ).map(lambda parts: "".join(parts).encode())
    | st.binary()
)
FINAL = f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p={PROOF}".encode()


def server(password: str = "pencil", mechanism: Mechanism = Mechanism.SCRAM_SHA_256) -> ScramServer:
    return ScramServer(mechanism.sasl_name, lambda _: Credential.of_password(mechanism, 4096, SALT, password), SERVER_NONCE)


def proof_of(password: str, bare: str, first: str, without_proof: str, mechanism: Mechanism) -> str:
    """What a client works out by itself, straight from the RFC."""
    name = mechanism.hash_name
    fields = dict(item.split("=", 1) for item in first.split(","))
    salted = pbkdf2_hmac(name, password.encode(), b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", name)
    signature = hmac.digest(new_hash(name, client_key).digest(), f"{bare},{first},{without_proof}".encode(), name)
    return b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()


def test_the_example_of_rfc_7677() -> None:
    exchange = server()
    assert exchange.step(FIRST).decode() == f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert exchange.step(FINAL).decode() == "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert exchange.is_complete
    assert exchange.user == "user"


@pytest.mark.parametrize("mechanism", Mechanism)
def test_a_name_with_commas_and_equals_signs_is_read_back(mechanism: Mechanism) -> None:
    exchange = server("päss, wörd", mechanism)
    bare = "n=a=2Cb=3Dc,r=nonce"
    first = exchange.step(f"n,,{bare}".encode()).decode()
    without_proof = f"c=biws,r=nonce{SERVER_NONCE}"
    proof = proof_of("päss, wörd", bare, first, without_proof, mechanism)
    assert exchange.step(f"{without_proof},p={proof}".encode()).startswith(b"v=")
    assert exchange.user == "a,b=c"


def test_a_wrong_password_is_refused() -> None:
    exchange = server("pencils")
    exchange.step(FIRST)
    with pytest.raises(AuthenticationError, match="wrong user name or password"):
        exchange.step(FINAL)
    assert not exchange.is_complete


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"n,,n=user",
        b"n,,r=nonce",
        b"n=user,r=nonce",
        b"p=tls-unique,,n=user,r=nonce",
        b"n,a=other,n=user,r=nonce",
        b"n,,m=ext,n=user,r=nonce",
        b"n,,n=us=er,r=nonce",
        b"n,,n=user,n=user,r=nonce",
        b"\xff\xfe",
    ],
)
def test_a_first_message_that_is_none_is_refused(first: bytes) -> None:
    with pytest.raises(AuthenticationError):
        server().step(first)


@pytest.mark.parametrize(
    "change",
    [
        lambda final: final.replace(b"c=biws", b"c=eSws"),
        lambda final: final.replace(CLIENT_NONCE.encode(), b"other"),
        lambda final: final.replace(PROOF.encode(), b"AAAA"),
        lambda final: final.replace(PROOF.encode(), b"not base64"),
        lambda final: final.split(b",p=")[0],
        lambda _: b"",
    ],
)
def test_a_last_message_that_does_not_fit_is_refused(change: Callable[[bytes], bytes]) -> None:
    exchange = server()
    exchange.step(FIRST)
    with pytest.raises(AuthenticationError):
        exchange.step(change(FINAL))
    assert not exchange.is_complete


@given(first=PIECES, final=PIECES)
def test_whatever_is_sent_is_answered_or_refused(first: bytes, final: bytes) -> None:
    exchange = server()
    with suppress(AuthenticationError):
        exchange.step(first)
        exchange.step(final)
    assert not exchange.is_complete


@given(name=st.text(min_size=1), password=st.text())
def test_a_command_signs_in_whatever_its_name_and_password(name: str, password: str) -> None:
    users: list[str] = []

    def credential_of(user: str) -> Credential:
        users.append(user)
        return Credential.of_password(Mechanism.SCRAM_SHA_256, 1, SALT, password)

    exchange = ScramServer("SCRAM-SHA-256", credential_of, SERVER_NONCE)
    client = ScramClient("SCRAM-SHA-256", name, password, "nonce")
    client.check(exchange.step(client.answer(exchange.step(client.first()))))
    assert exchange.is_complete
    assert users == [name]


def test_an_exchange_that_is_over_does_not_go_on() -> None:
    exchange = server()
    exchange.step(FIRST)
    exchange.step(FINAL)
    with pytest.raises(AuthenticationError):
        exchange.step(FINAL)
