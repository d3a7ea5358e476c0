"""The kinds of accelerators, each with the environment variable that limits which ones a process sees."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from roost.errors import ConfigurationError, nearest


class AcceleratorType(str, Enum):
    """Names of the built-in kinds. Registered ones are plain text."""

    NV_GPU = "nvidia_gpu"
    AMD_GPU = "amd_gpu"
    ASCEND_NPU = "ascend_npu"
    INTEL_GPU = "intel_gpu"
    MUSA_GPU = "musa_gpu"
    KUNLUN_XPU = "kunlun_xpu"
    NO_ACCEL = "none"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorKind:
    name: str
    visible_variable: str
    ray_resource: str = "GPU"
    visible_prefix: str = ""  # the text before the numbers in the variable

    def visible(self, numbers: Iterable[str]) -> dict[str, str]:
        """The variable that shows a process these accelerators only."""
        return {self.visible_variable: self.visible_prefix + ",".join(numbers)}


_KINDS: dict[str, AcceleratorKind] = {}


def register_accelerator(
    name: str, *, visible_variable: str, ray_resource: str = "GPU", visible_prefix: str = ""
) -> AcceleratorKind:
    """Register a further kind of accelerator."""
    kind = AcceleratorKind(
        name=name, visible_variable=visible_variable, ray_resource=ray_resource, visible_prefix=visible_prefix
    )
    if _KINDS.get(name, kind) != kind:
        raise ConfigurationError(code="RI101", what=f"accelerator {name!r} is already registered differently")
    _KINDS[name] = kind
    return kind


def known_accelerators() -> tuple[AcceleratorKind, ...]:
    """All kinds, the built-in ones first."""
    return tuple(_KINDS.values())


def accelerator_kind(name: str) -> AcceleratorKind:
    if name not in _KINDS:
        remedy = f"{nearest(name, _KINDS)}; or register it with roost.register_accelerator"
        raise ConfigurationError(code="RI101", what=f"unknown accelerator type {name!r}", remedy=remedy)
    return _KINDS[name]


register_accelerator(AcceleratorType.NV_GPU.value, visible_variable="CUDA_VISIBLE_DEVICES")
register_accelerator(AcceleratorType.AMD_GPU.value, visible_variable="HIP_VISIBLE_DEVICES")
register_accelerator(
    AcceleratorType.ASCEND_NPU.value, visible_variable="ASCEND_RT_VISIBLE_DEVICES", ray_resource="NPU"
)
register_accelerator(
    AcceleratorType.INTEL_GPU.value, visible_variable="ONEAPI_DEVICE_SELECTOR", visible_prefix="level_zero:"
)
register_accelerator(AcceleratorType.MUSA_GPU.value, visible_variable="MUSA_VISIBLE_DEVICES")
register_accelerator(AcceleratorType.KUNLUN_XPU.value, visible_variable="XPU_VISIBLE_DEVICES")
