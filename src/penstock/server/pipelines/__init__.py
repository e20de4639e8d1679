"""Deployed pipelines: stored in the node, run by driver processes that it starts, watches and restarts."""

from penstock.server.pipelines.dead_letter_replay import ReplayStatus
from penstock.server.pipelines.deployment import Deployment, Wanted
from penstock.server.pipelines.errors import DeploymentError, NoDriverError, UnknownDeploymentError
from penstock.server.pipelines.keeper import DeploymentKeeper, DeploymentOrder
from penstock.server.pipelines.pipeline_status import RUNNING, PipelineStatus

__all__ = [
    "RUNNING",
    "Deployment",
    "DeploymentError",
    "DeploymentKeeper",
    "DeploymentOrder",
    "NoDriverError",
    "PipelineStatus",
    "ReplayStatus",
    "UnknownDeploymentError",
    "Wanted",
]
