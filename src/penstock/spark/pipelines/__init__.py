"""Pipelines: declared in one file, run on Spark, exactly once."""

from __future__ import annotations

from penstock.spark.pipelines.spec_file import Pipeline

__all__ = ["Pipeline"]
