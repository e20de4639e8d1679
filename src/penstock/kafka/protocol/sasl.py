"""Authentication, and the credentials for it."""

from __future__ import annotations

from penstock.kafka.protocol.fields import Message, array, int8, int16, int32, int64, octets, string


class SaslHandshakeRequest(Message):
    """Chooses a SASL mechanism."""

    mechanism: str = string()


class SaslHandshakeResponse(Message):
    """The mechanisms there are."""

    error_code: int = int16()
    mechanisms: list[str] = array(string())


class SaslAuthenticateRequest(Message):
    """Carries one step of a SASL exchange."""

    auth_bytes: bytes = octets()


class SaslAuthenticateResponse(Message):
    """The server's step of the exchange."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = octets()
    session_lifetime_ms: int = int64("1+")


class UserName(Message):
    """One item of `DescribeUserScramCredentialsRequest.users`."""

    name: str = string()


class DescribeUserScramCredentialsRequest(Message):
    """Asks which SCRAM credentials users have."""

    users: list[UserName] | None = array(UserName, nullable="0+")


class CredentialInfo(Message):
    """One item of `DescribeUserScramCredentialsResult.credential_infos`."""

    mechanism: int = int8()
    iterations: int = int32()


class DescribeUserScramCredentialsResult(Message):
    """One item of `DescribeUserScramCredentialsResponse.results`."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


class DescribeUserScramCredentialsResponse(Message):
    """The mechanisms and iteration counts of each user."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)


class ScramCredentialDeletion(Message):
    """One item of `AlterUserScramCredentialsRequest.deletions`."""

    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Message):
    """One item of `AlterUserScramCredentialsRequest.upsertions`."""

    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = octets()
    salted_password: bytes = octets()


class AlterUserScramCredentialsRequest(Message):
    """Sets or removes SCRAM credentials of users."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Message):
    """One item of `AlterUserScramCredentialsResponse.results`."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class AlterUserScramCredentialsResponse(Message):
    """Whether each user was changed."""

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
