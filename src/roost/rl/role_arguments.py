"""Arguments that programs pass, checked before anything is started."""

from __future__ import annotations

from typing import Any

from roost.engine.placement_groups import PlacementGroups, RoleGroup
from roost.engine.pool import Pool
from roost.engine.workers.worker import GroupLauncher, Worker
from roost.errors import ConfigurationError


def launcher_of(what: Any, kind: type[Worker], name: str) -> GroupLauncher:
    """A class, or the class with its constructor arguments, of this kind."""
    if isinstance(what, GroupLauncher) and issubclass(what.cls, kind):
        return what
    if isinstance(what, type) and issubclass(what, kind):
        return what.create_group()
    raise refused(
        what, f"a subclass of {name}", f"pass MyClass or MyClass.create_group(...), where MyClass is a {name}"
    )


def pool_of(pool: Any) -> Pool:
    """The pool itself, or the pool of what `create_placement_groups` returns."""
    found = pool.pool if isinstance(pool, (RoleGroup, PlacementGroups)) else pool
    if not isinstance(found, Pool):
        raise refused(pool, "a pool", "pass what cluster.pool(layout) returns")
    return found


def refused(value: Any, wanted: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(code="RC103", what=f"{value!r} is not {wanted}"[:200], remedy=remedy)
