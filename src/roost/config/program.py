"""The program of a job file: `workers`, the class of each component, and `driver`, the function that roost calls."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any

from omegaconf import DictConfig, OmegaConf
from pydantic import AfterValidator, Field, Tag
from pydantic_core import PydanticCustomError

from roost.config.document import Document, Findings
from roost.config.fields import Section, by_kind, names_in
from roost.config.interpolation import resolve
from roost.config.job import Job, read_job
from roost.config.schema import validate
from roost.errors import ConfigurationError, Finding, Path, errors_in, first_line, nearest, shown

SECTIONS = ("workers", "driver")
EXAMPLE = "write `workers: {actor: {class: my.module:Actor}, ...}`, and `driver: my.module:main`"
_IMPORT_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_DOTTED = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*)\.([^\W\d]\w*)")
_NUMBER = re.compile(r"[-+]?(0x[0-9a-fA-F_]+|0b[01_]+|[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?)")


def _import_path(text: str) -> str:
    if _IMPORT_PATH.fullmatch(text):
        return text
    dotted = _DOTTED.fullmatch(text)
    example = f"{dotted[1]}:{dotted[2]}" if dotted else "my.module:Name"
    raise PydanticCustomError("import_path", f"it should be a module and a name in it: {example}")  # type: ignore[arg-type]


ImportPath = Annotated[str, AfterValidator(_import_path)]


class WorkerSection(Section):
    import_path: ImportPath = Field(alias="class", description="module:Class, a subclass of roost.Worker")
    args: dict[str, Any] | None = Field(None, description="arguments of the class, by name")


WrittenWorker = Annotated[
    Annotated[ImportPath, Tag("text")] | Annotated[WorkerSection, Tag("rule")], by_kind(dict, "rule", "text")
]


class ProgramSections(Section):
    workers: dict[str, WrittenWorker]
    driver: ImportPath | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerClass:
    """The class that runs as a component, and its arguments."""

    import_path: str
    args: Mapping[str, Any] = field(default_factory=dict, repr=False)  # may hold secrets
    path: Path  # of the import path in the job
    key: Path  # of the entry in the job


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    workers: Mapping[str, WorkerClass]  # by component
    driver: str | None = None


def has_program(document: Document) -> bool:
    """Whether the job file has a program for roost. Training code may have a section `workers` too."""
    workers = document.data.get("workers")
    if not isinstance(workers, dict):
        return False
    named = any(isinstance(entry, dict) and "class" in entry for entry in workers.values())
    return named or isinstance(document.data.get("driver"), str)


def read_program(document: Document) -> tuple[Program | None, list[Finding]]:
    """The program of a job file, or all its problems."""
    written = document.data.get("workers")
    if not isinstance(written, dict):
        finding = Finding(code="RC102", what="`workers` is missing", path=("workers",), remedy=EXAMPLE)
        if "workers" in document.data:
            what = "`workers` must be a mapping of components to classes"
            finding = document.finding("RC103", what, ("workers",), remedy=EXAMPLE)
        return None, [finding]
    try:
        data, positions = resolve(
            with_numbers(document), document.positions, sections=SECTIONS, needed=SECTIONS
        )
    except ConfigurationError as error:
        return None, list(error.findings)
    document = Document(data, document.name, positions)
    mine = {name: data[name] for name in SECTIONS if name in data}
    sections, findings = validate(ProgramSections, mine, document, ())
    if sections is None:
        return None, findings
    workers: dict[str, WorkerClass] = {}
    for key, entry in sections.workers.items():
        place: Path = ("workers", key)
        for name in names_in(key):
            if name in workers:
                what = f"component {name!r} has two workers"
                why = f"the other is under {workers[name].key[1]!r}"
                findings.add("RC106", what, place, key=True, why=why, remedy="keep one of them")
            elif isinstance(entry, WorkerSection):
                path, args = (*place, "class"), entry.args or {}
                workers[name] = WorkerClass(import_path=entry.import_path, args=args, path=path, key=place)
            else:
                workers[name] = WorkerClass(import_path=entry, path=place, key=place)
    return Program(workers=workers, driver=sections.driver), findings


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """The components that workers may be written for."""

    running: Sequence[str]
    placeholders: Collection[str] = ()
    others: Collection[str] = ()  # roles of a layout, including those that do not run in its mode

    @staticmethod
    def of(job: Job) -> Roles:
        layout = job.layout
        if layout is None:
            return Roles(running=list(job.rules))
        held = [part.component for part in layout.engine_groups() if part.kind == "placeholder"]
        names = [name for name in (*layout.components, *job.rules) if name not in held]
        return Roles(running=names, placeholders=held, others=layout.roles)


def unmatched(
    program: Program, roles: Roles, document: Document, skip: Collection[str] = ()
) -> list[Finding]:
    """Components without workers, and workers without a component."""
    both = f"the job has {_listed(roles.running)}; workers are given for {_listed(program.workers)}"
    findings = Findings(document)
    for name in roles.running:
        if name not in program.workers and name not in skip:
            entry = f"{name}: {{class: my.module:{_class_name(name)}}}"
            remedy = f"add `{entry}` under `workers`, or launch with --skip {name}"
            what = f"no worker for component {name!r}"
            findings.add("RE122", what, ("workers",), key=True, why=both, remedy=remedy)
    for name, worker in program.workers.items():
        if name in roles.placeholders:
            what, why = f"component {name!r} is a placeholder and runs nothing", ""
            remedy = "remove its worker"
        elif name not in roles.running and name not in roles.others:
            what, why, remedy = f"there is no component {shown(name)}", both, nearest(name, roles.running)
        else:
            continue
        findings.add("RE122", what, worker.key, key=True, why=why, remedy=remedy)
    return findings


def program_problems(document: Document) -> list[Finding]:
    """Problems of the program of a job file, if it has one."""
    if not has_program(document):
        return []
    program, findings = read_program(document)
    job, problems = read_job(document)
    if program is None or errors_in(problems):
        return findings
    return [*findings, *unmatched(program, Roles.of(job), document)]


def _listed(names: Collection[str]) -> str:
    return ", ".join(names) or "none"


def _class_name(component: str) -> str:
    return "".join(part.title() for part in re.split(r"[._-]", component))


def driver_config(document: Document) -> DictConfig:
    """The whole configuration as Hydra would pass it: interpolations resolve when they are read."""
    try:
        return OmegaConf.create(with_numbers(document))
    except Exception as error:  # a text that only looks like an interpolation
        what = f"{document.name}: OmegaConf refuses this configuration"
        remedy = "write \\${ where no interpolation is meant"
        raise ConfigurationError(code="RC006", what=what, why=first_line(error), remedy=remedy) from None


def with_numbers(document: Document) -> dict[str, Any]:
    """The data with `1_000` and `0x1f` as numbers outside `cluster`, where training code expects them."""
    texts = document.positions.texts

    def read(value: Any, path: Path) -> Any:
        if isinstance(value, dict):
            return {key: read(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [read(item, (*path, index)) for index, item in enumerate(value)]
        if isinstance(value, str) and texts.get(path) == value and _NUMBER.fullmatch(value):
            with suppress(ValueError):  # `0x_`, or thousands of digits
                return OmegaConf.create(f"number: {value}").number
        return value

    return {key: value if key == "cluster" else read(value, (key,)) for key, value in document.data.items()}
