"""Finds misspelt names of a known set among the many names that a program has of its own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import islice

from roost.errors import Finding, Path

# Another resource than the one a layout counts is no slip: `num_cpus_per_actor` is a flag of its own.
_OTHER_RESOURCES = frozenset(("cpu", "cpus", "npu", "npus", "tpu", "tpus"))
_SEPARATOR = re.compile("[_-]+")
_MOST_NAMES = 5_000  # a program has some hundreds
_LONGEST = 64


def misspelt(
    names: Iterable[str], known: Collection[str], reordered: Collection[str] = (), path: Path = ()
) -> list[Finding]:
    """A warning for each name that is probably a misspelt known name.

    A name counts as misspelt if few letters are wrong, or if it has the words of one of `reordered` in another
    order or without `num`.
    """
    found = []
    by_words = {_words(name): name for name in reordered}
    for name in islice(names, _MOST_NAMES):
        meant = _meant(name, known, by_words)
        if meant is not None:
            remedy = "correct it, or ignore this if the name is your own"
            what = f"{name!r} is not read, and looks like a misspelt {meant!r}"
            found.append(Finding(code="RW110", what=what, remedy=remedy, path=(*path, name)))
    return found


def _meant(name: str, known: Collection[str], by_words: Mapping[tuple[str, ...], str]) -> str | None:
    if name in known or len(name) > _LONGEST:
        return None
    words = _words(name)
    if _OTHER_RESOURCES.intersection(words):
        return None
    return by_words.get(words) or next((other for other in known if _is_slip(name, other)), None)


def _words(name: str) -> tuple[str, ...]:
    return tuple(sorted(word for word in _SEPARATOR.split(name.lower()) if word != "num"))


def _is_slip(name: str, known: str) -> bool:
    """Whether at most two letters are wrong; one in a name under 12 letters, none under 6: short names are similar."""
    most = 2 if len(known) >= 12 else 1 if len(known) >= 6 else 0
    if abs(len(name) - len(known)) > most:
        return False
    letters = Counter(name)
    letters.subtract(known)
    if sum(map(abs, letters.values())) > 2 * most:  # a cheap check that rules out nearly all names
        return False
    return _distance(name, known) <= most


def _distance(one: str, other: str) -> int:
    """How many letters must be added, removed, replaced or swapped with the next to make one name the other."""
    rows = [list(range(len(other) + 1))]
    for i, letter in enumerate(one):
        row = [i + 1]
        for j, wanted in enumerate(other):
            cost = min(rows[i][j + 1] + 1, row[j] + 1, rows[i][j] + (letter != wanted))
            if i and j and letter == other[j - 1] and wanted == one[i - 1]:
                cost = min(cost, rows[i - 1][j - 1] + 1)
            row.append(cost)
        rows.append(row)
    return rows[-1][-1]
