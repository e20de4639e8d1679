"""How a program says who it is to a node that asks: TLS if the node speaks it, then a user and a password by SASL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from penstock.kafka.client import ClientSecurity

# Over TLS the password can be sent as it is, whichever credential the node has of the user; otherwise it never is.
PLAIN: Final = "PLAIN"
SCRAM: Final = "SCRAM-SHA-256"


class Identity(NamedTuple):
    """Who a program is, and which certificates it trusts. Without a user it says nothing; without certificates it uses no TLS."""

    user: str | None = None
    password: str = ""
    tls_ca: str | None = None

    @property
    def security(self) -> ClientSecurity:
        """TLS and sign-in on Kafka connections. A node that does not ask for a sign-in is fine."""
        from penstock.kafka.client import ClientSecurity

        return ClientSecurity(
            tls=self.tls_ca is not None,
            ca_file=self.tls_ca,
            username=self.user,
            password=self.password,
            mechanism=SCRAM if self.tls_ca is None else PLAIN,
            needs_sasl=False,
        )
