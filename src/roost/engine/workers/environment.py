"""The environment of a worker: what the plan and the config say, and a short list from the driver."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roost.engine.workers.worker import WorkerContext
from roost.inventory.accelerators import accelerator_kind
from roost.inventory.groups import NodeEnvironment
from roost.inventory.inventory import Inventory
from roost.placement.placement import Placement
from roost.secret_names import looks_secret

if TYPE_CHECKING:
    from roost.engine.group import LaunchOrder

# Settings of libraries that every rank should agree on. Never names that could hold a secret.
PASSED_ON = ("NCCL_", "GLOO_", "TORCH_", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "HYDRA_FULL_ERROR")
# Lists of places: a node's own come after the config's, they are not replaced.
SEARCH_PATHS = frozenset(("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD"))


def needs_new_process(name: str) -> bool:
    """Whether only a new process can honour the variable. A secret never: Ray shows what it is asked."""
    return name.startswith(("LD_", "PYTHON", "MALLOC_", "DYLD_")) and not looks_secret(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSettings:
    """Who a rank is, and what its process is given."""

    context: WorkerContext
    configured: Mapping[str, str]  # what the config says for its node
    placed: Mapping[str, str]  # what the placement says
    interpreter: str | None

    @property
    def variables(self) -> dict[str, str]:
        return {**self.configured, **self.placed}

    def __repr__(self) -> str:  # values may be secrets
        return f"RankSettings({self.context.name})"


def rank_settings(
    inventory: Inventory,
    job: str,
    order: LaunchOrder,
    placement: Placement,
    *,
    master_addr: str,
    master_port: int,
    device_names: Sequence[str],
    node_paths: Mapping[str, str],
) -> RankSettings:
    setting = inventory.environment(placement.node_group_label, placement.cluster_node_rank)
    context = WorkerContext(
        group=order.name,
        job=job,
        placement=placement,
        world_size=len(order.placements),
        master_addr=master_addr,
        master_port=master_port,
        node=str(inventory.nodes[placement.cluster_node_rank]),
        devices=tuple(device_names),
        share=order.shares[placement.rank] if order.shares else None,
    )
    return RankSettings(
        context=context,
        configured=configured_variables(setting, node_paths),
        placed=worker_variables(context),
        interpreter=setting.python_interpreter_path,
    )


def worker_variables(context: WorkerContext) -> dict[str, str]:
    placement = context.placement
    variables = {
        "RANK": str(placement.rank),
        "WORLD_SIZE": str(context.world_size),
        "LOCAL_RANK": str(placement.local_rank),
        "LOCAL_WORLD_SIZE": str(placement.local_world_size),
        "NODE_RANK": str(placement.placement_node_rank),
        "CLUSTER_NODE_RANK": str(placement.cluster_node_rank),
        "MASTER_ADDR": context.master_addr,
        "MASTER_PORT": str(context.master_port),
        "ROOST_JOB": context.job,
        "ROOST_GROUP": context.group,
    }
    if context.devices:
        variables.update(accelerator_kind(placement.accelerator_type).visible(list(context.devices)))
    return variables


def configured_variables(environment: NodeEnvironment, node_paths: Mapping[str, str]) -> dict[str, str]:
    """What the config says for this node, its search paths before the node's own."""
    variables = {}
    for name, value in environment.env_vars:
        if value is None:
            continue
        own = node_paths.get(name)
        variables[name] = f"{value}{os.pathsep}{own}" if name in SEARCH_PATHS and own else value
    return variables


def passed_on(environ: Mapping[str, str]) -> dict[str, str]:
    """The driver's settings that workers get where their node has none of its own."""
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(PASSED_ON) and not looks_secret(name)
    }


def runtime_env(variables: Mapping[str, str], interpreter: str | None) -> dict[str, Any]:
    """What must be asked of Ray because it takes a new process; mostly nothing."""
    wanted: dict[str, Any] = {}
    early = {name: value for name, value in variables.items() if needs_new_process(name)}
    if early:
        wanted["env_vars"] = early
    if interpreter:
        wanted["py_executable"] = interpreter
    return wanted
