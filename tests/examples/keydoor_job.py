"""Launches the jobs of examples/keydoor on a cluster that is there already."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

import roost

FOLDER = Path(__file__).parents[2] / "examples" / "keydoor"
sys.path.append(str(FOLDER))


def job_of(name: str, **training: Any) -> Any:
    config = OmegaConf.load(FOLDER / f"{name}.yaml")
    config.training.update(training)
    return config


@contextmanager
def launched(cluster: roost.Cluster, config: Any, **classes: type) -> Iterator[roost.Run]:
    """`classes` replace those of the job file."""
    workers = {}
    for name, written in config.workers.items():
        entry = {"class": written} if isinstance(written, str) else written
        module, _, attribute = entry["class"].partition(":")
        cls = classes.get(name) or getattr(import_module(module), attribute)
        workers[name] = cls.create_group(**entry.get("args", {}))
    with cluster.launch(roost.plan(config, cluster), workers) as run:
        yield run
