"""Reads schemas from a registry by Confluent's REST API: the node's own, or any other, with its own sign-in."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from http.client import HTTPMessage
from pathlib import Path
from typing import IO, Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from penstock.core.errors import UnavailableError
from penstock.schemas import Schema, parse_schema
from penstock.spark.errors import OptionError

TIMEOUT_S: Final = 10.0
REFERENCES_MAX: Final = 1000
USER_INFO: Final = "basic.auth.user.info"
TOKEN: Final = "bearer.auth.token"
CA: Final = "ssl.ca.location"
CERTIFICATE: Final = "ssl.certificate.location"
KEY: Final = "ssl.key.location"
SETTINGS: Final = (USER_INFO, TOKEN, CA, CERTIFICATE, KEY)
"""How to sign in, by the names that Confluent's clients have for it."""


class RegistryError(UnavailableError):
    """The schema registry cannot be reached, or does not know a schema."""

    code = "schema_registry"


class RegistryAddress(NamedTuple):
    """Where a registry is, and how to sign in. The URL may hold a user and a password. `ca` is the text of the certificates that
    are trusted; the other files must be at the same place on executors."""

    url: str
    user_info: str | None = None
    token: str | None = None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def __repr__(self) -> str:
        return f"RegistryAddress({shown_url(self.url)!r})"


def registry_address(url: str, settings: Mapping[str, str]) -> RegistryAddress:
    """The address with the settings of its sign-in. OptionError if they do not fit together."""
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise OptionError("the registry must be an address such as http://127.0.0.1:8081")
    user_info, token = settings.get(USER_INFO), settings.get(TOKEN)
    if user_info is not None and ":" not in user_info:
        raise OptionError(f"{USER_INFO} of the registry must be USER:PASSWORD")
    if token is not None and (user_info is not None or urlsplit(url).username is not None):
        raise OptionError(f"the registry has {TOKEN} and a user; keep one of them")
    certificate, key = settings.get(CERTIFICATE), settings.get(KEY)
    if key is not None and certificate is None:
        raise OptionError(f"{KEY} of the registry goes with {CERTIFICATE}")
    ca = settings.get(CA)
    try:
        trusted = None if ca is None else Path(ca).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{CA} of the registry cannot be read: {error}") from error
    return RegistryAddress(url.rstrip("/"), user_info, token, trusted, certificate, key)


def shown_url(url: str) -> str:
    """An address without its password."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return urlunsplit((parts.scheme, host if parts.port is None else f"{host}:{parts.port}", parts.path, "", ""))


class RegisteredSchema(NamedTuple):
    """A schema: its text, whether it is AVRO, JSON or PROTOBUF, and what it refers to. `id` is 0 where it is not told."""

    text: str
    kind: str
    references: tuple[tuple[str, str, int], ...] = ()
    id: int = 0

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> RegisteredSchema:
        """The schema that an answer of the registry has."""
        references = tuple(
            (str(item["name"]), str(item["subject"]), int(item["version"])) for item in fields.get("references") or ()
        )
        return cls(str(fields["schema"]), str(fields.get("schemaType") or "AVRO"), references, int(fields.get("id", 0)))


class SchemaRegistry:
    """A registry. A schema that was read by its id is kept, as ids never change."""

    _known: Final[dict[tuple[str, str], RegisteredSchema]] = {}

    def __init__(self, address: RegistryAddress) -> None:
        self._address = address
        self._shown = shown_url(address.url)
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        parts = urlsplit(address.url)
        user_info = address.user_info
        if user_info is None and parts.username is not None:
            user_info = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        if user_info is not None:
            self._headers["Authorization"] = f"Basic {b64encode(user_info.encode()).decode()}"
        elif address.token is not None:
            self._headers["Authorization"] = f"Bearer {address.token}"
        tls = [urllib.request.HTTPSHandler(context=_tls(address))] if parts.scheme == "https" else []
        self._opener = urllib.request.build_opener(_SignInStays, *tls)

    def schema(self, schema_id: int) -> RegisteredSchema:
        """The schema of an id."""
        return self._read(f"/schemas/ids/{schema_id}", keeps=True)

    def latest(self, subject: str) -> RegisteredSchema:
        """The last version of a subject's schema."""
        return self._read(f"/subjects/{quote(subject, safe='')}/versions/latest", keeps=False)

    def parsed(self, registered: RegisteredSchema) -> Schema:
        """A schema with all that it refers to."""
        found: dict[str, Schema] = {}
        self._collect(registered, found)
        return parse_schema(registered.kind, registered.text, found)

    def _collect(self, registered: RegisteredSchema, found: dict[str, Schema]) -> None:
        for name, subject, version in registered.references:
            if name in found:
                continue
            if len(found) >= REFERENCES_MAX:
                raise RegistryError(f"a schema of the registry leads to more than {REFERENCES_MAX} references")
            reference = self._read(f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true", keeps=True)
            self._collect(reference, found)
            found[name] = parse_schema(reference.kind, reference.text, found)

    def _read(self, path: str, *, keeps: bool) -> RegisteredSchema:
        known = self._known.get((self._address.url, path))
        if known is not None:
            return known
        try:
            request = urllib.request.Request(self._shown + path, headers=self._headers)
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                schema = RegisteredSchema.of(json.load(answer))
        except urllib.error.HTTPError as error:
            with error:
                raise RegistryError(
                    f"the schema registry answers {path} with {error.code} {error.reason}: {self._shown}"
                ) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RegistryError(f"the schema registry at {self._shown} cannot be read: {error}") from error
        if keeps:
            self._known[self._address.url, path] = schema
        return schema


class _SignInStays(urllib.request.HTTPRedirectHandler):
    """Follows redirects; the sign-in is not sent to another server."""

    def redirect_request(  # noqa: PLR0917 - as urllib calls it
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        redirected = super().redirect_request(req, fp, code, msg, headers, newurl)
        if redirected is not None and urlsplit(newurl)[:2] != urlsplit(req.full_url)[:2]:
            redirected.remove_header("Authorization")
        return redirected


def _tls(address: RegistryAddress) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=address.ca)
        if address.certificate is not None:
            context.load_cert_chain(address.certificate, address.key)
    except OSError as error:
        raise OptionError(f"the certificates for the registry at {shown_url(address.url)} cannot be used: {error}") from error
    return context
