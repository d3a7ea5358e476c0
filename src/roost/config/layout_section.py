"""The section `cluster.layout`: its keys, and the arithmetic that cuts one pool of accelerators among roles.

The roles are the actor, the critic and the rollout engines. The arithmetic is over positions of the pool,
0 to G-1; on a cluster they become accelerators, and the layout becomes ordinary placement rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

from pydantic import AfterValidator, Field, GetPydanticSchema

from roost.config.fields import Count, NonEmptyTuple, NonNegativeInt, Text, TextOrTexts
from roost.config.labels import split_labels
from roost.errors import Path

PLACE: Path = ("cluster", "layout")
KINDS = ("regular", "prefill", "decode", "encoder", "placeholder")
# A file writes labels as `a`, `a,b` or `[a, b]`; the record holds them one by one.
Labels = Annotated[
    tuple[str, ...],
    GetPydanticSchema(lambda _, handler: handler.generate_schema(TextOrTexts | None)),
    AfterValidator(split_labels),
]


class LayoutMode(Enum):
    """The first mode whose flags are all set applies.

    A counts the actor's accelerators, R those of the rollout. A layout `trains` or `serves` if its actor or
    its rollout engines run on the pool.
    """

    # fmt: off
    # mode                        flags                                       accelerators reserved, in words      rollout starts at  trains  serves  external
    DEBUG_TRAIN_ONLY            = ("debug_train_only",),                      lambda A, R: A,         "A",          lambda A: 0,       True,   False,  False
    EXTERNAL_DEBUG_ROLLOUT_ONLY = ("rollout_external", "debug_rollout_only"), lambda A, R: A,         "A",          lambda A: 0,       True,   False,  True
    EXTERNAL                    = ("rollout_external",),                      lambda A, R: A,         "A",          lambda A: A,       True,   False,  True
    DEBUG_ROLLOUT_ONLY          = ("debug_rollout_only",),                    lambda A, R: R,         "R",          lambda A: 0,       False,  True,   False
    COLOCATE                    = ("colocate",),                              lambda A, R: max(A, R), "the larger", lambda A: 0,       True,   True,   False
    DISAGGREGATED               = (),                                         lambda A, R: A + R,     "A + R",      lambda A: A,       True,   True,   False
    # fmt: on

    flags: tuple[str, ...]
    reserved: Callable[[int, int], int]
    formula: str
    rollout_offset: Callable[[int], int]
    trains: bool
    serves: bool
    is_external: bool

    def __new__(cls, flags: tuple[str, ...], *columns: Any) -> LayoutMode:
        mode = object.__new__(cls)
        mode._value_ = " and ".join(flags) or "disaggregated"
        mode.flags = flags
        mode.reserved, mode.formula, mode.rollout_offset = columns[:3]
        mode.trains, mode.serves, mode.is_external = columns[3:]
        return mode


# Pydantic reads a file's section straight into `LayoutSection` and the records in it. A stdlib dataclass takes the
# configuration of the model it is a field of, so these records refuse unknown keys as `ClusterConfig` does.
@dataclass(frozen=True, slots=True, kw_only=True)
class EngineGroup:
    """Engines of one kind; an `encoder` prepares images or sound for others, a `placeholder` runs nothing."""

    kind: Annotated[
        Text, Field(json_schema_extra={"enum": list(KINDS)}, description="what the engines do")
    ] = "regular"
    num_gpus: Annotated[NonNegativeInt, Field(description="accelerators of all its engines together")]
    gpus_per_engine: Annotated[Count | None, Field(description="omitted: rollout_num_gpus_per_engine")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Groups of engines under one name, such as those of one model."""

    name: Annotated[Text, Field(description="part of the names of its components")] = "default"
    groups: Annotated[NonEmptyTuple[EngineGroup], Field(description="in the order of their accelerators")]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSlice:
    """A group of engines on the pool: engine e holds the e-th `gpus_per_engine` of its positions."""

    component: str
    server: str
    kind: str
    positions: range
    gpus_per_engine: int
    path: Path = ()  # of the group inside the layout; empty if the layout lists no servers

    @property
    def num_engines(self) -> int:
        return len(self.positions) // self.gpus_per_engine


def component_names(server: Server, servers: Sequence[Server]) -> Iterator[str]:
    """The names of a server's components, one for each group.

    A name is `rollout`, `rollout.<server>`, `rollout.<kind>` or `rollout.<server>.<kind>`; a server's second
    group of a kind adds `-1`, its third `-2`.
    """
    lone = len(servers) == 1 and server.name == "default"
    if len(server.groups) == 1:
        plain = lone and server.groups[0].kind == "regular"
        yield "rollout" if plain else f"rollout.{server.name}"
        return
    seen: dict[str, int] = {}
    for group in server.groups:
        times = seen[group.kind] = seen.get(group.kind, -1) + 1
        kind = f"{group.kind}-{times}" if times else group.kind
        yield f"rollout.{kind}" if lone else f"rollout.{server.name}.{kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSection:
    actor_num_nodes: Annotated[NonNegativeInt, Field(description="nodes of the actor")] = 1
    actor_num_gpus_per_node: Annotated[
        NonNegativeInt, Field(description="accelerators of the actor on each of its nodes")
    ] = 8
    rollout_num_gpus: Annotated[
        NonNegativeInt | None,
        Field(
            description="accelerators of the rollout; omitted: those of the servers, or of a colocated actor"
        ),
    ] = None
    rollout_num_gpus_per_engine: Annotated[Count, Field(description="accelerators of one engine")] = 1
    colocate: Annotated[bool, Field(description="the rollout uses the accelerators of the actor")] = False
    debug_train_only: Annotated[bool, Field(description="no rollout runs")] = False
    debug_rollout_only: Annotated[bool, Field(description="no training runs")] = False
    rollout_external: Annotated[bool, Field(description="the engines run elsewhere")] = False
    use_critic: Annotated[bool, Field(description="a critic shares the accelerators of the actor")] = False
    servers: Annotated[tuple[Server, ...], Field(description="omitted: one, of regular engines")] = ()
    node_group: Annotated[Labels, Field(description="omitted: the whole cluster")] = ()
    accelerators: Annotated[
        Text | None, Field(description="ranks of the pool, such as 4-15; omitted: all")
    ] = None

    @property
    def mode(self) -> LayoutMode:
        return next(mode for mode in LayoutMode if all(getattr(self, flag) for flag in mode.flags))

    @property
    def num_actor(self) -> int:
        return self.actor_num_nodes * self.actor_num_gpus_per_node

    @property
    def num_rollout(self) -> int:
        """`rollout_num_gpus` if given; else the sum of the servers; else A if colocated; else 0."""
        if self.rollout_num_gpus is not None:
            return self.rollout_num_gpus
        if self.servers:
            return sum(group.num_gpus for server in self.servers for group in server.groups)
        return self.num_actor if self.colocate and self.mode.serves else 0

    @property
    def reserved(self) -> int:
        return self.mode.reserved(self.num_actor, self.num_rollout)

    @property
    def rollout_offset(self) -> int:
        return self.mode.rollout_offset(self.num_actor)

    def slices(self) -> dict[str, range]:
        """The positions of each role, whether or not it runs in this mode."""
        trained = range(min(self.num_actor, self.reserved))
        stop = self.rollout_offset + self.num_rollout if self.mode.serves else self.reserved
        critic = {"critic": trained} if self.use_critic else {}
        return {"actor": trained, **critic, "rollout": range(self.rollout_offset, stop)}

    def engine_groups(self) -> tuple[EngineSlice, ...]:
        """The groups of engines that hold accelerators of the pool in this mode."""
        return tuple(part for part in self.all_groups() if part.positions) if self.mode.serves else ()

    @property
    def roles(self) -> list[str]:
        """The components of every mode; `rollout` stands for all groups of engines."""
        names = ["actor", "critic", "rollout", *(part.component for part in self.all_groups())]
        return list(dict.fromkeys(names))

    @property
    def components(self) -> list[str]:
        """The components that run in this mode."""
        trains = ["actor", *(["critic"] if self.use_critic else [])]
        trains = trains if self.mode.trains and self.num_actor else []
        return [*trains, *(part.component for part in self.engine_groups())]

    def all_groups(self) -> Iterator[EngineSlice]:
        """Every group of engines in the section, whether or not it runs in this mode."""
        alone = EngineGroup(num_gpus=self.num_rollout)
        servers = self.servers or (Server(groups=(alone,)),)
        position = self.rollout_offset
        for index, server in enumerate(servers):
            for number, (group, name) in enumerate(
                zip(server.groups, component_names(server, servers), strict=True)
            ):
                # A placeholder runs no engines, so it need not be a multiple of their width.
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
