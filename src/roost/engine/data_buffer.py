"""Data buffers give out the samples of a job, in an order that a restarted job can continue."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from roost.engine.channels.channel_errors import check_name
from roost.engine.channels.sample_source import MOST, prepared
from roost.engine.here import inline_here
from roost.errors import ClusterError, ConfigurationError, shown
from roost.planning.files import write_file

LARGEST = 1 << 30  # bytes of a saved buffer


class DataBuffer:
    """The job's data buffer of this name. Any process of the job can open it; the first one creates it.

    `source` is a path of JSON lines, an iterable, or an object with `len` and `[]`; without one the buffer must exist.
    Every epoch gives out each sample once, in an order of its own that follows from the seed.
    """

    def __init__(self, source: Any = None, seed: int = 0, name: str = "data") -> None:
        check_name(name, "data buffer")
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise ConfigurationError(code="RC104", what=f"a seed is a whole number, not {shown(seed)}")
        self.name = name
        given = None if source is None else prepared(source)
        self._side: Any = _side(name, given, seed)
        path, count = (given, None) if given is None or isinstance(given, str) else (None, len(given))
        differs = self._side.ask("check", path, count, seed) if source is not None else ""
        if differs:
            raise ClusterError(
                code="RE125",
                what=f"data buffer {name!r} has {differs}",
                why="a process of this job has made it before",
                remedy="use another name, or open it by its name alone",
            )

    def get_samples(self, count: int) -> list[Any]:
        """The next samples; samples that were put back come first. Each sample goes to one process."""
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST:
            raise ConfigurationError(
                code="RC104",
                what=f"a number of samples is a whole number from 0 to {MOST:,}, not {shown(count)}",
            )
        return self._side.ask("take", count)

    def put_back(self, samples: Iterable[Any]) -> None:
        """Put back unfinished samples. They come next, in this order, with the values given here."""
        if isinstance(samples, (str, bytes, dict)) or not isinstance(samples, Iterable):
            raise ConfigurationError(
                code="RC104", what=f"put_back takes a list of samples, not {shown(samples)}"
            )
        self._side.ask("put_back", list(samples))

    @property
    def epoch(self) -> int:
        """How many times the buffer has given out all samples."""
        return self._side.ask("epoch")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save which samples come next. Only the file's owner can read it."""
        write_file(path, json.dumps(self._side.ask("state")), private=True)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Continue with the samples that came next when the file was saved."""
        try:
            found = Path(path).stat()
            if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
                raise ValueError("it is not a regular file, or too large")
            state = json.loads(Path(path).read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigurationError(
                code="RS104",
                what=f"{os.fspath(path)}: is not a saved data buffer",
                why=getattr(error, "strerror", None) or str(error),
            ) from None
        self._side.ask("restore", state)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.name,)

    def __repr__(self) -> str:
        return f"<data buffer {self.name}>"


def _reopened(name: str) -> DataBuffer:
    return DataBuffer(name=name)


def _side(name: str, source: Any, seed: int) -> Any:
    inline = inline_here()
    if inline is not None:
        return inline.data_buffer(name, source, seed)
    from roost.engine.job.ray_buffer import open_ray_buffer  # inline programs do without Ray

    return open_ray_buffer(name, source, seed)
