"""Which nodes count as lost."""

from __future__ import annotations

import pytest

from roost.engine.ray_backend.job_watch import dead_nodes

pytestmark = pytest.mark.ray


def test_a_node_that_the_table_lacks_is_not_lost() -> None:
    ranks = {"aa": 0, "bb": 1, "cc": 2}
    table = [
        {"NodeID": "bb", "Alive": False},
        {"NodeID": "cc", "Alive": True},
        {"NodeID": "of another job", "Alive": False},
    ]
    assert dead_nodes(table, ranks) == {1}
    assert dead_nodes([], ranks) == set()
