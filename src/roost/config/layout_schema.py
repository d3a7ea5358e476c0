"""The schema of `cluster.layout`."""

from __future__ import annotations

from pydantic import Field

from roost.config.fields import Count, CountOrNone, Section, Text, TextOrTexts

KINDS = ("regular", "prefill", "decode", "placeholder")


class EngineGroupConfig(Section):
    kind: Text = Field("regular", json_schema_extra={"enum": list(KINDS)})
    num_gpus: CountOrNone
    gpus_per_engine: Count | None = Field(None, description="omitted: rollout_num_gpus_per_engine")


class ServerConfig(Section):
    name: Text = "default"
    groups: list[EngineGroupConfig] = Field(min_length=1)


class LayoutConfig(Section):
    actor_num_nodes: CountOrNone = 1
    actor_num_gpus_per_node: CountOrNone = 8
    rollout_num_gpus: CountOrNone | None = None
    rollout_num_gpus_per_engine: Count = 1
    colocate: bool = False
    debug_train_only: bool = False
    debug_rollout_only: bool = False
    rollout_external: bool = False
    use_critic: bool = False
    servers: list[ServerConfig] = Field(default_factory=list, description="omitted: one, of regular engines")
    node_group: TextOrTexts | None = Field(None, description="omitted: the whole cluster")
    accelerators: Text | None = Field(None, description="ranks of the pool, such as 4-15; omitted: all")
