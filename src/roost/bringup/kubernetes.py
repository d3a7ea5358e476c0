"""A KubeRay RayJob that has the nodes of a plan as its pods."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from roost.bringup.job_start import JobStart, NodeShape, ShapedNodes, node_variables, ray_resources
from roost.config.ranks import ranges
from roost.errors import ConfigurationError
from roost.inventory.accelerators import AcceleratorType

# The names that the vendors' device plugins have for accelerators.
RESOURCES = {
    AcceleratorType.NV_GPU.value: "nvidia.com/gpu",
    AcceleratorType.AMD_GPU.value: "amd.com/gpu",
    AcceleratorType.ASCEND_NPU.value: "huawei.com/Ascend910",
    AcceleratorType.INTEL_GPU.value: "gpu.intel.com/i915",
    AcceleratorType.MUSA_GPU.value: "mthreads.com/gpu",
    AcceleratorType.KUNLUN_XPU.value: "kunlunxin.com/xpu",
}
_DEFAULT_CPUS = 4  # of a pod whose node's CPUs the plan does not know
_NO_MORE_THAN = 63  # characters of a Kubernetes name


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesOptions:
    image: str
    ray_version: str
    namespace: str | None = None
    workdir: str | None = None  # in the image, where the job's file is
    memory: str | None = None  # of each pod, such as 64Gi
    deadline: int | None = None  # seconds that the job may take
    resources: Mapping[str, str] = field(default_factory=dict)  # replace entries of the table above


def ray_job(start: JobStart, options: KubernetesOptions) -> dict[str, Any]:
    """The manifest as plain data."""
    head, *workers = _pod_groups(start)
    metadata = {"name": name_of(start.name)}
    if options.namespace is not None:
        metadata["namespace"] = options.namespace
    spec: dict[str, Any] = {
        "entrypoint": _entrypoint(start, options),
        "shutdownAfterJobFinishes": True,
        "backoffLimit": 0,
    }
    if options.deadline is not None:
        spec["activeDeadlineSeconds"] = options.deadline
    cluster: dict[str, Any] = {
        "rayVersion": options.ray_version,
        "authOptions": {"mode": "token"},  # KubeRay makes the token, as a Secret
        "headGroupSpec": {
            "rayStartParams": {"dashboard-host": "0.0.0.0", **_ray_parameters(head.shape, start)},
            "template": _pod("ray-head", head, start, options),
        },
    }
    if workers:
        cluster["workerGroupSpecs"] = [_worker_group(one, start, options) for one in workers]
    spec["rayClusterSpec"] = cluster
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata, "spec": spec}


def ray_job_text(start: JobStart, options: KubernetesOptions) -> str:
    text: str = yaml.safe_dump(ray_job(start, options), sort_keys=False, width=1000)
    return f"# Written by `roost up kubernetes`, from plan {start.plan.short_digest}.\n{text}"


def name_of(text: str) -> str:
    """The text as a name that Kubernetes allows."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    # KubeRay adds to the name of a job, and a label may not be longer than a name.
    return (name if name[:1].isalpha() else f"job-{name}")[: _NO_MORE_THAN - 16].strip("-")


def _pod_groups(start: JobStart) -> tuple[ShapedNodes, ...]:
    """Node 0, which is the head, and then the other nodes by shape."""
    head = ShapedNodes(shape=start.shape_of(start.nodes[0]), ranks=(0,))
    others = (replace(one, ranks=tuple(filter(None, one.ranks))) for one in start.shapes())
    return (head, *(one for one in others if one.ranks))


def _entrypoint(start: JobStart, options: KubernetesOptions) -> str:
    command = start.waiting_command
    return f"cd {shlex.quote(options.workdir)} && {command}" if options.workdir else command


def _worker_group(group: ShapedNodes, start: JobStart, options: KubernetesOptions) -> dict[str, Any]:
    count = len(group.ranks)
    return {
        "groupName": name_of(f"nodes-{group.ranks[0]}-{group.shape.name}"),
        "replicas": count,
        "minReplicas": count,
        "maxReplicas": count,
        "rayStartParams": _ray_parameters(group.shape, start),
        "template": _pod("ray-worker", group, start, options),
    }


def _ray_parameters(shape: NodeShape, start: JobStart) -> dict[str, str]:
    parameters = ray_resources(shape, start.declare)
    if "resources" in parameters:  # KubeRay pastes the value into a shell command
        parameters["resources"] = shlex.quote(parameters["resources"])
    return parameters


def _pod(container: str, group: ShapedNodes, start: JobStart, options: KubernetesOptions) -> dict[str, Any]:
    shape = group.shape
    variables = {"ROOST_NODE_RANK": ranges(group.ranks), **node_variables(shape, start.declare)}
    asked = _asked(shape, options)
    # Ray's object store is in shared memory, which is 64 MiB in a container that does not ask for more.
    spec: dict[str, Any] = {
        "containers": [
            {
                "name": container,
                "image": options.image,
                "env": [{"name": name, "value": value} for name, value in variables.items()],
                "resources": {"requests": dict(asked), "limits": dict(asked)},
                "volumeMounts": [{"name": "shared-memory", "mountPath": "/dev/shm"}],
            }
        ],
        "volumes": [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}],
    }
    labels = dict(one.partition("=")[::2] for one in shape.selections)
    if shape.host:
        labels["kubernetes.io/hostname"] = shape.host
    if labels:
        spec["nodeSelector"] = labels
    return {"spec": spec}


def _asked(shape: NodeShape, options: KubernetesOptions) -> dict[str, str]:
    held = shape.accelerators
    asked = {"cpu": str(shape.cpus if shape.cpus is not None else max(_DEFAULT_CPUS, held.count))}
    if options.memory is not None:
        asked["memory"] = options.memory
    if held.count:
        name = {**RESOURCES, **options.resources}.get(held.type)
        if name is None:
            what = f"nothing says what Kubernetes calls accelerators of the type {held.type!r}"
            remedy = f"give its resource: --resource {held.type}=vendor.com/name"
            raise ConfigurationError(code="RI101", what=what, remedy=remedy)
        asked[name] = str(held.count)
    return asked
