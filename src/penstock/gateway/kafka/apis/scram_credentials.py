"""DescribeUserScramCredentials and AlterUserScramCredentials: the credentials of users."""

from __future__ import annotations

from penstock.broker import Credential, Mechanism, RepeatedCredentialError, UnknownMechanismError
from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.error_codes import code_of
from penstock.kafka.protocol import errors
from penstock.kafka.protocol.sasl import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)


async def describe_user_scram_credentials(
    call: Call, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Which credentials users have, but nothing that helps to be them; without names, of all users."""
    users = call.node.broker.users
    requested = [user.name for user in request.users or []]
    results: list[DescribeUserScramCredentialsResult] = []
    for name in requested or users.names():
        result = DescribeUserScramCredentialsResult(user=name, error_message=None)
        if requested.count(name) > 1:
            result.error_code, result.error_message = errors.DUPLICATE_RESOURCE, "the user is named more than once"
        else:
            result.credential_infos = [
                CredentialInfo(mechanism=credential.mechanism, iterations=credential.iterations)
                for credential in users.credentials(name)
            ]
            if not result.credential_infos:
                result.error_code, result.error_message = errors.RESOURCE_NOT_FOUND, f"user {name!r} has no credentials"
        if all(known.user != name for known in results):
            results.append(result)
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


async def alter_user_scram_credentials(
    call: Call, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Set and remove credentials, each user's as a whole or not at all."""
    results = []
    names = [change.name for change in request.deletions] + [change.name for change in request.upsertions]
    for name in dict.fromkeys(names):
        deletions = [change for change in request.deletions if change.name == name]
        upsertions = [change for change in request.upsertions if change.name == name]
        result = AlterUserScramCredentialsResult(user=name, error_message=None)
        try:
            await _alter(call, name, deletions, upsertions)
        except PenstockError as error:
            result.error_code, result.error_message = code_of(error), str(error)
        results.append(result)
    return AlterUserScramCredentialsResponse(results=results)


async def _alter(
    call: Call, name: str, deletions: list[ScramCredentialDeletion], upsertions: list[ScramCredentialUpsertion]
) -> None:
    users = call.node.broker.users
    named = [credential.mechanism for credential in deletions] + [credential.mechanism for credential in upsertions]
    if len(set(named)) < len(named):
        raise RepeatedCredentialError(f"a credential of user {name!r} is changed more than once")
    removes = [(name, _mechanism(credential.mechanism)) for credential in deletions]
    for _, mechanism in removes:
        users.check_remove(name, mechanism)
    sets = []
    for credential in upsertions:
        mechanism = _mechanism(credential.mechanism)
        users.check_set(name, credential.iterations)
        if not credential.salt or not credential.salted_password:
            raise InvalidRequestError("a credential has a salt and a salted password")
        sets.append(
            (
                name,
                Credential.from_salted(
                    mechanism, credential.iterations, bytes(credential.salt), bytes(credential.salted_password)
                ),
            )
        )
    await users.change(sets, removes)


def _mechanism(number: int) -> Mechanism:
    try:
        return Mechanism(number)
    except ValueError:
        raise UnknownMechanismError(f"there is no SCRAM mechanism with number {number}") from None
