"""The rollout engines of a layout: servers, their groups of engines, and the names of their components."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from roost.config.fields import Count, NonEmptyTuple, NonNegativeInt, Text
from roost.errors import Path

KINDS = ("regular", "prefill", "decode", "encoder", "placeholder")


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
