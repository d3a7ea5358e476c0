"""Checks the arguments that programs pass, before anything is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roost.config.layout import Layout
from roost.engine.placement_groups import PlacementGroups, RoleGroup
from roost.engine.pool import Pool
from roost.engine.workers.worker import GroupLauncher, Worker
from roost.errors import ConfigurationError, Finding, nearest
from roost.rl.command import CommandLine
from roost.rl.engine import CommandEngine, Engine

What = GroupLauncher | type[Engine] | CommandLine


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


def launchers(engine: What | Mapping[str, What] | None, layout: Layout) -> dict[str, GroupLauncher]:
    """The launchers by component. A component's own source comes before its server's. One error reports all problems.

    A program may give sources for components that do not run in this mode, so that a debugging flag needs no other
    program.
    """
    running = {part.component: part.server for part in layout.engine_groups() if part.kind != "placeholder"}
    if engine is None and running:
        raise ConfigurationError(
            code="RC102",
            what=f"nothing says what the engines of {', '.join(sorted(set(running.values())))} are",
            remedy="pass an Engine class or a CommandLine",
        )
    if not isinstance(engine, Mapping):
        return {component: _launcher(engine) for component in running}
    known = {name for part in layout.all_groups() for name in (part.server, part.component)}
    problems = [
        Finding(code="RC101", what=f"the layout has no server {name!r}", remedy=nearest(str(name), known))
        for name in sorted(map(str, engine))
        if name not in known
    ]
    found = {}
    for component, server in running.items():
        source: Any = engine.get(component, engine.get(server))
        if source is None:
            problems.append(
                Finding(
                    code="RC102",
                    what=f"server {server!r} has no engine",
                    remedy=nearest(server, map(str, engine)),
                )
            )
            continue
        try:
            found[component] = _launcher(source)
        except ConfigurationError as error:
            problems += error.findings
    if problems:
        raise ConfigurationError(*dict.fromkeys(problems))
    return found


def _launcher(what: Any) -> GroupLauncher:
    if isinstance(what, CommandLine):
        return CommandEngine.create_group(what)
    return launcher_of(what, Engine, "roost.Engine")
