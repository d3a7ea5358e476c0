"""Reads the parallel sizes of a job's models from its sections."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from roost.config.document import Document, Findings
from roost.errors import shown

INFERENCE_NAMES = ("inference", "actor_inference")


@dataclass(frozen=True, slots=True)
class ParallelSizes:
    tp: int = 1
    pp: int = 1
    cp: int = 1

    @property
    def width(self) -> int:
        return self.tp * self.pp * self.cp

    def __str__(self) -> str:
        context = f" x CP {self.cp}" if self.cp > 1 else ""
        return f"TP {self.tp} x PP {self.pp}{context}"


@dataclass(slots=True)
class SizeReader:
    """Reads the sizes of components, and collects their problems."""

    document: Document
    findings: Findings
    _read: dict[tuple[str, ...], int | None] = field(default_factory=dict)

    def of(self, name: str) -> ParallelSizes:
        if name == "rollout":
            return ParallelSizes(
                self._size("rollout", "tensor_parallel_size") or 1,
                self._size("rollout", "pipeline_parallel_size") or 1,
            )
        section = "inference" if name in INFERENCE_NAMES else name
        model = ParallelSizes(
            self._size(section, "model", "tensor_model_parallel_size") or 1,
            self._size(section, "model", "pipeline_model_parallel_size") or 1,
            self._size(section, "model", "context_parallel_size") or 1,
        )
        if section == "inference" and not isinstance(self.document.data.get("inference"), dict):
            actor = self.of("actor")
            return ParallelSizes(actor.tp, actor.pp)
        if section == "critic_inference":
            return self.of("critic")
        return ParallelSizes() if section == "reward" else model

    def _size(self, *path: str) -> int | None:
        if path not in self._read:  # other components read the actor's sizes too
            self._read[path] = self._read_one(path)
        return self._read[path]

    def _read_one(self, path: tuple[str, ...]) -> int | None:
        value: Any = self.document.data
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        if value is None:
            return None
        if isinstance(value, str) and len(value) < 10 and value.isascii() and value.isdecimal():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= 1_000_000:
            what = f"{'.'.join(path)} must be a whole number of at least 1, not {shown(value)}"
            self.findings.add("RM104", what, path, remedy="write a number, such as 2")
            return 1
        return value
