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


BLOCK = """\
cluster:
  component_placement:  # guessed
    actor:  # trains
      node_group: cluster   # why
      placement: 0-3:0-1 # tp
    env: 0
    "logger, actor2": 3  # both
    reward:
      placement: 0-${last}  # derived
      node_group: node
  num_nodes: 2
"""


def test_only_the_rules_of_the_given_components_change() -> None:
    text = with_placement(BLOCK, parse(BLOCK), {"actor": "0-7", "actor2": "4", "critic": "5"})
    assert text == BLOCK.replace(
        "    actor:  # trains\n      node_group: cluster   # why\n      placement: 0-3:0-1 # tp\n",
        '    actor: "0-7"  # trains\n    # why\n    # tp\n',
    ).replace('"logger, actor2": 3', 'actor2: "4"\n    logger: 3').replace(
        "      node_group: node\n", '      node_group: node\n    critic: "5"\n'
    )


def test_rules_on_one_line_are_written_as_a_block() -> None:
    text = "cluster:\n  component_placement: {actor: 0-3, env: 0, 'a,b': {placement: '0-${last}'}}  # all\n"
    assert written(text) == (
        'cluster:\n  component_placement:  # all\n    actor: "0-7"\n    env: 0\n'
        '    a: {placement: "0-${last}"}\n    b: {placement: "0-${last}"}\n'
    )
