"""The `profile` section of a job that is to be measured, and the profile that the measurements make."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path as FilePath
from statistics import median
from typing import Any

from pydantic import Field

from roost.config.document import Document
from roost.config.fields import Text
from roost.config.schema import validate
from roost.errors import ConfigurationError, error_for, nearest
from roost.suggesting.profile import read_profile
from roost.suggesting.profile_section import ComponentCosts, Flow, Seconds

SECTION = "profile"
Measured = dict[str, dict[int, list[float]]]  # by component and size; size 0: it needs no accelerator


class MeasuringComponent(ComponentCosts):
    seconds: Seconds = 1.0
    calls: list[Text] = Field(default_factory=list)


class MeasuringSection(Flow):
    iteration: Text
    components: dict[str, MeasuringComponent | None] | None = None


def read_section(document: Document, components: Collection[str]) -> dict[str, Any]:
    """What the job file says about measuring it. One error holds all problems of its form."""
    section = document.data.get(SECTION)
    iteration = section.get("iteration") if isinstance(section, dict) else None
    path = (SECTION, "iteration")
    if not isinstance(section, dict) or not isinstance(iteration, str) or iteration.count(".") != 1:
        what = "the job does not say what an iteration is"
        example = "`profile: {iteration: actor.train, batch: 512, flow: {...}}`"
        remedy = f"write {example}: a call that each iteration has once"
        raise ConfigurationError(document.finding("RF105", what, path, key=True, remedy=remedy))
    name = iteration.partition(".")[0]
    if name not in components:
        what = f"profile.iteration: there is no component {name!r}"
        raise ConfigurationError(document.finding("RF105", what, path, remedy=nearest(name, components)))
    _, findings = validate(MeasuringSection, section, document, (SECTION,))
    if findings:
        raise error_for(findings)
    return section


def earlier_profile(path: str | None) -> dict[str, Any]:
    """The profile in a file that is there already, as plain data."""
    if path is None or not FilePath(path).exists():
        return {}
    read = read_profile(path)
    found: dict[str, Any] = read.document.data[SECTION] if read.path else read.document.data
    return found


def about(section: Mapping[str, Any], name: str) -> dict[str, Any]:
    return dict((section.get("components") or {}).get(name) or {})


def by_group(earlier: Mapping[str, Any], name: str) -> bool:
    """Whether an earlier profile has the seconds of a component for each node group."""
    seconds = about(earlier, name).get("seconds")
    return isinstance(seconds, dict) and any(isinstance(table, dict) for table in seconds.values())


def merged_profile(
    section: Mapping[str, Any],
    earlier: Mapping[str, Any],
    measured: Measured,
    widths: Mapping[str, int],
    groups: Mapping[str, str],
) -> dict[str, Any]:
    """The profile as plain data: the earlier one, with the measurements and what the section says.

    `groups` has the node group of each component that runs on one. Of several measurements of one size the middle
    one counts.
    """
    components = dict(earlier.get("components") or {})
    for name, sizes in measured.items():
        before = about(earlier, name)
        seconds: Any = before.get("seconds")
        if 0 in sizes:
            seconds = _rounded(sizes[0])
        elif not by_group(earlier, name):
            seconds = _table(seconds if isinstance(seconds, dict) else {}, sizes)
        elif name in groups:
            seconds = {**seconds, groups[name]: _table(seconds.get(groups[name], {}), sizes)}
        wide = {"accelerators_per_process": widths[name]}
        said = about(section, name)
        said.pop("calls", None)  # it says how to measure
        if widths[name] == 1 and "accelerators_per_process" not in before:
            wide = {}
        components[name] = {**before, "seconds": seconds, **wide, **said}
    kept = {key: value for key, value in section.items() if key not in ("iteration", "components")}
    return {**earlier, **kept, "components": components}


def _table(known: Mapping[Any, float], sizes: Mapping[int, list[float]]) -> dict[int, float]:
    earlier = {int(size): seconds for size, seconds in known.items()}
    new = {
        size: _rounded([*times, *([earlier[size]] if size in earlier else [])])
        for size, times in sizes.items()
    }
    return dict(sorted({**earlier, **new}.items()))


def _rounded(times: list[float]) -> float:
    return float(f"{median(times):.4g}")
