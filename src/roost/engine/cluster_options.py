"""What a program asks of a cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roost.config.document import Document, load
from roost.config.fields import NAME, NAME_RULE
from roost.config.schema import OLDER_KEYS, ClusterConfig, validate
from roost.errors import ClusterError, ConfigurationError, counted, error_for, errors_in, render
from roost.inventory.inventory import Inventory

log = logging.getLogger("roost")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """What the driver of a job asks for."""

    num_nodes: int | None = None
    config: ClusterConfig | None = None
    document: Document | None = None
    reported: bool = False  # whether the reader of the document has reported its warnings
    address: str | None = None
    job: str | None = None
    timeout: float = 300.0
    whole_nodes: bool = False
    inline: bool | None = None  # None: not said
    shape: str = ""  # of an inline cluster


def options_of(
    num_nodes: Any, cluster_cfg: Any, inline: bool | str | None = None, **options: Any
) -> ClusterOptions:
    """The options of a program. Those that need no reading are fields of `ClusterOptions`."""
    config, document = _cluster_section(cluster_cfg) if cluster_cfg is not None else (None, None)
    return ClusterOptions(
        num_nodes=_checked_count(num_nodes) or (config.num_nodes if config else None),
        config=config,
        document=document,
        reported=isinstance(cluster_cfg, Document),
        inline=None if inline is None and "ROOST_INLINE" not in os.environ else wants_inline(inline),
        shape=inline if isinstance(inline, str) else os.environ.get("ROOST_INLINE", ""),
        **options,
    )


def checked_job_name(name: str) -> str:
    """Job names become names of folders and of Ray namespaces."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ClusterError(
            code="RE115",
            what=f"{name!r} is not a job name"[:200],
            remedy=NAME_RULE,
        )
    return name


def contradictions(asked: ClusterOptions, made: ClusterOptions, address: str, num_nodes: int) -> list[str]:
    """What is asked for that the cluster of this process, made with other options, is not."""
    found = []
    if asked.inline is not None and asked.inline != bool(made.inline):
        found.append(f"it runs {'inline' if made.inline else 'on Ray'}")
    if made.inline and "x" in asked.shape and asked.shape != made.shape:
        found.append(f"it has the shape {made.shape or 'of its nodes'}, not {asked.shape}")
    if asked.address not in (None, "auto", made.address, address):
        found.append(f"it is on the Ray at {address}, not at {asked.address}")
    if (asked.num_nodes or 0) > num_nodes:
        found.append(f"it has {counted(num_nodes, 'node')}, not {asked.num_nodes}")
    wanted, known = ((one.config and one.config.node_groups) or [] for one in (asked, made))
    if wanted and wanted != known:
        found.append("it has other node groups" if known else "it was made without node groups")
    if asked.whole_nodes and not made.whole_nodes:
        found.append("it holds only the accelerators it uses, not whole nodes")
    return found


def wants_inline(inline: bool | str | None) -> bool:
    """Whether everything is to happen in this process: asked for, or by ROOST_INLINE."""
    return bool(inline) or (
        inline is None and os.environ.get("ROOST_INLINE", "0").lower() not in ("", "0", "false")
    )


def with_groups(inventory: Inventory, options: ClusterOptions) -> Inventory:
    """The inventory with the node groups of the options' config."""
    if options.config is None or options.document is None or not options.config.node_groups:
        return inventory
    grouped, findings = inventory.with_groups(options.config.node_groups, options.document)
    if errors_in(findings):
        raise error_for(findings)
    if findings and not options.reported:
        log.warning("%s", render(findings))
    return grouped


def _checked_count(num_nodes: Any) -> int | None:
    """A whole number of at least one, or None."""
    if num_nodes is None or (
        isinstance(num_nodes, int) and not isinstance(num_nodes, bool) and num_nodes >= 1
    ):
        return num_nodes
    raise ConfigurationError(
        code="RC104", what=f"num_nodes must be a whole number of at least 1, not {num_nodes!r}"[:200]
    )


def _cluster_section(cluster_cfg: Any) -> tuple[ClusterConfig, Document]:
    """`cfg.cluster`, or a whole config that has one."""
    whole = not isinstance(cluster_cfg, Mapping) or "cluster" in cluster_cfg
    document = load(cluster_cfg, inside=() if whole else ("cluster",))
    section = document.data.get("cluster")
    config, findings = validate(ClusterConfig, section, document, ("cluster",), OLDER_KEYS)
    if config is None:
        raise error_for(findings)
    if findings and not isinstance(cluster_cfg, Document):  # a document's reader has reported them
        log.warning("%s", render(findings))
    return config, document
