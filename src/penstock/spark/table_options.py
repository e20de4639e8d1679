"""The options of a table of Spark's catalog, `CREATE TABLE … USING penstock OPTIONS (…)`.

Spark (up to 4.3) gives a Python source the options of a table only when it is created. When it is read, the source gets its
columns, so the options are stored as the comment of the first one:

    penstock: kafka.bootstrap.servers=127.0.0.1:9092&subscribe=orders
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from penstock.spark.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_MARK: Final = "penstock: "
_PREFIX: Final = "option."
_PROVIDER: Final = "provider"
_SECRETS: Final = (
    "kafka.sasl.password",
    "kafka.sasl.jaas.config",
    "valueregistry.basic.auth.user.info",
    "valueregistry.bearer.auth.token",
)


def created_table_options(given: Mapping[str, str]) -> dict[str, str] | None:
    """The options of a table that is being created, which Spark mixes with properties of its own; None if there is no table.
    OptionError if they would show a secret to everyone who can describe the table."""
    if _PROVIDER not in given:
        return None
    options = {name.removeprefix(_PREFIX): value for name, value in given.items() if name.startswith(_PREFIX)}
    if not options:
        raise OptionError("a table needs OPTIONS (`kafka.bootstrap.servers` 'HOST:PORT', subscribe 'TOPIC')")
    refuse_secrets(options)
    return options


def refuse_secrets(options: Mapping[str, str]) -> None:
    """OptionError for an option that is a secret, or holds one."""
    lowered = {name.lower(): value for name, value in options.items()}
    secret: str | None = next((name for name in _SECRETS if name in lowered), None)
    if urlsplit(lowered.get("valueregistry", "")).password is not None:
        secret = "valueRegistry with a password"
    if secret is not None:
        raise OptionError(
            f"a table would show {secret} to all who describe it; leave it out of OPTIONS and give it when you read the table: "
            "spark.read.option(NAME, VALUE).table(TABLE)"
        )


def column_comment(options: Mapping[str, str]) -> str:
    """Options as a comment, without characters that mean something in SQL."""
    return _MARK + urlencode(options, safe=":,/.{}[]", quote_via=quote)


def stored_options(schema: StructType) -> dict[str, str]:
    """The options that a table's columns hold; none if these are not a table's."""
    comment = str(schema.fields[0].metadata.get("comment", "")) if schema.fields else ""
    return dict(parse_qsl(comment.removeprefix(_MARK), keep_blank_values=True)) if comment.startswith(_MARK) else {}
