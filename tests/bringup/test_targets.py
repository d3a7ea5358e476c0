"""What `roost up` writes for each target."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import roost
from roost.bringup.hosts import hosts_text
from roost.bringup.job_start import JobStart
from roost.bringup.kubernetes import KubernetesOptions, name_of, ray_job, ray_job_text
from roost.bringup.slurm import SlurmOptions, sbatch_script

ROOT = Path(__file__).resolve().parents[2]
CRD = ROOT.parent / "shared/golden/kuberay_rayjobs_crd.yaml.gz"
OPTIONS = KubernetesOptions(image="registry/job:1", ray_version="2.52.0")


def placed(shape: str, **placement: Any) -> roost.Plan:
    job = {"cluster": {"component_placement": placement}}
    return roost.plan(job, roost.Inventory.parse(shape))


def engines_over_nodes() -> roost.Plan:
    layout = {"actor_num_nodes": 1, "actor_num_gpus_per_node": 8, "rollout_num_gpus": 16}
    job = {"cluster": {"num_nodes": 3, "layout": {**layout, "rollout_num_gpus_per_engine": 16}}}
    return roost.plan(job, roost.Inventory.parse("3x8"))


def heterogeneous() -> roost.Plan:
    examples = ROOT / "examples"
    inventory = roost.Inventory.load(examples / "heterogeneous_cluster.yaml")
    return roost.plan(examples / "heterogeneous.yaml", inventory)


PLANS = {
    "uniform": lambda: placed("4x8", actor="all"),
    "mixed": lambda: placed("1x8:A800,2x8:4090,1x8:A800", actor="all"),
    "engines over nodes": engines_over_nodes,
    "robots": heterogeneous,
    "cpu only": lambda: placed("3x0", agent={"node_group": "node", "placement": "0-2:0-5"}),
}
LABELS = {"A800": "gpu.model=a800", "4090": "gpu.model=4090", "robot": "kubernetes.io/hostname=arm-1"}


def started(plan: roost.Plan, **given: Any) -> JobStart:
    command = "roost launch job.yaml --plan plan.json --timeout 300"
    return JobStart(**{"name": "job", "plan": plan, "command": command, "waits": True, **given})


def strict(schema: Any) -> Any:
    """The schema with what the API server checks beyond JSON Schema: unknown fields are wrong."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


@pytest.fixture(scope="module")
def crd() -> jsonschema.Draft7Validator:
    """KubeRay's own schema of a RayJob. It is kept outside the repository."""
    if not CRD.exists():
        if os.environ.get("CI") == "true":
            pytest.fail("KubeRay's schema is not where CI should have put it")
        pytest.skip("KubeRay's schema is kept outside the repository and is not here")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    versions = yaml.load(gzip.decompress(CRD.read_bytes()), Loader=loader)["spec"]["versions"]
    schema = next(one for one in versions if one["name"] == "v1")["schema"]["openAPIV3Schema"]
    # A schema says only that metadata is an object; `name` and `namespace` belong there.
    return jsonschema.Draft7Validator(strict(schema))


@pytest.mark.parametrize("name", PLANS)
def test_a_ray_job_is_what_kuberay_takes(name: str, crd: jsonschema.Draft7Validator) -> None:
    plan = PLANS[name]()
    select = {key: LABELS[key] for key in LABELS if name in ("mixed", "robots") and key in _names(plan)}
    start = started(plan, select=select)
    options = KubernetesOptions(
        image="registry/job:1", ray_version="2.52.0", namespace="team", memory="64Gi", deadline=60
    )
    manifest = yaml.safe_load(ray_job_text(start, options))
    assert manifest == ray_job(start, options)
    assert [error.message for error in crd.iter_errors(manifest)] == []
    cluster = manifest["spec"]["rayClusterSpec"]
    workers = cluster["workerGroupSpecs"]
    assert 1 + sum(group["replicas"] for group in workers) == len(plan.inventory.nodes)
    assert len({group["groupName"] for group in workers}) == len(workers)
    for part, wrong in (
        (manifest["spec"], {"entryPoint": "x"}),
        (workers[0], {"replicas": "two"}),
        (cluster["headGroupSpec"]["template"]["spec"]["containers"][0], {"enviroment": []}),
    ):
        before = dict(part)
        part.update(wrong)
        assert len(list(crd.iter_errors(manifest))) == 1, wrong
        part.clear()
        part.update(before)


def _names(plan: roost.Plan) -> set[str]:
    return {node.accelerators.model for node in plan.inventory.nodes} | set(plan.inventory.groups)


def test_pods_declare_the_ranks_of_their_shape() -> None:
    cluster = ray_job(started(PLANS["mixed"](), select=LABELS), OPTIONS)["spec"]["rayClusterSpec"]
    pods = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    shown = [
        (pod["template"]["spec"]["containers"][0]["env"][0]["value"], pod["template"]["spec"]["nodeSelector"])
        for pod in pods
    ]
    a800, other = {"gpu.model": "a800"}, {"gpu.model": "4090"}
    assert shown == [("0", a800), ("3", a800), ("1-2", other)]


def test_the_manifest_of_unlike_nodes(same_as_before: Any) -> None:
    start = started(heterogeneous(), select=LABELS)
    same_as_before("heterogeneous_rayjob.yaml", ray_job_text(start, OPTIONS))


def test_names_that_kubernetes_allows() -> None:
    assert [name_of(text) for text in ("My_Job.v2", "4090", "-", "x" * 99)] == [
        "my-job-v2",
        "job-4090",
        "job",
        "x" * 47,
    ]


def test_kinds_that_ray_does_not_count_are_declared() -> None:
    nodes = [
        {"cpus": 9, "accelerators": {"type": kind, "count": 2}}
        for kind in ("musa_gpu", "ascend_npu", "tpu_x")
    ]
    inventory = roost.Inventory.from_dict({"nodes": nodes})
    start = started(roost.plan({"cluster": {"component_placement": {"actor": "all"}}}, inventory))
    with pytest.raises(roost.ConfigurationError, match="--resource tpu_x="):
        ray_job(start, OPTIONS)
    text = hosts_text(start, "10.0.0.1", 6379)
    assert (
        "ROOST_NODE_RANK=0 ROOST_ACCELERATOR_TYPE=musa_gpu RAY_AUTH_MODE=token ray start --head "
        "--node-ip-address=10.0.0.1 --port=6379 --num-cpus=9 --num-gpus=2\n"
    ) in text
    assert "ROOST_NODE_RANK=1 RAY_AUTH_MODE=token ray start --address=10.0.0.1:6379 --num-cpus=9\n" in text
    declared = hosts_text(started(start.plan, declare=True), "10.0.0.1", 6379)
    assert """--num-cpus=9 --resources='{"NPU": 2}'\n""" in declared


def test_the_lines_for_hosts(same_as_before: Any) -> None:
    same_as_before("heterogeneous_hosts.txt", hosts_text(started(heterogeneous()), "10.0.0.1", 6379))


def checked(script: str) -> str:
    """The script, which bash can read."""
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    return script


def test_the_sbatch_script(same_as_before: Any) -> None:
    start = started(PLANS["uniform"](), setup=("module load cuda",))
    options = SlurmOptions(time="8:00:00", partition="gpu", account="rl", directives=("--qos=high",))
    same_as_before("uniform.sbatch", checked(sbatch_script(start, options)))


def test_unlike_nodes_are_a_heterogeneous_job_of_slurm(same_as_before: Any) -> None:
    start = started(heterogeneous(), select={"A800": "a800", "4090": "rtx", "robot": "franka"}, declare=True)
    same_as_before("heterogeneous.sbatch", checked(sbatch_script(start, SlurmOptions(partition="all"))))


def test_a_robot_is_on_one_machine_and_models_are_told_apart() -> None:
    plan = heterogeneous()
    unsaid = started(plan).problems()
    assert [finding.code for finding in unsaid] == ["RW112", "RW112"]
    assert "--select 4090=..." in unsaid[0].remedy
    assert "--select robot=..." in unsaid[1].remedy
    assert not started(plan, select=LABELS).problems()
    with pytest.raises(roost.ConfigurationError, match="did you mean 'robot'"):
        started(plan, select={"robots": "x"}).problems()


def test_other_commands_wait_for_the_nodes_first() -> None:
    start = started(PLANS["uniform"](), command="python train.py", waits=False, timeout=60)
    wanted = "roost up wait --nodes 4 --timeout 60 && python train.py"
    assert f"    {wanted}\n" in checked(sbatch_script(start, SlurmOptions()))
    assert ray_job(start, OPTIONS)["spec"]["entrypoint"] == wanted
    assert f"RAY_AUTH_MODE=token; {wanted}\n" in hosts_text(start, "h", 1024)


def test_an_address_of_ipv6_stands_in_brackets_before_its_port() -> None:
    text = hosts_text(started(placed("2x8", actor="all")), "fd00::1", 6379)
    assert "--head --node-ip-address=fd00::1 --port=6379" in text
    assert "--address='[fd00::1]:6379'" in text  # without quotes a pattern, which some shells refuse
    assert "RAY_ADDRESS='[fd00::1]:6379' " in text


SRUN = """#!/bin/bash
# Ray of every node, that ends when the job runs.
exec {python} -c '
import os, socket, time
host, _, port = os.environ["ROOST_RAY"].rpartition(":")
with socket.create_server((host, int(port))):
    while not os.path.exists("running"):
        time.sleep(0.05)
'
"""


def test_a_job_that_outlasts_its_ray_keeps_the_allocation_for_a_limited_time(tmp_path: Path) -> None:
    stubborn = "trap '' TERM; echo $BASHPID > running; exec sleep 600"
    script = sbatch_script(started(PLANS["uniform"](), command=stubborn, waits=True), SlurmOptions())
    assert 'wait_at_most 60 "$job"' in script
    Path(tmp_path, "script").write_text(script.replace("wait_at_most 60", "wait_at_most 1"))
    Path(tmp_path, "srun").write_text(SRUN.format(python=sys.executable))
    Path(tmp_path, "srun").chmod(0o755)
    environ = {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        **{"SLURM_JOB_ID": str(os.getpid()), "SLURMD_NODENAME": "n1", "ROOST_HEAD_ADDRESS": "127.0.0.1"},
    }
    said = Path(tmp_path, "said")
    try:
        with said.open("w") as errors:  # not a pipe, which the job would keep open
            done = subprocess.run(["bash", "script"], cwd=tmp_path, env=environ, stderr=errors, timeout=120)
        assert (done.returncode, said.read_text()) == (5, "Ray has ended on every node: ending the job\n")
    finally:  # as Slurm would
        os.kill(int(Path(tmp_path, "running").read_text()), signal.SIGKILL)
