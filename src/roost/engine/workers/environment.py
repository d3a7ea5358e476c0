"""The environment of a worker: variables from its placement, from the config, and a few from the driver."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roost.engine.workers.worker_context import WorkerContext
from roost.errors import ConfigurationError
from roost.inventory.accelerators import accelerator_kind
from roost.inventory.groups import NodeEnvironment, variable_problem
from roost.inventory.inventory import Inventory
from roost.placement.placement import Placement
from roost.secret_names import looks_secret

# Library settings that all ranks should share. `passed_on` leaves out names that look like secrets.
PASSED_ON = ("NCCL_", "GLOO_", "TORCH_", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "HYDRA_FULL_ERROR")
EARLY = ("LD_", "PYTHON", "MALLOC_", "DYLD_")  # must be set before the process starts
# The config's entries come before the node's own, and do not replace them.
SEARCH_PATHS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSettings:
    """The context of a rank, and the environment of its process."""

    context: WorkerContext
    configured: Mapping[str, str]  # variables the config sets on its node
    placed: Mapping[str, str]  # variables that follow from its placement
    interpreter: str | None

    @property
    def variables(self) -> dict[str, str]:
        return {**self.configured, **self.placed}

    def __repr__(self) -> str:  # values may be secrets
        return f"RankSettings({self.context.name})"


def rank_settings(
    inventory: Inventory,
    job: str,
    group: str,
    placement: Placement,
    *,
    world_size: int,
    share: float | None,
    master_addr: str,
    master_port: int,
    device_names: Sequence[str],
    node_paths: Mapping[str, str],
    generation: int = 0,
) -> RankSettings:
    setting = inventory.environment(placement.node_group_label, placement.cluster_node_rank)
    context = WorkerContext(
        group=group,
        job=job,
        placement=placement,
        world_size=world_size,
        master_addr=master_addr,
        master_port=master_port,
        node=str(inventory.nodes[placement.cluster_node_rank]),
        devices=tuple(device_names),
        share=share,
        generation=generation,
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
        **placement.variables(context.world_size),
        "MASTER_ADDR": context.master_addr,
        "MASTER_PORT": str(context.master_port),
        "ROOST_JOB": context.job,
        "ROOST_GROUP": context.group,
    }
    if context.devices:
        variables.update(accelerator_kind(placement.accelerator_type).visible(list(context.devices)))
    return variables


def configured_variables(environment: NodeEnvironment, node_paths: Mapping[str, str]) -> dict[str, str]:
    """The variables the config sets on this node. Search paths keep the node's own entries at the end."""
    variables = {}
    for name, value in environment.env_vars:
        if value is None:
            continue
        own = node_paths.get(name)
        variables[name] = f"{value}{os.pathsep}{own}" if name in SEARCH_PATHS and own else value
    return variables


def checked_variables(variables: Any) -> dict[str, str]:
    """Variables that a program gives, as texts. Raises if a process cannot have them."""
    if not isinstance(variables, Mapping):
        problem = f"variables are a mapping of names to values, not a {type(variables).__name__}"
    else:
        problems = (variable_problem(str(name), value) for name, value in variables.items())
        problem = next(filter(None, problems), "")
    if problem:
        raise ConfigurationError(
            code="RC103", what=f"env_vars: {problem}", remedy="such as env_vars={'HF_HOME': '/data'}"
        )
    return {str(name): str(value) for name, value in variables.items()}


def passed_on(environ: Mapping[str, str]) -> dict[str, str]:
    """The driver's library settings. Workers take those that their node does not set."""
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(PASSED_ON) and not looks_secret(name)
    }


def runtime_env(variables: Mapping[str, str], interpreter: str | None) -> dict[str, Any]:
    """Ray's `runtime_env` for settings that only a new process can have; mostly empty."""
    wanted: dict[str, Any] = {}
    # No secrets: Ray shows these variables.
    early = {
        name: value
        for name, value in variables.items()
        if name.startswith(EARLY) and not looks_secret(name, value)
    }
    if early:
        wanted["env_vars"] = early
    if interpreter:
        wanted["py_executable"] = interpreter
    return wanted
