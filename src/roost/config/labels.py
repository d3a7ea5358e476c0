"""The labels of node groups in a placement rule or a layout."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from roost.config.document import Document
from roost.errors import Finding, Path, nearest

_NODES_IN_OTHER_WORDS = ("cpu", "cpus", "host", "hosts", "nodes", "bare")


def split_labels(value: Any) -> tuple[str, ...]:
    """The labels in `a`, `a,b` or `[a, b]`; a number is a label too."""
    if value is None:
        return ()
    items = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    return tuple(part.strip() for item in items for part in str(item).split(",") if part.strip())


def known_groups(label: str, known: Collection[str]) -> str:
    """The remedy for an unknown label: a similar one, and the known ones."""
    bare = "; `node` counts nodes without their accelerators"
    return nearest(label, known) + bare * (label.lower() in _NODES_IN_OTHER_WORDS)


def label_problems(
    subject: str, written: Any, known: Collection[str], document: Document, path: Path
) -> list[Finding]:
    """Problems of a written `node_group`. An empty `known` means that any label may exist."""
    labels = split_labels(written)
    if not labels:
        remedy = "name one, or leave node_group out to use the whole cluster"
        return [document.finding("RI103", f"{subject}: node_group names no group", path, remedy=remedy)]
    findings = [
        document.finding(
            "RI103",
            f"{subject}: unknown node group {label!r}",
            (*path, *index),
            remedy=known_groups(label, known),
            part=None if index else (max(0, str(written).find(label)), len(label)),
        )
        for index, label in _each_label(written)
        if known and label not in known
    ]
    if len(set(labels)) < len(labels):
        what, why = f"{subject}: a node group is named twice", "its resources would be counted twice"
        findings.append(document.finding("RP107", what, path, why=why, remedy="name each group once"))
    return findings


def _each_label(value: Any) -> list[tuple[Path, str]]:
    """The labels, each with its index if the job lists them."""
    if not isinstance(value, list):
        return [((), label) for label in split_labels(value)]
    return [((index,), label) for index, item in enumerate(value) for label in split_labels(item)]
