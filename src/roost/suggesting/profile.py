"""Profiles: what each component of a job costs at some sizes, read with every check that needs no cluster."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from roost.config.document import Document, read_file
from roost.config.fields import NAME, NAME_RULE
from roost.config.plain_data import plain_mapping, resolved
from roost.config.schema import validate
from roost.errors import ConfigurationError, Finding, Path, error_for, nearest, shown
from roost.suggesting.profile_section import ComponentSection, ProfileSection

MAX_COMPONENTS = 12  # the search visits up to 3^components pairs of subsets
A_PROFILE = (
    "a profile is a mapping",
    "start with `profile:`, with `batch`, `flow` and `components` under it",
)
_SIZE = re.compile(r"[1-9][0-9]{0,6}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentProfile:
    """`measured` maps sizes to seconds, by node group; the group "" stands for any. Empty: no accelerator."""

    name: str
    measured: Mapping[str, Mapping[int, float]]
    seconds: float  # of a component without accelerators
    width: int
    streams: bool
    switch: float
    memory_gib: float
    resident_gib: float

    @property
    def needs_accelerators(self) -> bool:
        return bool(self.measured)

    def table(self, group: str) -> Mapping[int, float]:
        """The seconds by size on a node group; empty if it was not measured there."""
        return self.measured.get(group) or self.measured.get("") or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    source: str
    to: str
    together: float
    apart: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What was measured of a job, for `suggest` and `simulate`."""

    document: Document
    path: Path  # of the profile in its document
    batch: int
    asynchronous: bool
    components: Mapping[str, ComponentProfile]
    feeds: frozenset[tuple[str, str]]  # (a, b): b needs the output of a
    weights: Weights | None

    def at(self, component: str) -> Path:
        return (*self.path, "components", component)


def read_profile(source: Any) -> Profile:
    """The profile in a path, dict or `DictConfig`, under the key `profile` or alone. One error holds all problems."""
    if isinstance(source, Profile):
        return source
    document = _document(source)
    path: Path = ("profile",) if "profile" in document.data and "components" not in document.data else ()
    section = document.data["profile"] if path else document.data
    if not isinstance(section, dict):
        raise ConfigurationError(document.finding("RC103", A_PROFILE[0], path, remedy=A_PROFILE[1]))
    read, findings = validate(ProfileSection, section, document, path)
    if read is None:  # drop the broken components, and look for more problems in the rest
        read = _sound_part(section, findings, len(path))
    if read is not None:
        checks = _Checks(document, path, read, section)
        findings += [problem for problem in checks.problems() if not _is_said(problem, findings)]
    if findings or read is None:
        raise error_for(findings)
    return checks.profile()


def _document(source: Any) -> Document:
    if isinstance(source, Document):
        return source
    if isinstance(source, (str, os.PathLike)):
        return read_file(FilePath(source), wanted=A_PROFILE)
    source = resolved(source, "the profile")
    if not isinstance(source, Mapping):
        what = f"a profile is a path, a dict or a DictConfig, not {type(source).__name__}"
        raise ConfigurationError(code="RC103", what=what)
    known = ("profile", *(field.alias or name for name, field in ProfileSection.model_fields.items()))
    return Document(plain_mapping(source, known, known))


def _is_said(problem: Finding, findings: list[Finding]) -> bool:
    return any(found.path[: len(problem.path)] == problem.path for found in findings)


def _sound_part(section: dict[str, Any], findings: list[Finding], depth: int) -> ProfileSection | None:
    broken = [found.path[depth:] for found in findings]
    components = section.get("components")
    sound = {key: value for key, value in section.items() if (key,) not in [path[:1] for path in broken]}
    if isinstance(components, dict) and ("components",) not in broken:
        lost = {path[1] for path in broken if path[:1] == ("components",)}
        sound["components"] = {name: part for name, part in components.items() if name not in lost}
    try:
        return ProfileSection.model_validate({"batch": 1, "flow": {}, **sound})
    except ValueError:
        return None


class _Checks:
    """What the schema cannot say: names, cycles, sizes and widths."""

    def __init__(self, document: Document, path: Path, read: ProfileSection, written: dict[str, Any]) -> None:
        self.document, self.path, self.read = document, path, read
        listed = written.get("components")
        self.names = list(listed) if isinstance(listed, dict) else []
        self.flow_written = isinstance(written.get("flow"), dict) and read.flow == written["flow"]

    def finding(self, code: str, what: str, *steps: str | int, **more: Any) -> Finding:
        return self.document.finding(code, what, (*self.path, *steps), **more)

    def problems(self) -> Iterator[Finding]:
        if not 1 <= len(self.names) <= MAX_COMPONENTS:
            what = f"{len(self.names)} components" if self.names else "a profile without components"
            yield self.finding(
                "RC104", what, "components", remedy=f"describe between 1 and {MAX_COMPONENTS} components"
            )
        for name in self.names:
            if not NAME.fullmatch(name):
                what = f"{shown(name)} is not a component name"
                yield self.finding("RC105", what, "components", name, key=True, remedy=NAME_RULE)
        for name, part in self.read.components.items():
            yield from self._sizes(name, part)
        if self.flow_written:
            yield from self._flow()
        yield from self._weights()

    def _sizes(self, name: str, part: ComponentSection) -> Iterator[Finding]:
        at = ("components", name, "seconds")
        if not isinstance(part.seconds, dict):
            return
        tables: list[tuple[tuple[str, ...], Any]] = [((), part.seconds)]
        if part.seconds and all(isinstance(table, dict) for table in part.seconds.values()):
            tables = [((group,), table) for group, table in part.seconds.items()]
        for steps, table in tables:
            if not table:
                remedy = (
                    "write what a batch takes at some sizes, such as {8: 120.0}, or one number of seconds"
                )
                yield self.finding(
                    "RF102", f"{name}: no size was measured", *at, *steps, key=True, remedy=remedy
                )
            for size in table:
                width = part.accelerators_per_process
                if not _SIZE.fullmatch(size):
                    what, remedy = (
                        f"{name}: {shown(size)} is not a number of accelerators",
                        "write a number from 1 to 9999999",
                    )
                elif int(size) % width:
                    what = f"{name}: size {size} is not a multiple of accelerators_per_process, {width}"
                    remedy = f"measure at {max(1, int(size) // width) * width}, or change the width"
                else:
                    continue
                yield self.finding("RF102", what, *at, *steps, size, key=True, remedy=remedy)

    def _flow(self) -> Iterator[Finding]:
        flow = self.read.flow
        for name in self.names:
            if name not in flow:
                remedy = (
                    f"add `{name}: []` to flow, with the components whose output it needs in the brackets"
                )
                yield self.finding("RF101", f"{name} is missing from flow", "flow", key=True, remedy=remedy)
        for name, needs in flow.items():
            if name not in self.names:
                what = f"flow: there is no component {shown(name)}"
                yield self.finding("RF101", what, "flow", name, key=True, remedy=nearest(name, self.names))
            for index, other in enumerate(needs):
                if other == name:
                    what, remedy = f"{name} needs its own output", "remove it from its own list"
                elif other not in self.names:
                    what, remedy = f"{name}: there is no component {shown(other)}", nearest(other, self.names)
                elif other in needs[:index]:
                    what, remedy = f"{name} names {other} twice", "name it once"
                else:
                    continue
                yield self.finding("RF101", what, "flow", name, index, remedy=remedy)
        if cycle := _cycle(flow):
            what = f"flow has a cycle: {' needs '.join([*cycle, cycle[0]])}"
            remedy = "leave out the one that uses the output of the iteration before"
            yield self.finding("RF101", what, "flow", cycle[0], key=True, remedy=remedy)

    def _weights(self) -> Iterator[Finding]:
        weights = self.read.weights
        if weights is None:
            return
        for key, name in (("from", weights.source), ("to", weights.to)):
            if name not in self.names:
                what = f"weights: there is no component {shown(name)}"
                yield self.finding("RF101", what, "weights", key, remedy=nearest(name, self.names))
        if weights.source == weights.to:
            what = f"weights go from {weights.source} to itself"
            yield self.finding("RF101", what, "weights", "to", remedy="name the component that receives them")

    def profile(self) -> Profile:
        weights = self.read.weights
        return Profile(
            document=self.document,
            path=self.path,
            batch=self.read.batch,
            asynchronous=self.read.mode == "async",
            components={name: _component(name, part) for name, part in self.read.components.items()},
            feeds=frozenset((other, name) for name, needs in self.read.flow.items() for other in needs),
            weights=None
            if weights is None
            else Weights(
                source=weights.source, to=weights.to, together=weights.together, apart=weights.apart
            ),
        )


def _cycle(flow: Mapping[str, list[str]]) -> list[str]:
    """The components of one cycle of two or more, each needing the next; empty if there is none."""
    done: set[str] = set()

    def visit(name: str, trail: list[str]) -> list[str]:
        if name in trail:
            return trail[trail.index(name) :]
        if name in done:
            return []
        for other in flow.get(name, ()):
            if other != name and (found := visit(other, [*trail, name])):
                return found
        done.add(name)
        return []

    return next(filter(None, (visit(name, []) for name in flow)), [])


def _component(name: str, part: ComponentSection) -> ComponentProfile:
    seconds = part.seconds
    measured: dict[str, dict[int, float]] = {}
    if isinstance(seconds, dict):
        for group, table in seconds.items():
            if isinstance(table, dict):
                measured[group] = {int(size): value for size, value in table.items()}
            else:
                measured.setdefault("", {})[int(group)] = table
    return ComponentProfile(
        name=name,
        measured={group: dict(sorted(table.items())) for group, table in measured.items()},
        seconds=0.0 if isinstance(seconds, dict) else seconds,
        width=part.accelerators_per_process,
        streams=part.streams,
        switch=part.switch,
        memory_gib=part.memory_gib,
        resident_gib=part.resident_gib,
    )
