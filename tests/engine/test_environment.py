"""What a worker's environment is made of."""

from __future__ import annotations

import pytest

from roost import Inventory, PackedPlacementStrategy
from roost.engine.connection.embedded import SMALLEST_STORE, _store_memory, environment_for_nodes
from roost.engine.workers import environment
from roost.engine.workers.worker_context import WorkerContext
from roost.inventory.accelerators import accelerator_kind
from roost.inventory.groups import NodeEnvironment

SECRETS = ("MY_API_KEY", "HF_TOKEN", "WANDB_API_KEY", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "SECRET_PLACE")


def settings(**variables: str | None) -> NodeEnvironment:
    return NodeEnvironment(node_ranks=(0,), env_vars=tuple(variables.items()))


def test_the_placement_says_who_a_worker_is() -> None:
    placement = PackedPlacementStrategy(2, 5, 2).get_placement(Inventory.parse("2x4"))[1]
    context = WorkerContext(
        group="actor",
        job="night-run",
        placement=placement,
        world_size=2,
        master_addr="10.0.0.1",
        master_port=4000,
        node="node 1",
        devices=("0", "1"),
    )
    assert environment.worker_variables(context) == {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": "1",
        "CLUSTER_NODE_RANK": "1",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "4000",
        "ROOST_JOB": "night-run",
        "ROOST_GROUP": "actor",
        "CUDA_VISIBLE_DEVICES": "0,1",
    }


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("nvidia_gpu", {"CUDA_VISIBLE_DEVICES": "1,3"}),
        ("amd_gpu", {"HIP_VISIBLE_DEVICES": "1,3"}),
        ("ascend_npu", {"ASCEND_RT_VISIBLE_DEVICES": "1,3"}),
        ("intel_gpu", {"ONEAPI_DEVICE_SELECTOR": "level_zero:1,3"}),
        ("musa_gpu", {"MUSA_VISIBLE_DEVICES": "1,3"}),
        ("kunlun_xpu", {"XPU_VISIBLE_DEVICES": "1,3"}),
    ],
)
def test_the_visible_variable_of_each_kind(kind: str, expected: dict[str, str]) -> None:
    assert accelerator_kind(kind).visible(["1", "3"]) == expected


@pytest.mark.parametrize("name", ["PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD"])
def test_search_paths_are_put_before_the_nodes_own(name: str) -> None:
    """Pitfall: the head node's PYTHONPATH overwrites the robot node's."""
    merged = environment.configured_variables(settings(**{name: "/new"}), {name: "/own"})
    assert merged == {name: "/new:/own"}
    assert environment.configured_variables(settings(**{name: "/new"}), {}) == {name: "/new"}
    assert environment.configured_variables(settings(), {name: "/own"}) == {}


def test_other_variables_replace_the_nodes_own() -> None:
    assert environment.configured_variables(settings(A="1", B=None), {"A": "0"}) == {"A": "1"}


def test_only_settings_of_libraries_are_passed_on() -> None:
    """Pitfall: all of the driver's environment, API keys included, is copied."""
    environ = {
        "NCCL_DEBUG": "INFO",
        "GLOO_SOCKET_IFNAME": "eth0",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "OMP_NUM_THREADS": "4",
        "PATH": "/bin",
        "HOME": "/home/me",
        "PYTHONPATH": "/mine",
        "CUDA_VISIBLE_DEVICES": "0",
        "NCCL_AUTH_TOKEN": "x",
        "TORCH_API_KEY": "x",
        **dict.fromkeys(SECRETS, "x"),
    }
    assert set(environment.passed_on(environ)) == {
        "NCCL_DEBUG",
        "GLOO_SOCKET_IFNAME",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "OMP_NUM_THREADS",
    }


def test_nodes_roost_starts_inherit_no_secrets() -> None:
    environ = {
        "PATH": "/bin",
        "PYTHONPATH": "/mine",
        "RAY_ADDRESS": "somewhere",
        **dict.fromkeys(SECRETS, "x"),
    }
    kept = environment_for_nodes(environ, "/somewhere")
    assert kept["PATH"] == "/bin"
    assert not set(SECRETS) & set(kept)
    assert "RAY_ADDRESS" not in kept
    assert "x" not in kept.values()


@pytest.mark.parametrize(
    ("variables", "interpreter", "expected"),
    [
        ({}, None, {}),
        ({"GLOO_SOCKET_IFNAME": "eth0", "MY_API_KEY": "x"}, None, {}),
        (
            {"PYTHON_INDEX_URL": "https://user:CANARY@index/simple", "MALLOC_CONF": "a:b"},
            None,
            {"env_vars": {"MALLOC_CONF": "a:b"}},
        ),
        ({"LD_PRELOAD": "/lib.so", "A": "1"}, None, {"env_vars": {"LD_PRELOAD": "/lib.so"}}),
        (
            {"PYTHONPATH": "/a", "PYTHONHASHSEED": "0"},
            None,
            {"env_vars": {"PYTHONPATH": "/a", "PYTHONHASHSEED": "0"}},
        ),
        ({}, "/opt/python", {"py_executable": "/opt/python"}),
        ({"LD_TOKEN": "x", "PYTHON_API_KEY": "x"}, None, {}),
    ],
)
def test_a_runtime_env_only_for_what_takes_a_new_process(
    variables: dict[str, str], interpreter: str | None, expected: dict[str, object]
) -> None:
    assert environment.runtime_env(variables, interpreter) == expected


def test_the_nodes_of_an_embedded_cluster_share_the_memory_of_one() -> None:
    assert _store_memory(10**6) == SMALLEST_STORE
    assert max(SMALLEST_STORE, _store_memory(1) // 4) == pytest.approx(_store_memory(4), rel=0.05)
