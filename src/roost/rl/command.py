"""The command line of an inference server, with placeholders for values that only the running job knows."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from roost.errors import ConfigurationError, Finding, Path, nearest, shown
from roost.secret_names import hide_secrets, looks_secret

PLACEHOLDERS = frozenset(
    (
        *("host", "port", "nccl_port", "dist_init_addr", "bootstrap_port"),
        *("node_rank", "num_nodes", "devices", "engine", "server", "kind", "share"),
        "metrics_port",  # of routers
    )
)
_PLACE = re.compile(r"\{([a-z_]+)\}")
_PLACE_OR_BRACES = re.compile(r"\{\{|\}\}|\{([a-z_]+)\}")
_SHORTEST_SECRET = 4
_EXAMPLE = "such as `python -m my_server --port {port}`"


@dataclass(frozen=True, slots=True, repr=False)
class CommandLine:
    """The command of an engine. roost splits a text like a shell does, but runs no shell.

    roost fills in `{port}` and the other PLACEHOLDERS, in words and in values of `env`. It leaves other braces
    alone, so JSON needs no care; `{{port}}` is a literal `{port}`.
    """

    argv: Sequence[str] | str
    health_path: str = "/health"  # empty: a server that runs is healthy
    env: Mapping[str, str] = field(default_factory=dict, hash=False)
    start_within: float = 600.0  # seconds until it must be healthy

    def __post_init__(self) -> None:
        problems = [
            *_split_problems(self.argv),
            *_env_problems(self.env),
            *_health_problems(self.health_path),
            *_patience_problems(self.start_within),
        ]
        if problems:
            raise ConfigurationError(*problems)
        words = shlex.split(self.argv) if isinstance(self.argv, str) else self.argv
        object.__setattr__(self, "argv", tuple(words))
        object.__setattr__(self, "env", dict(self.env))

    def __repr__(self) -> str:
        words = without_secrets(cast(tuple[str, ...], self.argv))
        return f"CommandLine({shlex.join(words)!r}, health_path={self.health_path!r}, start_within={self.start_within:g})"

    @property
    def placeholders(self) -> frozenset[str]:
        """The placeholders it uses, in words or environment."""
        return frozenset(name for text in (*self.argv, *self.env.values()) for name in _names(text))

    def fill(self, values: Mapping[str, object]) -> list[str]:
        """The words to run, with the values filled in."""
        _check_values(self.argv, values)
        return [_filled(word, values) for word in self.argv]

    def filled_env(self, values: Mapping[str, object]) -> dict[str, str]:
        """The environment to add, with the values filled in."""
        _check_values(list(self.env.values()), values)
        return {name: _filled(value, values) for name, value in self.env.items()}


def without_secrets(words: Sequence[str]) -> list[str]:
    """The words as they may be shown: `--api-key ***`."""
    safe: list[str] = []
    hide_next = False
    for word in words:
        name, assigned, _ = word.partition("=")
        if hide_next and not word.startswith("-"):
            safe.append("***")
        elif assigned and looks_secret(name):
            safe.append(f"{name}=***")
        else:
            safe.append(hide_secrets(word))
        hide_next = word.startswith("-") and not assigned and looks_secret(word)
    return safe


def secret_texts(words: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """The secrets in these words and variables, longest first. Messages about the command must not show them."""
    found = [value for name, value in env.items() if looks_secret(name)]
    for word, safe in zip(words, without_secrets(words), strict=True):
        if safe == "***":
            found.append(word)
        elif safe.endswith("=***"):
            found.append(word.partition("=")[2])
        elif safe != word:  # of the same width, with stars in some places
            starred = "".join(ch if other == "*" else "\0" for ch, other in zip(word, safe, strict=True))
            found += [piece.strip(" \"'") for piece in starred.split("\0")]
    # Logs show a text of several lines line by line. A very short secret would match everywhere.
    lines = {line.strip() for text in found for line in [text, *text.splitlines()]}
    return sorted((line for line in lines if len(line) >= _SHORTEST_SECRET), key=len, reverse=True)


def _places(text: str) -> Iterator[re.Match[str]]:
    # `{{` stands in no JSON, while `}}` ends many; so only a text with `{{` doubles its braces.
    return (_PLACE_OR_BRACES if "{{" in text else _PLACE).finditer(text)


def _names(text: str) -> list[str]:
    return [place[1] for place in _places(text) if place[1]]


def _filled(text: str, values: Mapping[str, object]) -> str:
    done, pieces = 0, []
    for place in _places(text):
        pieces += [text[done : place.start()], _as_text(values[place[1]]) if place[1] else place[0][0]]
        done = place.end()
    return "".join([*pieces, text[done:]])


def _as_text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _check_values(texts: Sequence[str], values: Mapping[str, object]) -> None:
    if not isinstance(values, Mapping):
        raise ConfigurationError(
            code="RC103",
            what=f"values are a mapping of placeholders to what they stand for, not {type(values).__name__}",
            remedy='such as {"port": 30000}; an engine has them as self.engine.values()',
        )
    used = dict.fromkeys(name for text in texts for name in _names(text))
    problems = [_no_value(name, values) for name in used if values.get(name) is None]
    if problems:
        raise ConfigurationError(*problems)


def _no_value(name: str, values: Mapping[str, object]) -> Finding:
    if name == "bootstrap_port":
        return Finding(
            code="RC104",
            what="the command uses {bootstrap_port}, and this engine has none",
            why="only prefill engines have a bootstrap port",
            remedy="give the prefill engines a command of their own, by their component's name",
        )
    given = ", ".join(sorted(name for name, value in values.items() if value is not None))
    return Finding(
        code="RC104",
        what=f"the command uses {{{name}}}, and this engine has no value for it",
        remedy=f"use what it has: {given}" if given else "leave the placeholder out",
    )


# -- what may be wrong ------------------------------------------------------------------------------------


def _split_problems(argv: object) -> Iterator[Finding]:
    words: Sequence[object]
    if isinstance(argv, str):
        try:
            words = shlex.split(argv)
        except ValueError as error:
            why, remedy = str(error).lower(), "close the quote, or give the words as a list"
            yield Finding(
                code="RC103",
                what="the command cannot be split into words",
                why=why,
                remedy=remedy,
                path=("argv",),
            )
            return
    elif isinstance(argv, Sequence) and not isinstance(argv, (bytes, bytearray)):
        words = argv
    else:
        what = f"a command is a text or a list of texts, not {type(argv).__name__}"
        yield Finding(code="RC103", what=what, remedy=_EXAMPLE, path=("argv",))
        return
    if not words or words[0] == "":
        yield Finding(code="RC102", what="the command names no program", remedy=_EXAMPLE, path=("argv",))
    for index, word in enumerate(words):
        yield from _text_problems(word, f"word {index} of the command", ("argv", index))


def _text_problems(text: object, subject: str, path: Path) -> Iterator[Finding]:
    """Problems of a text. The findings never show the text: it may be a secret."""
    if not isinstance(text, str):
        what = f"{subject} is of type {type(text).__name__}, not text"
        yield Finding(code="RC103", what=what, remedy="put it in quotes", path=path)
        return
    if "\0" in text:
        what = f"{subject} holds a null character"
        yield Finding(code="RC104", what=what, remedy="no program can be given one: remove it", path=path)
    for name in dict.fromkeys(_names(text)):
        if name not in PLACEHOLDERS:
            yield Finding(
                code="RC101",
                what=f"{subject}: unknown placeholder {{{name}}}",
                remedy=f"{nearest(name, PLACEHOLDERS)}; for the braces themselves write {{{{{name}}}}}",
                path=path,
            )


def _env_problems(env: object) -> Iterator[Finding]:
    if not isinstance(env, Mapping):
        what = f"env is a mapping of names to texts, not {type(env).__name__}"
        yield Finding(code="RC103", what=what, remedy='such as {"NCCL_DEBUG": "INFO"}', path=("env",))
        return
    for name, value in env.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            what = f"{shown(name)} is not the name of an environment variable"
            yield Finding(code="RC105", what=what, remedy="such as NCCL_DEBUG", path=("env",))
        else:
            yield from _text_problems(value, f"env {shown(name)}", ("env", name))


def _health_problems(path: object) -> Iterator[Finding]:
    # Requests are lines of printable ASCII.
    if isinstance(path, str) and (not path or re.fullmatch(r"/[!-~]*", path)):
        return
    seen = shown(path) if isinstance(path, str) else f"a value of type {type(path).__name__}"
    yield Finding(
        code="RC104" if isinstance(path, str) else "RC103",
        what=f"{seen} is not a path to ask for health",
        remedy='such as "/health", or "" for a server that is healthy as soon as it runs',
        path=("health_path",),
    )


def _patience_problems(within: object) -> Iterator[Finding]:
    number = isinstance(within, (int, float)) and not isinstance(within, bool)
    if number and math.isfinite(cast(float, within)) and cast(float, within) > 0:
        return
    yield Finding(
        code="RC104" if number else "RC103",
        what=f"start_within is a positive number of seconds, not {shown(within)}",
        remedy="such as 600",
        path=("start_within",),
    )
