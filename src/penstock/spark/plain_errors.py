"""Errors of the source and the sink as Spark shows them: one sentence, without the stack of a Python process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.core.errors import PenstockError
from penstock.kafka.client import ClientOptions, RequestRefusedError
from penstock.kafka.protocol import errors
from penstock.spark.errors import AccessDeniedError

# Pyspark reads it when it passes on an exception, after which the process ends: user code in others keeps its tracebacks.
_HIDES_TRACEBACK = "SPARK_HIDE_TRACEBACK"
_WORKER = "pyspark.worker_util"  # what every Python process of Spark imports, and drivers do not
_DENIED = (errors.TOPIC_AUTHORIZATION_FAILED, errors.GROUP_AUTHORIZATION_FAILED, errors.CLUSTER_AUTHORIZATION_FAILED)


@contextmanager
def plain_errors(client: ClientOptions | None = None, right: str = "read") -> Iterator[None]:
    """Let errors of ours within be shown as one sentence; a denial names the user, the right and the remedy."""
    try:
        yield
    except RequestRefusedError as error:
        _hide_traceback()
        if error.error_code in _DENIED and client is not None:
            raise denied(error, client, right) from error
        raise
    except PenstockError:
        _hide_traceback()
        raise


def _hide_traceback() -> None:
    if _WORKER in sys.modules:
        os.environ[_HIDES_TRACEBACK] = "1"


def denied(error: RequestRefusedError, client: ClientOptions, right: str) -> AccessDeniedError:
    """The error for a user without a right."""
    user = client.security.username
    who = "a client that has not signed in" if user is None else f"user {user!r}"
    return AccessDeniedError(
        f"{who} may not {right} {error.subject} ({errors.error_name(error.error_code)}); the administrator allows it with "
        f"`penstock access allow {user or 'USER'} {right} --topic NAME`"
    )
