"""Chooses the engine class or command of each component of a layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roost.config.layout import Layout
from roost.engine.workers.worker import GroupLauncher
from roost.errors import ConfigurationError, Finding, nearest
from roost.rl.command import CommandLine
from roost.rl.engine import CommandEngine, Engine
from roost.rl.role_arguments import launcher_of

What = GroupLauncher | type[Engine] | CommandLine


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
