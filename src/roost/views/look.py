"""How components look: one letter and one colour each, the same in the map and in the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from string import ascii_letters, ascii_lowercase, ascii_uppercase

from rich.text import Text

Fragments = tuple[tuple[str, str], ...]  # text, and the component it is about ("" for none)

# A space no line is broken at: rich breaks at a no-break space too, so this one is exchanged when all is drawn.
KEEP = "\ue000"
_COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")


@dataclass(frozen=True, slots=True)
class Look:
    letters: dict[str, str]
    styles: dict[str, str]
    idle: str = "·"
    wall: str = "│"

    @classmethod
    def of(cls, names: Iterable[str], ascii_only: bool = False) -> Look:
        given = letters(names)
        styles = {
            name: ("bold " if index < len(_COLOURS) else "") + _COLOURS[index % len(_COLOURS)]
            for index, name in enumerate(given)
        }
        return cls(given, styles, ".", "|") if ascii_only else cls(given, styles)

    def text(self, fragments: Fragments) -> Text:
        text = Text()
        for piece, name in fragments:
            text.append(piece, self.styles.get(name, "dim" if piece == self.idle else ""))
        return text


def letters(names: Iterable[str]) -> dict[str, str]:
    """Initials (of the last part of a dotted name) first, then another letter of the name, then any; two letters once all 52 are taken."""
    given = dict.fromkeys(names, "")
    taken: set[str] = set()
    for name in given:
        initial = _last_part(name)[0].upper()
        if initial in ascii_uppercase and initial not in taken:
            taken.add(initial)
            given[name] = initial
    for name, letter in given.items():
        if not letter:
            given[name] = next(other for other in _candidates(name) if other not in taken)
            taken.add(given[name])
    return given


def _last_part(name: str) -> str:
    """What tells `rollout.prefill` from `rollout.decode`."""
    return name.rpartition(".")[2] or name


def _candidates(name: str) -> Iterator[str]:
    for text in (_last_part(name), name):
        yield from (letter.upper() for letter in text if letter in ascii_letters)
    yield from ascii_uppercase
    yield from ascii_lowercase
    for number in count():
        first, second = divmod(number, 26)
        yield ascii_uppercase[first % 26] * (1 + first // 26) + ascii_lowercase[second]


def printable(text: str) -> str:
    """Host and hardware names come from files: none may carry a terminal's control sequences."""
    return "".join(ch if ch.isprintable() else "\N{REPLACEMENT CHARACTER}" for ch in text)
