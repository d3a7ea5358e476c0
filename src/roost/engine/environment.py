"""The environment of a worker: what the plan and the config say, and a short list from the driver."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from roost.errors import looks_secret
from roost.inventory.accelerators import accelerator_kind
from roost.inventory.groups import NodeEnvironment
from roost.placement.placement import Placement

# Settings of libraries that every rank should agree on. Never names that could hold a secret.
PASSED_ON = ("NCCL_", "GLOO_", "TORCH_", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "HYDRA_FULL_ERROR")
# Lists of places: a node's own come after the config's, they are not replaced.
SEARCH_PATHS = frozenset(("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD"))


def needs_new_process(name: str) -> bool:
    """Whether only a new process can honour the variable. A secret never: Ray shows what it is asked."""
    return name.startswith(("LD_", "PYTHON", "MALLOC_", "DYLD_")) and not looks_secret(name)


def worker_variables(
    placement: Placement,
    *,
    world_size: int,
    master_addr: str,
    master_port: int,
    group: str,
    job: str,
    device_names: list[str],
) -> dict[str, str]:
    """What the placement says."""
    variables = {
        "RANK": str(placement.rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(placement.local_rank),
        "LOCAL_WORLD_SIZE": str(placement.local_world_size),
        "NODE_RANK": str(placement.placement_node_rank),
        "CLUSTER_NODE_RANK": str(placement.cluster_node_rank),
        "MASTER_ADDR": master_addr,
        "MASTER_PORT": str(master_port),
        "ROOST_JOB": job,
        "ROOST_GROUP": group,
    }
    if device_names:
        variables.update(accelerator_kind(placement.accelerator_type).visible(device_names))
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
