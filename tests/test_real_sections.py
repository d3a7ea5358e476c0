"""Cluster sections people really wrote. They are kept outside the repository."""

from __future__ import annotations

import json
import os
from pathlib import Path

import jsonschema
import pytest

import roost
from roost.config.job_schema import job_schema

SECTIONS = Path(__file__).resolve().parents[1].parent / "shared/golden/real_cluster_sections.json"


def test_every_real_section_plans() -> None:
    if not SECTIONS.exists():
        if os.environ.get("CI") == "true":
            pytest.fail("the real sections are not where CI should have put them")
        pytest.skip("the real sections are kept outside the repository and are not here")
    sections = json.loads(SECTIONS.read_text("utf-8"))
    assert len(sections) == 83
    schema = jsonschema.Draft7Validator(job_schema())
    for number, entry in enumerate(sections):
        cluster = entry["cluster"]
        assert schema.is_valid({"cluster": cluster}), number
        plan = roost.plan({"cluster": cluster}, roost.Inventory.uniform(int(cluster["num_nodes"]), 8))
        wanted = {name.strip() for key in cluster["component_placement"] for name in key.split(",")}
        assert set(plan.components) == wanted, number
        assert all(component.world_size for component in plan.components.values()), number
