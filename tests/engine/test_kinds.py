"""Nodes with accelerators of other makers."""

from __future__ import annotations

import pytest
from running import Program

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_nvidia_amd_and_ascend_each_by_their_own_variable() -> None:
    program = Program("kinds", env={"RAY_ADDRESS": None})
    said = program.answer(within=180)
    assert program.end() == 0
    assert said["no job"] == ["RE106"]
    assert said["types"] == ["nvidia_gpu", "amd_gpu", "ascend_npu", "none"]
    assert said["counts"] == [2, 2, 3, 0]
    nothing = {"CUDA_VISIBLE_DEVICES": None, "HIP_VISIBLE_DEVICES": None, "ASCEND_RT_VISIBLE_DEVICES": None}
    for seen, name, devices in zip(
        said["seen"],
        ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"],
        ["1", "0", "1", "1,2"],
        strict=True,
    ):
        assert seen[name] == devices
        assert {other: seen[other] or None for other in nothing if other != name} == {
            other: None for other in nothing if other != name
        }
    assert said["bare"] == [nothing]
    assert "RI101" not in program.output
