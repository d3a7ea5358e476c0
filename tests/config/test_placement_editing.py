"""Placements written into the text of a job file."""

from __future__ import annotations

import pytest

from roost.config.document import parse
from roost.config.placement_editing import with_placement
from roost.errors import ConfigurationError


def written(text: str) -> str:
    return with_placement(text, parse(text, "job.yaml"), {"actor": "0-7"})


@pytest.mark.parametrize(
    "text",
    ["cluster:\n  num_nodes: 2\n", "cluster:\n  num_nodes: 2\n  component_placement:\n    actor: 0-3\n"],
)
def test_the_ends_of_lines_stay_as_they_are(text: str) -> None:
    windows = written(text.replace("\n", "\r\n"))
    assert windows == written(text).replace("\n", "\r\n")
    assert parse(windows).data["cluster"] == {"num_nodes": 2, "component_placement": {"actor": "0-7"}}


def test_a_placement_is_not_written_beside_a_layout() -> None:
    with pytest.raises(ConfigurationError, match="`layout` places components already"):
        written("cluster:\n  layout: {actor_num_nodes: 1, rollout_num_gpus: 4}\n")
    assert 'actor: "0-7"' in written("cluster:\n  layout: null\n")
