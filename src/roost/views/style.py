"""How components look in a terminal: each has one letter and one colour, in the map and in the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, count
from string import ascii_letters, ascii_lowercase, ascii_uppercase

from rich.text import Text

from roost.planning.preflight import State

Fragments = tuple[tuple[str, str], ...]  # text, and the component it is about ("" for none)

# Stands for a space at which no line is broken. Rich breaks lines at no-break spaces too, so the drawn text has
# this character, and the renderer replaces it at the end.
KEEP = "\ue000"
HUES = 10  # colours that pictures can tell apart
_COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")
# Names that many jobs have keep their letter and colour, whatever else is in the plan.
_USUAL = {
    "actor": "A",
    "rollout": "R",
    "env": "E",
    "reward": "W",
    "inference": "I",
    "critic": "C",
    "reference": "F",
    "agent": "G",
}


@dataclass(frozen=True, slots=True)
class Style:
    letters: dict[str, str]
    hues: dict[str, int]  # a number of a colour for each component
    colours: dict[str, str]  # in a terminal
    idle: str = "·"
    wall: str = "│"

    @property
    def unused(self) -> dict[State, str]:
        """The cells of accelerators without a component."""
        return {"idle": self.idle, "held": "#", "perhaps held": "?"}

    @classmethod
    def of(cls, names: Iterable[str], ascii_only: bool = False) -> Style:
        given = letters(names)
        numbers = hues(given)
        colours = {
            name: ("bold " if number < len(_COLOURS) else "") + _COLOURS[number % len(_COLOURS)]
            for name, number in numbers.items()
        }
        return cls(given, numbers, colours, ".", "|") if ascii_only else cls(given, numbers, colours)

    def text(self, fragments: Fragments) -> Text:
        text = Text()
        for piece, name in fragments:
            nobody = piece in self.unused.values()
            text.append(piece, self.colours.get(name, "dim" if nobody else ""))
        return text


def letters(names: Iterable[str]) -> dict[str, str]:
    """A letter for each component: its initial if free, or else another letter of its name, or else any.

    The letters do not depend on the order of the components. The initial of `rollout.prefill` is P. Once all letters
    are taken, components get two.
    """
    given = dict.fromkeys(names, "")
    given.update((name, _USUAL[name]) for name in given if name in _USUAL)
    taken = set(_USUAL.values())
    others = sorted(name for name, letter in given.items() if not letter)
    for name in others:
        initial = _last_part(name)[0].upper()
        if initial in ascii_uppercase and initial not in taken:
            taken.add(initial)
            given[name] = initial
    for name in others:
        if not given[name]:
            given[name] = next(other for other in _candidates(name) if other not in taken)
            taken.add(given[name])
    return given


def hues(names: Iterable[str]) -> dict[str, int]:
    """A number for each component, in the order of the components: usual names have their own."""
    usual = {name: number for number, name in enumerate(_USUAL)}
    given = {name: usual.get(name, -1) for name in names}
    free = chain(
        range(len(usual), HUES), (number for name, number in usual.items() if name not in given), count(HUES)
    )
    for name in sorted(name for name, number in given.items() if number < 0):
        given[name] = next(free)
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
    return text if text.isprintable() else "".join(ch if ch.isprintable() else "\ufffd" for ch in text)
