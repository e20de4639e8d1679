"""Pipelines: declared in one file, run on Spark, nothing lost or doubled."""

from __future__ import annotations

from penstock.spark.pipelines.spec_file import Pipeline

__all__ = ["Pipeline"]
