"""`Layout`: a checked layout, which a program constructs or reads from flags or a job file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from types import MappingProxyType
from typing import Any

from roost.config.document import Document
from roost.config.engines import EngineGroup, Server
from roost.config.layout_checks import critic_problems, layout_problems
from roost.config.layout_section import LayoutSection
from roost.config.plain_data import plain_mapping, resolved
from roost.config.schema import ClusterConfig, validate
from roost.errors import ConfigurationError, Path, error_for

PLACE: Path = ("cluster", "layout")
# The flags of programs for the shares of a role.
_SHARE_FLAGS = {"num_gpus_per_actor": "actor", "num_gpus_per_engine": "rollout"}


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
            findings += layout_problems(config.layout, document, PLACE)
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

        It ignores flags that are not keys of a layout; None counts as not given.
        """
        args = resolved(args, "the layout")
        flags = args if isinstance(args, Mapping) else _Attributes(args)
        given: dict[str, Any] = {
            one.name: flags.get(one.name) for one in fields(cls) if flags.get(one.name) is not None
        }
        wishes = {role: flags.get(flag) for flag, role in _SHARE_FLAGS.items() if flags.get(flag) is not None}
        shares = given.get("shares", {})
        if wishes and isinstance(shares, Mapping):
            given["shares"] = {**wishes, **shares}
        findings = critic_problems(flags)
        try:
            layout = cls(**given)
        except ConfigurationError as error:
            findings += error.findings
        if findings:
            raise error_for(findings)
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


class _Attributes:
    """Gives an object's attributes the `get` of a mapping."""

    def __init__(self, flags: Any) -> None:
        self._flags = flags

    def get(self, name: str) -> Any:
        return getattr(self._flags, name, None)


def _written(layout: Layout) -> dict[str, Any]:
    """The layout and its shares as the `cluster` section of a job file, without empty values."""
    section = _plain(layout)
    shares = section.pop("shares", {})
    given = {key: value for key, value in section.items() if not isinstance(value, list) or value}
    return {"layout": given, "shares": shares}


def _plain(value: Any) -> Any:
    """Records as mappings without the fields that are None, tuples as lists."""
    if isinstance(value, (LayoutSection, Server, EngineGroup)):
        items = ((one.name, getattr(value, one.name)) for one in fields(value))
        return {name: _plain(item) for name, item in items if item is not None}
    if isinstance(value, Mapping):
        return dict(value)
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
