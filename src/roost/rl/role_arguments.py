"""Checks the arguments that programs pass, before anything is started."""

from __future__ import annotations

from typing import Any

from roost.engine.placement_groups import PlacementGroups, RoleGroup
from roost.engine.pool import Pool
from roost.engine.workers.worker import GroupLauncher, Worker
from roost.errors import ConfigurationError


def launcher_of(what: Any, kind: type[Worker], name: str) -> GroupLauncher:
    """The launcher of a class of this kind, given as the class or with its constructor arguments."""
    if isinstance(what, GroupLauncher) and issubclass(what.cls, kind):
        return what
    if isinstance(what, type) and issubclass(what, kind):
        return what.create_group()
    raise refused(
        what, f"a subclass of {name}", f"pass MyClass or MyClass.create_group(...), where MyClass is a {name}"
    )


def pool_of(pool: Any) -> Pool:
    """The pool, given itself or in the result of `create_placement_groups`."""
    found = pool.pool if isinstance(pool, (RoleGroup, PlacementGroups)) else pool
    if not isinstance(found, Pool):
        raise refused(pool, "a pool", "pass what cluster.pool(layout) returns")
    return found


def refused(value: Any, wanted: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(code="RC103", what=f"{value!r} is not {wanted}"[:200], remedy=remedy)
