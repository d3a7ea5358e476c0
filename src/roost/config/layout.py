"""A layout: one pool of accelerators cut among the actor, the critic and the rollout engines.

Everything here is arithmetic over positions of the pool, 0 to G-1; which accelerators these are is decided
on a cluster, where the layout becomes ordinary placement rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import Any

from roost.config.document import Document
from roost.config.engines import EngineGroup, EngineSlice, Server, component_names
from roost.config.labels import split_labels
from roost.config.layout_checks import critic_problems, layout_problems
from roost.config.layout_schema import LayoutConfig
from roost.config.plain import plain_mapping, resolved
from roost.config.schema import ClusterConfig, validate
from roost.errors import ConfigurationError, Path, error_for

PLACE: Path = ("cluster", "layout")
# What a program's flags call the wishes for shares.
_WISHES = {"num_gpus_per_actor": "actor", "num_gpus_per_engine": "rollout"}


class LayoutMode(Enum):
    """The first that applies, in this order."""

    DEBUG_TRAIN_ONLY = "debug_train_only"
    EXTERNAL_DEBUG_ROLLOUT_ONLY = "rollout_external and debug_rollout_only"
    EXTERNAL = "rollout_external"
    DEBUG_ROLLOUT_ONLY = "debug_rollout_only"
    COLOCATE = "colocate"
    DISAGGREGATED = "disaggregated"

    @property
    def trains(self) -> bool:
        return self is not LayoutMode.DEBUG_ROLLOUT_ONLY

    @property
    def is_external(self) -> bool:
        return self in (LayoutMode.EXTERNAL, LayoutMode.EXTERNAL_DEBUG_ROLLOUT_ONLY)

    @property
    def serves(self) -> bool:
        """Whether rollout engines run on the pool."""
        return self in (LayoutMode.DEBUG_ROLLOUT_ONLY, LayoutMode.COLOCATE, LayoutMode.DISAGGREGATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    actor_num_nodes: int = 1
    actor_num_gpus_per_node: int = 8
    rollout_num_gpus: int | None = None
    rollout_num_gpus_per_engine: int = 1
    colocate: bool = False
    debug_train_only: bool = False
    debug_rollout_only: bool = False
    rollout_external: bool = False
    use_critic: bool = False
    servers: tuple[Server, ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict)
    node_group: tuple[str, ...] = ()
    accelerators: str | None = None

    def __post_init__(self) -> None:
        section = plain_mapping({"cluster": _written(self)})["cluster"]
        document = Document({"cluster": section})
        config, findings = validate(ClusterConfig, section, document, ("cluster",))
        if config is not None and config.layout is not None:
            self._fill(config.layout, config.shares or {})
            findings += layout_problems(self, document, PLACE)
        if findings:
            raise error_for(findings)

    def _fill(self, config: LayoutConfig, shares: Mapping[str, float]) -> None:
        values = {name: getattr(config, name) for name in LayoutConfig.model_fields}
        values["servers"] = tuple(
            Server(
                name=server.name,
                groups=tuple(EngineGroup(**group.model_dump()) for group in server.groups),
            )
            for server in config.servers
        )
        values["node_group"] = split_labels(config.node_group)
        values["shares"] = MappingProxyType(dict(shares))
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, config: LayoutConfig, shares: Mapping[str, float]) -> Layout:
        """As read from a file, whose problems its reader reports with their places."""
        layout = object.__new__(cls)
        layout._fill(config, shares)
        return layout

    @classmethod
    def from_args(cls, args: Any) -> Layout:
        """From parsed command-line flags: a `Namespace`, any object with attributes, or a mapping.

        Flags that are not a layout's are left alone; None counts as not given.
        """
        args = resolved(args, "the layout")
        flags = args if isinstance(args, Mapping) else _Attributes(args)
        given: dict[str, Any] = {
            one.name: flags.get(one.name) for one in fields(cls) if flags.get(one.name) is not None
        }
        wishes = {role: flags.get(flag) for flag, role in _WISHES.items() if flags.get(flag) is not None}
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
        """The same as the section of a job file."""
        nodes = {} if num_nodes is None else {"num_nodes": num_nodes}
        return {"cluster": {**nodes, **_written(self)}}

    def __hash__(self) -> int:
        values = (getattr(self, one.name) for one in fields(self) if one.name != "shares")
        return hash((*values, frozenset(self.shares.items())))

    def __reduce__(self) -> tuple[Any, ...]:  # a mapping proxy does not pickle
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return partial(Layout, **{**values, "shares": dict(self.shares)}), ()

    # -- the arithmetic ------------------------------------------------------------------------------

    @property
    def mode(self) -> LayoutMode:
        if self.debug_train_only:
            return LayoutMode.DEBUG_TRAIN_ONLY
        if self.rollout_external:
            debug = self.debug_rollout_only
            return LayoutMode.EXTERNAL_DEBUG_ROLLOUT_ONLY if debug else LayoutMode.EXTERNAL
        if self.debug_rollout_only:
            return LayoutMode.DEBUG_ROLLOUT_ONLY
        return LayoutMode.COLOCATE if self.colocate else LayoutMode.DISAGGREGATED

    @property
    def num_actor(self) -> int:
        return self.actor_num_nodes * self.actor_num_gpus_per_node

    @property
    def num_rollout(self) -> int:
        """As given; else what the servers add up to; else the actor's when colocated; else none."""
        if self.rollout_num_gpus is not None:
            return self.rollout_num_gpus
        if self.servers:
            return sum(group.num_gpus for server in self.servers for group in server.groups)
        return self.num_actor if self.colocate and self.mode.serves else 0

    @property
    def reserved(self) -> int:
        if self.mode is LayoutMode.DEBUG_ROLLOUT_ONLY:
            return self.num_rollout
        if self.mode is LayoutMode.COLOCATE:
            return max(self.num_actor, self.num_rollout)
        apart = self.mode is LayoutMode.DISAGGREGATED
        return self.num_actor + (self.num_rollout if apart else 0)

    @property
    def rollout_offset(self) -> int:
        return self.num_actor if self.mode in (LayoutMode.EXTERNAL, LayoutMode.DISAGGREGATED) else 0

    def slices(self) -> dict[str, range]:
        """The positions of each role, whether or not it runs in this mode."""
        trained = range(min(self.num_actor, self.reserved))
        stop = self.rollout_offset + self.num_rollout if self.mode.serves else self.reserved
        critic = {"critic": trained} if self.use_critic else {}
        return {"actor": trained, **critic, "rollout": range(self.rollout_offset, stop)}

    def engine_groups(self) -> tuple[EngineSlice, ...]:
        """The groups of engines that run, or hold something, on the pool."""
        return tuple(part for part in self.all_groups() if part.positions) if self.mode.serves else ()

    @property
    def roles(self) -> list[str]:
        """Every component there can be, in any mode; `rollout` stands for all of its groups."""
        names = ["actor", "critic", "rollout", *(part.component for part in self.all_groups())]
        return list(dict.fromkeys(names))

    @property
    def components(self) -> list[str]:
        """Those that run here."""
        trains = ["actor", *(["critic"] if self.use_critic else [])]
        trains = trains if self.mode.trains and self.num_actor else []
        return [*trains, *(part.component for part in self.engine_groups())]

    def all_groups(self) -> Iterator[EngineSlice]:
        """Every group that is written down, in any mode."""
        alone = EngineGroup(num_gpus=self.num_rollout)
        servers = self.servers or (Server(groups=(alone,)),)
        position = self.rollout_offset
        for index, server in enumerate(servers):
            for number, (group, name) in enumerate(
                zip(server.groups, component_names(server, servers), strict=True)
            ):
                # What runs nothing need not tile anything.
                usual = 1 if group.kind == "placeholder" else self.rollout_num_gpus_per_engine
                yield EngineSlice(
                    component=name,
                    server=server.name,
                    kind=group.kind,
                    positions=range(position, position + group.num_gpus),
                    gpus_per_engine=group.gpus_per_engine or usual,
                    path=("servers", index, "groups", number) if self.servers else (),
                )
                position += group.num_gpus


class _Attributes:
    """The flags of a `Namespace`, as a mapping has them."""

    def __init__(self, flags: Any) -> None:
        self._flags = flags

    def get(self, name: str) -> Any:
        return getattr(self._flags, name, None)


def _written(layout: Layout) -> dict[str, Any]:
    """The layout in the words of a job file."""
    section = {one.name: _plain(getattr(layout, one.name)) for one in fields(layout)}
    shares = section.pop("shares")
    section = {
        name: value
        for name, value in section.items()
        if value is not None and not (isinstance(value, list) and not value)
    }
    return {"layout": section, "shares": shares}


def _plain(value: Any) -> Any:
    if isinstance(value, (Server, EngineGroup)):
        return {key: _plain(item) for key, item in _pairs(value) if item is not None}
    if isinstance(value, Mapping):
        return dict(value)
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _pairs(record: Server | EngineGroup) -> Iterable[tuple[str, Any]]:
    return ((one.name, getattr(record, one.name)) for one in fields(record))
