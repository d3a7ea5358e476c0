"""Reads a file of servers, in which programs list their rollout engines beside the flags of a layout.

The file is a list of servers, or a mapping with that list under `sglang`. Other keys belong to the engines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any

from pydantic import BaseModel, ConfigDict

from roost.config.document import Document
from roost.config.fields import Count, NonEmptyTuple, NonNegativeInt, Text
from roost.config.layout_section import EngineGroup, Server
from roost.config.misspelt_flags import misspelt
from roost.config.schema import validate
from roost.config.text_files import read_text
from roost.config.yaml_text import MAX_BYTES, Positions, read_yaml
from roost.errors import ConfigurationError, Finding, Path, error_for, errors_in

ROOT = "sglang"
_GROUPS = ("server_groups", "engine_groups")
# Our names of keys, and the file's.
_IN_FILE = {"kind": "worker_type", "gpus_per_engine": "num_gpus_per_engine"}


class _Open(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


class WrittenGroup(_Open):
    worker_type: Text = "regular"
    num_gpus: NonNegativeInt
    num_gpus_per_engine: Count | None = None


class WrittenServer(_Open):
    name: Text
    num_gpus_per_engine: Count | None = None
    server_groups: NonEmptyTuple[WrittenGroup] | None = None
    engine_groups: NonEmptyTuple[WrittenGroup] | None = None

    def server(self) -> Server:
        groups = self.server_groups or self.engine_groups or ()
        return Server(name=self.name, groups=tuple(map(self._group, groups)))

    def _group(self, group: WrittenGroup) -> EngineGroup:
        # A placeholder runs no engines, so it does not take the width of the server's engines.
        usual = None if group.worker_type == "placeholder" else self.num_gpus_per_engine
        width = group.num_gpus_per_engine or usual
        return EngineGroup(kind=group.worker_type, num_gpus=group.num_gpus, gpus_per_engine=width)


class WrittenServers(_Open):
    sglang: NonEmptyTuple[WrittenServer]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFile:
    document: Document
    servers: tuple[Server, ...]
    warnings: tuple[Finding, ...]

    def located(self, finding: Finding, place: Path) -> Finding:
        """The finding about servers of a layout (at `place`) as a finding about this file."""
        if finding.path[: len(place)] != place:
            return finding
        steps: list[str | int] = [ROOT]
        for step in finding.path[len(place) :]:
            if step == "groups":
                step = next(key for key in _GROUPS if self.document.data[ROOT][steps[1]].get(key))
            steps.append(_IN_FILE.get(str(step), step))
        why, remedy = finding.why, finding.remedy.replace(" gpus_per_engine", " num_gpus_per_engine")
        return self.document.finding(finding.code, finding.what, tuple(steps), why=why, remedy=remedy)


def read_server_file(path: str) -> ServerFile:
    """The servers of a file. One error reports all problems, with their positions."""
    document = _document(path)
    written, findings = validate(WrittenServers, document.data, document, ())
    findings += _group_problems(document)
    findings += (replace(one, where=document.key_span(one.path)) for one in _misspelt(document))
    if written is None or errors_in(findings):
        raise error_for(findings)
    servers = tuple(one.server() for one in written.sglang)
    return ServerFile(document=document, servers=servers, warnings=tuple(findings))


def _document(path: str) -> Document:
    data, positions = read_yaml(read_text(FilePath(path), MAX_BYTES), path)
    if isinstance(data, list):
        tables = ({(ROOT, *at): known for at, known in table.items()} for table in positions.tables)
        return Document({ROOT: data}, path, Positions(*tables))
    if isinstance(data, dict) or data is None:
        return Document(data or {}, path, positions)
    what, remedy = "a file of servers is a list of them", f"start with `{ROOT}:` and a list under it"
    raise ConfigurationError(code="RC103", what=what, where=positions.values.get(()), remedy=remedy)


def _servers(document: Document) -> Iterator[tuple[Path, dict[str, Any]]]:
    listed = document.data.get(ROOT)
    for index, server in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(server, dict):
            yield (ROOT, index), server


def _group_problems(document: Document) -> Iterator[Finding]:
    for path, server in _servers(document):
        given = [key for key in _GROUPS if server.get(key) is not None]
        if not given:
            what, remedy = "a server without groups of engines", "add `server_groups: [{num_gpus: 8}]`"
            yield document.finding("RC102", what, path, remedy=remedy)
        elif len(given) == 2:
            what, remedy = "server_groups and engine_groups are the same, and both given", "keep one of them"
            yield document.finding("RC104", what, (*path, given[1]), key=True, remedy=remedy)


def _misspelt(document: Document) -> Iterator[Finding]:
    for path, server in _servers(document):
        yield from misspelt(map(str, server), WrittenServer.model_fields, path=path)
        for key in _GROUPS:
            groups = server.get(key)
            for number, group in enumerate(groups if isinstance(groups, list) else ()):
                if isinstance(group, dict):
                    yield from misspelt(map(str, group), WrittenGroup.model_fields, path=(*path, key, number))
