"""The flags of programs that say which engines a layout has, and flags whose names hold a slip."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

import roost
from roost import EngineGroup, Layout, Server
from roost.config.job import read_supervised_layout


def rules(args: Any, on: str = "4x8") -> dict[str, str]:
    plan = roost.plan(read_supervised_layout(args)[0], on)
    return {name: component.rule for name, component in plan.components.items()}


def refusal(**flags: Any) -> roost.ConfigurationError:
    with pytest.raises(roost.ConfigurationError) as caught:
        Layout.from_args(Namespace(**flags))
    assert all(finding.remedy for finding in caught.value.findings)
    return caught.value


# -- prefill_num_servers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Namespace, dict])
def test_prefill_engines_and_the_rest_decodes(kind: Any) -> None:
    args = kind(rollout_num_gpus=16, rollout_num_gpus_per_engine=2, prefill_num_servers=3)
    assert rules(args) == {"actor": "0-7", "rollout.prefill": "8-13:0-2", "rollout.decode": "14-23:0-4"}
    prefill, decode = Layout.from_args(args).engine_groups()
    assert (prefill.server, prefill.kind, prefill.num_engines, prefill.gpus_per_engine) == (
        "default",
        "prefill",
        3,
        2,
    )
    assert (decode.server, decode.kind, decode.num_engines, decode.gpus_per_engine) == (
        "default",
        "decode",
        5,
        2,
    )


def test_prefill_engines_of_a_colocated_rollout() -> None:
    args = Namespace(colocate=True, prefill_num_servers=2, num_gpus_per_engine=0.3)
    assert rules(args) == {"actor": "0-7", "rollout.prefill": "0-1", "rollout.decode": "2-7"}


@pytest.mark.parametrize("number", [0, None])
def test_no_prefill_engines(number: int | None) -> None:
    args = Namespace(rollout_num_gpus=8, prefill_num_servers=number, sglang_config=None)
    assert Layout.from_args(args) == Layout(rollout_num_gpus=8)


def test_prefill_engines_of_a_rollout_that_does_not_run_have_only_their_names() -> None:
    layout = Layout.from_args(Namespace(debug_train_only=True, prefill_num_servers=2))
    assert {"rollout.prefill", "rollout.decode"} <= set(layout.roles)
    assert layout.num_rollout == 0
    assert rules(layout) == {"actor": "0-7"}


@pytest.mark.parametrize(("number", "remedy"), [(4, "make it 3 at most, or"), (9, "make it 3 at most, or")])
def test_prefill_engines_that_leave_none_to_decode(number: int, remedy: str) -> None:
    error = refusal(rollout_num_gpus=8, rollout_num_gpus_per_engine=2, prefill_num_servers=number)
    assert error.codes == ("RC104",)
    (finding,) = error.findings
    assert finding.what == f"prefill_num_servers: {number} prefill engines leave no engine to decode"
    assert finding.why == "the rollout has 8 accelerators, 4 engines of 2"
    assert finding.remedy.startswith(remedy)


@pytest.mark.parametrize(
    ("flags", "codes"),
    [
        ({"prefill_num_servers": "two"}, ("RC103",)),
        ({"prefill_num_servers": -1}, ("RC104",)),
        ({"prefill_num_servers": True}, ("RC103",)),
        ({"prefill_num_servers": object()}, ("RC103",)),
        ({"prefill_num_servers": 1, "rollout_num_gpus": 7, "rollout_num_gpus_per_engine": 2}, ("RP103",)),
        ({"prefill_num_servers": 1, "rollout_num_gpus": None}, ("RC102",)),
        ({"prefill_num_servers": 1, "servers": [{"groups": [{"num_gpus": 8}]}]}, ("RC104",)),
        ({"prefill_num_servers": 1, "rollout_num_gpus": 0}, ("RC104",)),
    ],
)
def test_prefill_flags_that_are_refused(flags: dict[str, Any], codes: tuple[str, ...]) -> None:
    assert refusal(**{"rollout_num_gpus": 8, **flags}).codes == codes


# -- sglang_config ---------------------------------------------------------------------------------------

SERVERS = """\
sglang:
  - name: policy
    model_path: /models/policy
    num_gpus_per_engine: 2
    server_groups:
      - {worker_type: prefill, num_gpus: 4}
      - {worker_type: decode, num_gpus: 8, num_gpus_per_engine: 4, overrides: {mem_fraction: 0.8}}
      - {worker_type: placeholder, num_gpus: 1}
  - name: vision
    engine_groups: [{worker_type: encoder, num_gpus: 2}]
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("servers.yaml")


def test_servers_of_a_file(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.write_text(SERVERS)
    for path in (file, str(file)):
        layout = Layout.from_args(Namespace(sglang_config=path, rollout_num_gpus=None))
        assert layout.servers == (
            Server(
                name="policy",
                groups=(
                    EngineGroup(kind="prefill", num_gpus=4, gpus_per_engine=2),
                    EngineGroup(kind="decode", num_gpus=8, gpus_per_engine=4),
                    EngineGroup(kind="placeholder", num_gpus=1),
                ),
            ),
            Server(name="vision", groups=(EngineGroup(kind="encoder", num_gpus=2),)),
        )
    assert rules({"sglang_config": "servers.yaml", "rollout_num_gpus": 15}) == {
        "actor": "0-7",
        "rollout.policy.prefill": "8-11:0-1",
        "rollout.policy.decode": "12-19:0-1",
        "rollout.policy.placeholder": "20",
        "rollout.vision": "21-22",
    }
    assert not caplog.text


def test_the_list_of_servers_may_be_the_whole_file(file: Path) -> None:
    file.write_text("- {name: default, server_groups: [{num_gpus: 8}]}\n")
    layout = Layout.from_args(Namespace(sglang_config=file, rollout_num_gpus_per_engine=4))
    assert rules(layout) == {"actor": "0-7", "rollout": "8-15:0-1"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("engines: 3\n", "'sglang' is missing servers.yaml:1:1"),
        ("8\n", "a file of servers is a list of them servers.yaml:1:1"),
        ("sglang: [3]\n", "entry 0 of sglang: `3` does not fit servers.yaml:1:10"),
        ("sglang: []\n", "sglang: an empty list does not fit servers.yaml:1:9"),
        ("- {server_groups: [{num_gpus: 8}]}\n", "'name' is missing servers.yaml:1:3"),
        ("- {name: a}\n", "a server without groups of engines servers.yaml:1:3"),
        ("- name: a\n  server_groups: []\n", "server_groups: an empty list does not fit servers.yaml:2:18"),
        (
            "- name: a\n  server_groups: [{num_gpus: 8}]\n  engine_groups: [{num_gpus: 8}]\n",
            "server_groups and engine_groups are the same, and both given servers.yaml:3:3",
        ),
        (
            "- name: a\n  server_groups: [{worker_type: prefil, num_gpus: 8}]\n",
            "'prefil' is not a kind of engines servers.yaml:2:33",
        ),
        (
            "- name: a\n  engine_groups:\n    - {num_gpus: 7, num_gpus_per_engine: 4}\n",
            "rollout.a: 7 accelerators cannot be cut into engines of 4 servers.yaml:3:18",
        ),
        (
            "- {name: a b, server_groups: [{num_gpus: 8}]}\n",
            "'a b' is not a name for a server servers.yaml:1:10",
        ),
        ("- name: a\n  server_groups: [{}]\n", "'num_gpus' is missing servers.yaml:2:19"),
        ("- name: a\n  name: b\n", "the key 'name' is written twice servers.yaml:2:3"),
    ],
)
def test_mistakes_in_a_file_have_their_positions(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    (finding,) = refusal(sglang_config=file).findings
    assert finding.where is not None
    where = finding.where
    assert f"{finding.what} {where.source}:{where.line}:{where.column}" == said


def test_a_file_that_is_not_there() -> None:
    assert refusal(sglang_config="/nowhere/servers.yaml").codes == ("RC001",)
    assert refusal(sglang_config="/nowhere/servers.yaml", rollout_num_gpus="x").codes == ("RC001", "RC103")


def test_a_file_contradicts_other_flags(file: Path) -> None:
    file.write_text(SERVERS)
    error = refusal(sglang_config=file, prefill_num_servers=1)
    assert error.codes == ("RC104",)
    assert error.findings[0].what == "prefill_num_servers and sglang_config contradict each other"
    assert refusal(sglang_config=file, servers=[{"groups": [{"num_gpus": 15}]}]).codes == ("RC104",)
    error = refusal(sglang_config=file, rollout_num_gpus=16)
    assert error.findings[0].what == "rollout_num_gpus is 16, the groups of the servers have 15"
    assert refusal(sglang_config={"name": "a"}).codes == ("RC103",)


def test_a_misspelt_key_of_a_file_is_named(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.write_text(
        "- name: a\n  num_gpu_per_engine: 2\n  server_groups: [{num_gpus: 8, worker_typ: decode}]\n"
    )
    assert Layout.from_args(Namespace(sglang_config=file)).num_rollout == 8
    assert "'num_gpu_per_engine' is not read, and looks like a misspelt 'num_gpus_per_engine'" in caplog.text
    assert "servers.yaml:2:3" in caplog.text
    assert "'worker_typ' is not read" in caplog.text


# -- slips in names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("rollout_num_gpu", "rollout_num_gpus"),
        ("rolout_num_gpus", "rollout_num_gpus"),
        ("rollout_gpus", "rollout_num_gpus"),
        ("num_rollout_gpus", "rollout_num_gpus"),
        ("rollout-num-gpus", "rollout_num_gpus"),
        ("rollout_num_gpus_per_engines", "rollout_num_gpus_per_engine"),
        ("rollout_gpus_per_engine", "rollout_num_gpus_per_engine"),
        ("actor_num_node", "actor_num_nodes"),
        ("actor_nodes", "actor_num_nodes"),
        ("actor_num_gpu_per_node", "actor_num_gpus_per_node"),
        ("collocate", "colocate"),
        ("colocated", "colocate"),
        ("colcoate", "colocate"),
        ("use_critc", "use_critic"),
        ("debug_rollout_onyl", "debug_rollout_only"),
        ("external_rollout", "rollout_external"),
        ("prefill_num_server", "prefill_num_servers"),
        ("sglang_cfonig", "sglang_config"),
        ("critic_num_node", "critic_num_nodes"),
        ("num_gpu_per_actor", "num_gpus_per_actor"),
    ],
)
@pytest.mark.parametrize("kind", [lambda **flags: Namespace(**flags), dict], ids=["namespace", "mapping"])
def test_a_misspelt_flag_is_named(kind: Any, name: str, meant: str, caplog: pytest.LogCaptureFixture) -> None:
    layout = Layout.from_args(kind(rollout_num_gpus=8, **{name: 1}))
    assert layout == Layout(rollout_num_gpus=8)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("roost", "WARNING")
    assert f"warning[RW110]: {name!r} is not read, and looks like a misspelt {meant!r}" in record.message


# Flags that training programs have beside those of a layout.
ORDINARY = [
    "num_gpus_per_node",
    "num_nodes",
    "num_gpus",
    "num_workers",
    "n_gpus_per_node",
    "gpus_per_node",
    "nnodes",
    "node_rank",
    "rollout_batch_size",
    "rollout_max_response_len",
    "rollout_max_prompt_len",
    "rollout_max_context_len",
    "rollout_temperature",
    "rollout_top_p",
    "rollout_top_k",
    "rollout_seed",
    "rollout_stop",
    "rollout_shuffle",
    "rollout_global_dataset",
    "rollout_num_process",
    "rollout_function_path",
    "rollout_external_engine_addrs",
    "rollout_health_check_interval",
    "rollout_num_epochs",
    "rollout_num_steps",
    "rollout_num_samples",
    "rollout_num_groups",
    "rollout_num_engines",
    "rollout_num_envs",
    "rollout_interval",
    "rollout_num_cpus",
    "rollout_num_gpus_per_node",
    "rollout_only",
    "rollout_skip_special_tokens",
    "num_rollout",
    "num_rollouts",
    "eval_num_gpus",
    "eval_rollout_num",
    "eval_interval",
    "eval_function_path",
    "over_sampling_batch_size",
    "n_samples_per_prompt",
    "actor_lr",
    "actor_num_layers",
    "actor_num_heads",
    "actor_path",
    "actor_num_cpus_per_node",
    "actor_learning_rate",
    "actor_load",
    "critic_lr",
    "critic_load",
    "critic_save",
    "critic_train_only",
    "num_critic_only_steps",
    "critic_lr_warmup_iters",
    "critic_model",
    "reward_num_nodes",
    "reward_num_gpus_per_node",
    "ref_num_nodes",
    "ref_num_gpus_per_node",
    "ref_load",
    "reward_num_servers",
    "vllm_num_engines",
    "vllm_tensor_parallel_size",
    "colocate_all_models",
    "colocate_actor_ref",
    "colocate_critic_reward",
    "offload",
    "offload_train",
    "offload_rollout",
    "train_backend",
    "debug",
    "debug_mode",
    "debug_first_weight_sync",
    "check_weight_update",
    "save_debug_rollout_data",
    "load_debug_rollout_data",
    "load_debug_rollout_data_subsample",
    "save_debug_train_data",
    "dump_details",
    "sglang_router_ip",
    "sglang_router_port",
    "sglang_server_concurrency",
    "sglang_mem_fraction_static",
    "sglang_tp_size",
    "sglang_dp_size",
    "sglang_context_length",
    "sglang_log_level",
    "sglang_enable_metrics",
    "vllm_config",
    "use_kl_loss",
    "use_routing_replay",
    "use_fault_tolerance",
    "use_tensorboard",
    "use_wandb",
    "use_cpu",
    "use_rollout_logprobs",
    "num_cpus_per_actor",
    "num_cpus_per_engine",
    "num_gpus_per_critic",
    "num_gpus_per_worker",
    "num_gpus_per_replica",
    "decode_num_servers",
    "prefill_chunk_size",
    "prefill_batch_size",
    "server",
    "servers_path",
    "share",
    "accelerator",
    "accelerate",
    "node_groups",
    "group",
    "allocate",
    "relocate",
    "collate",
    "locate",
    "local_rank",
    "world_size",
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "num_layers",
    "hidden_size",
    "num_attention_heads",
    "num_query_groups",
    "micro_batch_size",
    "global_batch_size",
    "num_steps_per_rollout",
    "train_iters",
    "seed",
]


@pytest.mark.parametrize("kind", [Namespace, dict])
def test_ordinary_flags_are_left_alone(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    args = kind(rollout_num_gpus=8, **dict.fromkeys(ORDINARY, 1))
    assert Layout.from_args(args) == Layout(rollout_num_gpus=8)
    assert not caplog.text


def test_flags_without_a_value_and_methods_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    class Flags:
        rollout_num_gpus = 8
        rollout_num_gpu = None

        def use_critics(self) -> bool:
            return True

    assert Layout.from_args(Flags()) == Layout(rollout_num_gpus=8)
    assert Layout.from_args({"rollout_num_gpus": 8, "collocate": None, 3: 4}) == Layout(rollout_num_gpus=8)
    assert not caplog.text


def test_a_misspelt_flag_is_named_beside_an_error() -> None:
    error = refusal(rollout_num_gpu=8)
    assert error.codes == ("RC102", "RW110")
