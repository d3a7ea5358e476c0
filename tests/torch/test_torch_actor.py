"""The actor of the worked example with torch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import roost

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from keydoor_job import job_of, launched  # isort: skip

pytestmark = [pytest.mark.torch, pytest.mark.ray]


def test_it_reaches_the_threshold_of_the_other(cluster: roost.Cluster) -> None:
    import train
    from torch_actor import TorchActor

    config = job_of("colocated", steps=25)
    with launched(cluster, config, actor=TorchActor) as run:
        rewards, _ = train.train(run, config.training, seed=1)
    assert sum(rewards[-5:]) / 5 > config.training.threshold
