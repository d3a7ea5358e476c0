"""`Layout`: a checked layout, which a program constructs or reads from flags or a job file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from roost.config.document import Document
from roost.config.layout_checks import critic_problems, layout_problems
from roost.config.layout_flags import SHARE_FLAGS, misspelt_flags, prefill_servers, read_rollout_flags
from roost.config.layout_section import PLACE, EngineGroup, LayoutSection, Server
from roost.config.plain_data import plain_mapping, resolved
from roost.config.schema import ClusterConfig, validate
from roost.errors import ConfigurationError, Finding, error_for, errors_in, render

log = logging.getLogger("roost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout(LayoutSection):
    """A checked section, and the shares that its components ask for."""

    shares: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        section = plain_mapping({"cluster": _written(self)})["cluster"]
        document = Document({"cluster": section})
        config, findings = validate(ClusterConfig, section, document, ("cluster",))
        if config is not None and config.layout is not None:
            self._fill(config.layout, config.shares or {})
            findings += layout_problems(config.layout, document)
        if findings:
            raise error_for(findings)

    def _fill(self, section: LayoutSection, shares: Mapping[str, float]) -> None:
        for one in fields(section):
            object.__setattr__(self, one.name, getattr(section, one.name))
        object.__setattr__(self, "shares", MappingProxyType(dict(shares)))

    @classmethod
    def of(cls, section: LayoutSection, shares: Mapping[str, float]) -> Layout:
        """The layout of a job file, unchecked: the job's reader reports its problems with their positions."""
        layout = object.__new__(cls)
        layout._fill(section, shares)
        return layout

    @classmethod
    def from_args(cls, args: Any) -> Layout:
        """From parsed command-line flags: a `Namespace`, any object with attributes, or a mapping.

        It ignores flags that are not those of a layout, and logs a warning about a flag that looks misspelt.
        None counts as not given.
        """
        args = resolved(args, "the layout")
        flag: Callable[[str], Any] = (
            args.get if isinstance(args, Mapping) else lambda name: getattr(args, name, None)
        )
        given: dict[str, Any] = {
            one.name: flag(one.name) for one in fields(cls) if flag(one.name) is not None
        }
        wishes = {role: flag(name) for name, role in SHARE_FLAGS.items() if flag(name) is not None}
        shares = given.get("shares", {})
        if wishes and isinstance(shares, Mapping):
            given["shares"] = {**wishes, **shares}
        rollout = read_rollout_flags(flag)
        findings = [*critic_problems(flag), *rollout.findings]
        if rollout.file is not None:
            given["servers"] = rollout.file.servers
            findings += rollout.file.warnings
        try:
            layout = cls(**given)
        except ConfigurationError as error:
            findings += [
                rollout.file.located(found, (*PLACE, "servers")) if rollout.file else found
                for found in error.findings
                # Servers that cannot be read explain why the size of the rollout is missing.
                if not (rollout.findings and found.code == "RC102")
            ]
        if rollout.prefill and not errors_in(findings):
            server = prefill_servers(rollout.prefill, layout)
            if isinstance(server, Finding):
                findings.append(server)
            else:
                layout = replace(layout, servers=(server,))
        findings += misspelt_flags(args, flag, [one.name for one in fields(cls)])
        if errors_in(findings):
            raise error_for(findings)
        if findings:
            log.warning("%s", render(findings))
        return layout

    def as_job(self, num_nodes: int | None = None) -> dict[str, Any]:
        """A job with this layout, as the dict of a job file."""
        nodes = {} if num_nodes is None else {"num_nodes": num_nodes}
        return {"cluster": {**nodes, **_written(self)}}

    def __hash__(self) -> int:
        values = (getattr(self, one.name) for one in fields(self) if one.name != "shares")
        return hash((*values, frozenset(self.shares.items())))

    def __reduce__(self) -> tuple[Any, ...]:  # a mapping proxy does not pickle
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return partial(Layout, **{**values, "shares": dict(self.shares)}), ()


def _written(layout: Layout) -> dict[str, Any]:
    """The layout and its shares as the `cluster` section of a job file, without empty values."""
    section = {one.name: _plain(getattr(layout, one.name)) for one in fields(LayoutSection)}
    given = {key: value for key, value in section.items() if value is not None and value != []}
    shares = layout.shares
    return {"layout": given, "shares": dict(shares) if isinstance(shares, Mapping) else shares}


def _plain(value: Any) -> Any:
    """Records as mappings without the fields that are None, tuples as lists."""
    if isinstance(value, (Server, EngineGroup)):
        value = {one.name: getattr(value, one.name) for one in fields(value)}
        return {name: _plain(item) for name, item in value.items() if item is not None}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
