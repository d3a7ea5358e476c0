"""Composes a job of a Hydra project: Hydra composes the values, and roost finds the file that set each of them.

Only this module imports Hydra, and it is imported only when a job is composed. During a composition it replaces
Hydra's sources of files by sources that let roost read each file first. So roost's limits hold, and the positions of
values are known.
"""

from __future__ import annotations

import os
import re
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path as FilePath
from typing import Any

import hydra
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.plugins.config_source import ConfigResult
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.basecontainer import BaseContainer

from roost.config.interpolation import unparsable
from roost.config.overrides import override_span
from roost.config.plain_data import entries, values_in
from roost.config.text_files import read_mapping, read_text
from roost.config.yaml_text import MAX_BYTES, MAX_VALUES, Positions
from roost.errors import ConfigurationError, Finding, Path, Span, first_line, nearest
from roost.secret_names import hide_rest

MAX_COMPOSED = 2 * MAX_VALUES  # values of all files; a file counts each time Hydra looks at it
PER_FILE = 50  # values that a file counts for, beside its own
_OWN_STATE = ("GlobalHydra", "VersionBase", "JobRuntime")  # Hydra's singletons that a composition sets
_ONE_AT_A_TIME = threading.Lock()  # because of these singletons
_QUOTED = "quote what has a meaning for Hydra, and all of it for the shell: \"key='a,b'\""
_ELSEWHERE = (
    "configs that a program registers in Python are not seen here; save them with `train.py --cfg job`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Primary:
    """The file that a composition starts from."""

    text: str
    file: str  # as errors show it
    directory: str  # the config directory
    name: str  # in the config directory, without `.yaml`
    more: str | None = None  # another directory to look in


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """The values of one file or override, and their place in the composition."""

    data: Any
    positions: Positions = field(default_factory=Positions)
    file: str = ""
    package: Path = ()


_Holder = tuple[_Layer, Any]  # a layer that has a path, and its value there


def composed(primary: Primary, overrides: Sequence[str]) -> tuple[dict[str, Any], Positions]:
    """The composed data, not resolved, with the position of each value in the file or override that set it."""
    for one in overrides:
        override_span(one)
    read: dict[str, _Layer] = {}
    given, run = list(overrides), RunMode.RUN
    with _ONE_AT_A_TIME, warnings.catch_warnings(), _own_state():
        warnings.simplefilter("ignore")
        try:
            with hydra.initialize_config_dir(os.path.abspath(primary.directory), version_base=None):  # noqa: PTH100
                loader = _loader(primary, read)
                data = OmegaConf.to_container(hydra.compose(primary.name, given), resolve=False)
                order = loader.compute_defaults_list(primary.name, given, run)
        except ConfigurationError:
            raise
        except Exception as error:  # Hydra and OmegaConf raise anything; the configuration is at fault
            raise ConfigurationError(_refusal(error, primary, given, read)) from None
    layers = [
        replace(read[one.config_path], package=_steps(one.package or ""))
        for one in order.defaults
        if one.config_path in read
    ]
    layers += [_override(one) for one in order.config_overrides if not one.is_delete()]
    positions = Positions()
    holders = [(layer, _nested(layer.package, layer.data)) for layer in reversed(layers)]
    return _placed(data, (), holders, positions), positions


@contextmanager
def _own_state() -> Iterator[None]:
    """Give Hydra a state of its own, and restore the program's state afterwards: it may run under `@hydra.main`."""
    Plugins.instance()  # registers the sources
    registry, singletons = SourcesRegistry.instance(), Singleton._instances
    resolvers = BaseContainer._resolvers
    kept, sources, replaced = singletons.copy(), registry.types.copy(), resolvers.copy()
    for one in kept:
        if one.__name__ in _OWN_STATE:
            del singletons[one]
    try:
        yield
    finally:
        registry.types = sources
        for one in list(singletons):
            if one.__name__ in _OWN_STATE:
                del singletons[one]
        singletons.update(kept)
        resolvers.update(replaced)  # `now` and others that Hydra adds stay: the composed values may use them


def _loader(primary: Primary, read: dict[str, _Layer]) -> Any:
    """Hydra's loader, with sources that record in `read` what they load."""
    loader: Any = GlobalHydra.instance().config_loader()
    if primary.more is not None:
        path = f"file://{os.path.abspath(primary.more)}"  # noqa: PTH100
        loader.get_search_path().prepend("command-line", path, "schema")
    registry = SourcesRegistry.instance()
    registry.types = {
        scheme: _files(source, primary, read) if scheme == "file" else _others(source, read)
        for scheme, source in registry.types.items()
    }
    loader.repository.initialize_sources(loader.get_search_path())
    return loader


def _files(source: Any, primary: Primary, read: dict[str, _Layer]) -> Any:
    """Hydra's source of files, with roost's reader before Hydra's."""
    used = 0

    class Result(ConfigResult):  # type: ignore[misc]
        """Counts the values each time Hydra follows the defaults of a file: a few files can nest forever."""

        @property
        def defaults_list(self) -> Any:
            nonlocal used
            used += self.size  # type: ignore[has-type]
            if used > MAX_COMPOSED:
                what = f"{primary.file}: its `defaults` bring more than {MAX_COMPOSED:,} values"
                raise ConfigurationError(code="RC004", what=what, remedy="do they include each other?")
            return self.entries

        @defaults_list.setter
        def defaults_list(self, entries: Any) -> None:
            self.entries, self.size = entries, getattr(self, "size", 1)

    class Files(source):  # type: ignore[misc]
        def is_config(self, config_path: str) -> bool:
            return self._is_primary(config_path) or bool(super().is_config(config_path))

        def load_config(self, config_path: str) -> Any:
            if self._is_primary(config_path):
                text, file = primary.text, primary.file
            else:
                path = FilePath(self.path, self._normalize_file_name(config_path))
                text, file = read_text(path, MAX_BYTES), self._shown(path)
            data, positions = read_mapping(
                text, file, wanted=("a config is a mapping", "write `key: value` lines")
            )
            read[config_path] = _Layer(data=data, positions=positions, file=file)
            try:
                config, header = OmegaConf.load(StringIO(text)), self._get_header_dict(text[:512])
            except Exception:
                if problem := unparsable(data, positions):
                    raise ConfigurationError(problem) from None
                raise
            result = Result(provider=self.provider, path=self.full_path(), config=config, header=header)
            result.size = len(positions.values) + PER_FILE
            return result

        def _is_primary(self, name: str) -> bool:
            return bool(self.provider == "main" and name == primary.name)

        def _shown(self, path: FilePath) -> str:
            """The path of a file, with the config directory as the user wrote it."""
            if self.provider != "main":
                return str(path)
            return str(FilePath(primary.directory, path.relative_to(self.path)))

    return Files


def _others(source: Any, read: dict[str, _Layer]) -> Any:
    """A source of configs in Python packages and programs. Its values have no position."""

    def load_config(self: Any, config_path: str) -> Any:
        result = source.load_config(self, config_path)
        if not config_path.startswith("hydra/"):
            read.setdefault(config_path, _Layer(data=OmegaConf.to_container(result.config, resolve=False)))
        return result

    return type(source.__name__, (source,), {"load_config": load_config})  # Hydra finds sources by name


def _steps(key: str) -> Path:
    return tuple(step for step in re.sub(r"\[(\w+)\]", r".\1", key).split(".") if step)


def _override(one: Any) -> _Layer:
    value, line = one.value(), override_span(one.input_line)
    start = one.input_line.find("=") + 1
    key = line.part(one.input_line.find(one.key_or_group), len(one.key_or_group))
    spot = line.part(start, max(1, len(one.input_line) - start))
    positions = Positions({(): key}, {path: spot for path, _ in values_in(value, ())})
    return _Layer(data=value, positions=positions, package=_steps(one.key_or_group))


def _nested(package: Path, data: Any) -> Any:
    for step in reversed(package):
        data = {step: data}
    return data


def _placed(value: Any, path: Path, holders: Sequence[_Holder], positions: Positions) -> Any:
    """The value with its keys as text. `holders` are the layers that have its path, the last merged first."""
    holders = [(layer, node) for layer, node in holders if node != "???" or value == "???"]
    layer, node = next(((one, node) for one, node in holders if len(path) >= len(one.package)), (None, None))
    if layer is not None:
        inside = path[len(layer.package) :]
        for table, found in zip(positions.tables, layer.positions.tables, strict=True):
            if inside in found:
                table[path] = found[inside]
    if isinstance(value, (dict, list)):
        placed = {
            step: _placed(item, (*path, step), list(_holding(step, holders)), positions)
            for step, item in entries(value)
        }
        return placed if isinstance(value, dict) else list(placed.values())
    if path[0] == "cluster" and layer is not None and layer.file and not isinstance(node, (dict, list)):
        return node  # as roost reads it: `4:7` is text there
    return value


def _holding(step: str | int, holders: Sequence[_Holder]) -> Iterator[_Holder]:
    for layer, node in holders:
        if isinstance(node, dict) and str(step) in node:
            yield layer, node[str(step)]
        elif isinstance(node, list) and isinstance(step, int) and step < len(node):
            yield layer, node[step]


def _refusal(
    error: Exception, primary: Primary, overrides: Sequence[str], read: dict[str, _Layer]
) -> Finding:
    """The finding for an error of Hydra or OmegaConf."""
    said, why = first_line(error), first_line(error.__cause__) if error.__cause__ else ""
    missing, options = getattr(error, "missing_cfg_file", None) or "", getattr(error, "options", None)
    unparsed = getattr(error, "override", None)
    blamed = unparsed or next((one for one in overrides if _blames(str(error), one, missing)), None)
    code, remedy = "RC008", ""
    if isinstance(error, RecursionError):
        said = "the `defaults` include each other, or an override nests too deep"
    elif unparsed is not None:
        code, said, why = "RC007", "Hydra cannot parse this override", said
        remedy = _QUOTED
    elif said.startswith("Ambiguous value"):  # a comma, which Hydra takes for a sweep
        remedy = f"{_QUOTED}; or write a list: 'key=[a,b]'"
    elif missing:
        remedy = nearest(missing.rpartition("/")[2], options) if options else _ELSEWHERE
    elif "To append to your config use" in str(error) and blamed is not None:
        remedy = f"check the key; to add it write +{hide_rest(blamed)}"
    if blamed is not None and hide_rest(blamed) != blamed:
        why = ""  # the error may quote the secret
    where = (
        override_span(blamed) if blamed is not None else _entry(missing, read) or _top(said, primary, read)
    )
    what = hide_rest(said).rstrip(".: ")
    return Finding(code=code, what=what, why=hide_rest(why), remedy=remedy, where=where)


def _blames(message: str, override: str, missing: str) -> bool:
    key, _, value = override.lstrip("+~").partition("=")
    group = key.partition("@")[0]
    return override in message or f"'{key}'" in message or (bool(value) and missing == f"{group}/{value}")


def _entry(missing: str, read: dict[str, _Layer]) -> Span | None:
    """The entry of a `defaults` list that names a missing config."""
    name = missing.rpartition("/")[2]
    for layer in read.values():
        for path, text in layer.positions.texts.items():
            if path[:1] == ("defaults",) and name and text.partition("@")[0].rpartition("/")[2] == name:
                return layer.positions.values.get(path)
    return None


def _top(said: str, primary: Primary, read: dict[str, _Layer]) -> Span:
    """The first line of the file that Hydra names, or of the primary one."""
    named = next((read[name] for name in re.findall(r"'([^']+)'", said) if name in read), None)
    file = named.file if named is not None and named.file else primary.file
    return Span(source=file, line=1, column=1, length=1)
