"""Why a pipeline cannot be deployed or controlled."""

from __future__ import annotations

from penstock.core.errors import InvalidRequestError


class DeploymentError(InvalidRequestError):
    """A pipeline cannot be deployed as asked: its file, or a change of it, is not accepted."""

    code = "deployment_refused"


class NoDriverError(InvalidRequestError):
    """This node does not run pipelines: it lacks Spark, or is not allowed to."""

    code = "pipelines_not_run_here"


class UnknownDeploymentError(InvalidRequestError):
    """No pipeline of this name is deployed."""

    code = "not_deployed"
