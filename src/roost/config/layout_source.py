"""Makes a layout from flags, a job, or the `cluster` section of a job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from roost.config.job import read_job
from roost.config.layout import Layout
from roost.config.plain_data import resolved
from roost.errors import ConfigurationError, Finding, error_for


def layout_of(source: Any) -> Layout:
    """The layout of a source. One error reports all problems of the source."""
    if isinstance(source, Layout):
        return source
    if isinstance(source, Mapping) and "layout" in source and "cluster" not in source:
        # `cfg.cluster`, which `Cluster` takes too
        source = {"cluster": resolved(source, "the `cluster` section", ("cluster",))}
    is_job = isinstance(source, (str, os.PathLike)) or (isinstance(source, Mapping) and "cluster" in source)
    if source is None or isinstance(source, (int, float, bytes, list, tuple, set)):
        raise ConfigurationError(
            Finding(
                code="RC103",
                what=f"{source!r} is not a layout"[:200],
                remedy="pass a Layout, parsed flags, or a job whose `cluster` section has a `layout`",
            )
        )
    if not is_job:
        return Layout.from_args(source)
    job, findings = read_job(source)
    if any(finding.severity == "error" for finding in findings):
        raise error_for(findings)
    if job.layout is None:
        raise ConfigurationError(
            job.document.finding(
                "RC102",
                "the job has no layout",
                ("cluster", "layout"),
                key=True,
                remedy="write one under `cluster`, or launch its components by their placements",
            )
        )
    own = {name: share for name, share in job.layout.shares.items() if name in job.layout.roles}
    return replace(job.layout, shares=own)
