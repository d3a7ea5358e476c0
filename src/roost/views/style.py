"""How components look in a terminal: each has one letter and one colour, in the map and in the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from string import ascii_letters, ascii_lowercase, ascii_uppercase

from rich.text import Text

from roost.planning.held import State

Fragments = tuple[tuple[str, str], ...]  # text, and the component it is about ("" for none)

# Stands for a space at which no line is broken. Rich breaks lines at no-break spaces too, so the drawn text has
# this character, and the renderer replaces it at the end.
KEEP = "\ue000"
_COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")


@dataclass(frozen=True, slots=True)
class Style:
    letters: dict[str, str]
    colours: dict[str, str]
    idle: str = "·"
    wall: str = "│"

    @property
    def unused(self) -> dict[State, str]:
        """The cells of accelerators without a component."""
        return {"idle": self.idle, "held": "#", "perhaps held": "?"}

    @classmethod
    def of(cls, names: Iterable[str], ascii_only: bool = False) -> Style:
        given = letters(names)
        colours = {
            name: ("bold " if index < len(_COLOURS) else "") + _COLOURS[index % len(_COLOURS)]
            for index, name in enumerate(given)
        }
        return cls(given, colours, ".", "|") if ascii_only else cls(given, colours)

    def text(self, fragments: Fragments) -> Text:
        text = Text()
        for piece, name in fragments:
            nobody = piece in (self.idle, *self.unused.values())
            text.append(piece, self.colours.get(name, "dim" if nobody else ""))
        return text


def letters(names: Iterable[str]) -> dict[str, str]:
    """A letter for each component: its initial if free, or else another letter of its name, or else any.

    The initial of `rollout.prefill` is P. Once all 52 letters are taken, components get two letters.
    """
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
    """`prefill` of `rollout.prefill`."""
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
    """The text without control characters: names come from files and must not control the terminal."""
    return "".join(ch if ch.isprintable() else "\N{REPLACEMENT CHARACTER}" for ch in text)
