"""Values packed as bytes. Processes of roost pass them on without loading the classes of the user's program."""

from __future__ import annotations

import io
import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ray
from ray import cloudpickle
from ray.actor import ActorHandle

_PLAIN = frozenset((int, float, str, bytes, bool, type(None)))  # need no cloudpickle


class PackedValue:
    """A pickled value, its large buffers, and the references to Ray's objects and actors that it holds.

    Ray must see the references to count them, so they are not in the pickled bytes.
    """

    __slots__ = ("buffers", "data", "references")

    def __init__(self, references: Sequence[Any], data: Any, *buffers: Any) -> None:
        self.references, self.data, self.buffers = references, data, buffers

    def __reduce__(self) -> tuple[Any, ...]:
        # Buffers are copied into the object store once, and read from there without a copy.
        parts = map(pickle.PickleBuffer, (self.data, *self.buffers))
        return PackedValue, (self.references, *parts)

    @property
    def size(self) -> int:
        return sum(memoryview(part).nbytes for part in (self.data, *self.buffers))


class SmallValue(PackedValue):
    """A packed value inside a message. Its buffers are copies: a view of the message would keep all of it alive."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return SmallValue, (self.references, *map(bytes, (self.data, *self.buffers)))


class StoredValue(NamedTuple):
    """A packed value in the object store. Values that were put together may share an object."""

    object: Any  # a reference of Ray
    place: int


class Packer:
    """Packs values, one after the other. Making a packer costs more than packing ten small values."""

    def __init__(self, inline: int) -> None:
        self._inline = inline
        self._file = io.BytesIO()
        self._references: list[Any] = []
        self._buffers: list[pickle.PickleBuffer] = []
        self._pickler: _Pickler | None = None

    def pack(self, value: Any) -> bytes | PackedValue:
        """The value, as bytes or a `SmallValue` if it has at most `inline` bytes."""
        if type(value) in _PLAIN:
            data = pickle.dumps(value, 5)
            return data if len(data) <= self._inline else PackedValue((), data)
        data = self._pickled(value)
        if not self._references and not self._buffers and len(data) <= self._inline:
            return data
        parts = (data, *[buffer.raw() for buffer in self._buffers])
        packed = PackedValue(tuple(self._references), *parts)
        return packed if packed.size > self._inline else SmallValue(packed.references, *map(bytes, parts))

    def _pickled(self, value: Any) -> bytes:
        """Pickle the value, and collect its references and large buffers."""
        pickler, self._pickler = self._pickler, None  # a pickler that fails is not used again
        if pickler is None:
            pickler = _Pickler(self._file, self._references, self._buffers.append)
        self._references.clear()
        self._buffers.clear()
        self._file.seek(0)
        self._file.truncate()
        pickler.clear_memo()  # each value is unpickled by itself
        pickler.dump(value)
        self._pickler = pickler
        return self._file.getvalue()


def unpack(packed: bytes | PackedValue) -> Any:
    if isinstance(packed, bytes):
        return pickle.loads(packed)
    if not packed.references:
        return pickle.loads(packed.data, buffers=packed.buffers)
    outer = getattr(_unpacking, "references", None)  # loading a value may unpack another one
    _unpacking.references = packed.references
    try:
        return pickle.loads(packed.data, buffers=packed.buffers)
    finally:
        _unpacking.references = outer


_unpacking = threading.local()


def _reference(index: int) -> Any:
    return _unpacking.references[index]


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO, references: list[Any], keep: Callable[[Any], Any]) -> None:
        super().__init__(file, protocol=5, buffer_callback=keep)
        self._references = references

    def reducer_override(self, value: Any) -> Any:
        """Note references. Python calls this only for values that are no plain data, and `persistent_id` for all."""
        if isinstance(value, (ray.ObjectRef, ActorHandle)):
            self._references.append(value)
            return _reference, (len(self._references) - 1,)
        return super().reducer_override(value)
