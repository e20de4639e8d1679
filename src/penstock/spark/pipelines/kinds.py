"""Maps a kind to its job; the modules of a kind are imported on first use."""

from __future__ import annotations

from importlib import import_module

from penstock.spark.pipelines.job import Job
from penstock.spark.pipelines.spec import KINDS, PipelineSpec


def make_job(spec: PipelineSpec) -> Job:
    """The job of a pipeline's kind."""
    return make_job_of(spec.kind, spec)


def make_job_of(kind: str, spec: PipelineSpec) -> Job:
    """The job that a kind makes of a pipeline."""
    module, _, factory = KINDS[kind].partition(":")
    job: Job = getattr(import_module(module), factory)(spec)
    return job
