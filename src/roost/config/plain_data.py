"""Turns the objects of a program into plain data of bounded size: dicts, lists and scalars."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from roost.config.yaml_text import MAX_DEPTH, MAX_VALUES
from roost.errors import ConfigurationError, Path, dotted, first_line, shown

# The sections roost reads; the rest belongs to the user's training code.
SECTIONS = ("cluster", "actor", "rollout", "inference", "reward", "critic", "algorithm", "supervise")
PLACEMENTS: Path = ("cluster", "component_placement")
_LARGEST = 10**18


def plain_mapping(
    source: Mapping[Any, Any],
    sections: Collection[str] = SECTIONS,
    checked: Collection[str] = ("cluster", "supervise"),
    max_values: int = 5 * MAX_VALUES,
) -> dict[str, Any]:
    """A copy of the source with these sections as plain data. Other sections may hold anything, of any size.

    In the `checked` sections a value that no file could hold is an error.
    """
    count = 0

    def plain(value: Any, path: Path, strict: bool) -> Any:
        nonlocal count
        count += 1
        if len(path) > MAX_DEPTH or count > max_values:
            many = count > max_values
            what = f"more than {max_values:,} values" if many else f"nested more than {MAX_DEPTH} levels deep"
            remedy = "does it contain itself?"
            raise ConfigurationError(code="RC004", what=what, path=path[:3], remedy=remedy)
        if isinstance(value, Mapping):
            return {
                name: plain(item, (*path, name), strict)
                for name, item in ((_key(key, path), item) for key, item in value.items())
            }
        if isinstance(value, (list, tuple)):
            return [plain(item, (*path, index), strict) for index, item in enumerate(value)]
        return _scalar(value, path) if strict else value

    return {
        name: plain(value, (name,), name in checked) if name in sections else value
        for name, value in ((_key(key, ()), value) for key, value in source.items())
    }


def resolved(config: Any, subject: str) -> Any:
    """An OmegaConf config as a dict; any other object unchanged.

    OmegaConf must resolve it: a part of a config may refer to the rest, which only OmegaConf knows.
    """
    if not type(config).__module__.startswith("omegaconf"):
        return config
    from omegaconf import OmegaConf

    try:
        return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except Exception as error:  # resolvers raise anything; the configuration is at fault
        what, remedy = f"{subject} cannot be resolved", "define what it refers to, or write the value"
        why = first_line(error)
        raise ConfigurationError(code="RC006", what=what, why=why, remedy=remedy) from None


def interpolations(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Every text that needs resolving, with its path."""
    for where, text in values_in(value, path):
        if isinstance(text, str) and ("${" in text or text == "???"):
            yield where, text


def values_in(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """The value and all values inside it, each with its path."""
    yield path, value
    for step, item in entries(value):
        yield from values_in(item, (*path, step))


def entries(value: Any) -> Iterable[tuple[Any, Any]]:
    """The entries of a dict or a list, with their keys as text or their indices; none of a scalar."""
    if isinstance(value, dict):
        return ((str(key), item) for key, item in value.items())
    return enumerate(value) if isinstance(value, list) else ()


def _key(key: Any, path: Path) -> str:
    if isinstance(key, str) or (isinstance(key, int) and abs(key) < _LARGEST):
        return str(key)
    raise _wrong("a key must be text", path)


def _scalar(value: Any, path: Path) -> Any:
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if hasattr(value, "__index__"):  # any whole number, such as one of numpy
        number = int(value.__index__())
        if abs(number) < _LARGEST:
            return number
        raise _wrong("a number of too many digits", path)
    if hasattr(value, "__fspath__"):
        return str(value)
    raise _wrong(f"{type(value).__name__} is not plain data", path)


def _wrong(what: str, path: Path) -> ConfigurationError:
    place = f"{dotted(path)}: " if path else ""
    remedy = "use text, numbers, booleans, lists and mappings"
    return ConfigurationError(code="RC103", what=f"{place}{what}", path=path, remedy=remedy)


def read_json(text: str) -> Any:
    """Refuses a key that is written twice, as the YAML reader does. Raises ValueError if the text is not JSON, and RecursionError if it nests too deep."""
    return json.loads(text, object_pairs_hook=_mapping)


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        left = dict.fromkeys(found, 1)
        twice = next(name for name, _ in pairs if not left.pop(name, 0))
        what = f"the key {shown(twice)} is written twice"
        raise ConfigurationError(code="RC003", what=what, remedy="keep one of them")
    return found
