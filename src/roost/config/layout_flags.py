"""Reads flags of programs that are not keys of a layout, and warns about misspelt flags."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from roost.config.document import Document
from roost.config.fields import NonNegativeInt, Section, Text
from roost.config.layout_section import EngineGroup, LayoutSection, Server
from roost.config.misspelt_flags import misspelt
from roost.config.plain_data import plain_mapping
from roost.config.schema import validate
from roost.config.server_file import ServerFile, read_server_file
from roost.errors import ConfigurationError, Finding, counted

# The flags of programs for the shares of a role.
SHARE_FLAGS = {"num_gpus_per_actor": "actor", "num_gpus_per_engine": "rollout"}
CRITIC_FLAGS = ("critic_num_nodes", "critic_num_gpus_per_node")
# Keys of a layout whose names are too common among the flags of programs (`accelerator`, `server`, `share`).
_COMMON_WORDS = frozenset(("accelerators", "servers", "shares", "node_group"))


class ServerFlags(Section):
    """The flags that set the engines of the rollout. 0 and an empty text count as not given."""

    prefill_num_servers: NonNegativeInt | None = None
    sglang_config: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFlags:
    """The rollout's engines according to the flags, and the problems of the flags."""

    prefill: int = 0
    file: ServerFile | None = None
    findings: tuple[Finding, ...] = ()


def read_rollout_flags(flag: Callable[[str], Any]) -> RolloutFlags:
    names = tuple(ServerFlags.model_fields)
    try:
        given = plain_mapping({name: flag(name) for name in names}, names, names)
        flags, findings = validate(ServerFlags, given, Document(given), ())
        if flags is None:
            return RolloutFlags(findings=tuple(findings))
        sources = [name for name in names if getattr(flags, name)] + ["servers"] * bool(flag("servers"))
        if len(sources) > 1:
            what = f"{', '.join(sources[:-1])} and {sources[-1]} contradict each other"
            why, path = "each of them says which engines the rollout has", (sources[0],)
            findings.append(Finding(code="RC104", what=what, why=why, remedy="keep one of them", path=path))
        file = read_server_file(flags.sglang_config) if flags.sglang_config else None
    except ConfigurationError as error:
        return RolloutFlags(findings=error.findings)
    return RolloutFlags(prefill=flags.prefill_num_servers or 0, file=file, findings=tuple(findings))


def prefill_servers(count: int, layout: LayoutSection) -> Server | Finding:
    """One server of `count` prefill engines, whose other engines decode; a finding if no engine is left to decode."""
    width, total = layout.rollout_num_gpus_per_engine, layout.num_rollout
    prefill = count * width
    if not total and not layout.mode.serves:
        prefill = 0  # the groups keep their names, without accelerators
    elif prefill >= total:
        engines = total // width
        fewer = f"make it {engines - 1} at most, or " if engines > 1 else ""
        return Finding(
            code="RC104",
            what=f"prefill_num_servers: {counted(count, 'prefill engine')} leave no engine to decode",
            why=f"the rollout has {counted(total, 'accelerator')}, {counted(engines, 'engine')} of {width}",
            remedy=f"{fewer}give the rollout more than {prefill:,} accelerators",
            path=("prefill_num_servers",),
        )
    return Server(
        groups=(
            EngineGroup(kind="prefill", num_gpus=prefill),
            EngineGroup(kind="decode", num_gpus=total - prefill),
        )
    )


def misspelt_flags(args: Any, flag: Callable[[str], Any], keys: Collection[str]) -> list[Finding]:
    """Warnings about flags that look like a misspelt key or flag of a layout. `keys` are the keys of a layout."""
    known = {*keys, *CRITIC_FLAGS, *SHARE_FLAGS, *ServerFlags.model_fields}
    compared = sorted(known - _COMMON_WORDS)
    if isinstance(args, Mapping):
        given = {name: value for name, value in args.items() if isinstance(name, str)}
        names = [name for name, value in given.items() if value is not None and name not in known]
    else:
        names = [name for name in dir(args) if not name.startswith("_") and name not in known]
    found = misspelt(names, compared, [name for name in compared if name not in SHARE_FLAGS])
    values = ((one, flag(str(one.path[0]))) for one in found)
    return [one for one, value in values if value is not None and not callable(value)]  # a method is no flag
