"""The field types of the schema."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

NAME = re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]{1,64}", re.ASCII)  # never "." or "..", which name other folders
NAME_RULE = "use letters, digits, dot, dash and underscore, at most 64 of them"
# The tags of unions. Pydantic puts them into the paths of its errors.
TAGS = frozenset(("text", "rule", "one", "many", "map", "maps"))

Entry = TypeVar("Entry")


def _no_bool(value: Any) -> Any:
    if isinstance(value, (bool, float)):
        raise PydanticCustomError("int_type", "a whole number")
    return value


def _no_truth(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("float_type", "a number")
    return value


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _not_empty(value: tuple[Entry, ...]) -> tuple[Entry, ...]:
    if not value:
        raise PydanticCustomError("too_short", "at least one entry")
    return value


def names_in(key: str) -> list[str]:
    """The names in a key such as `actor,critic`, which stands for several components."""
    return [name.strip() for name in key.split(",")]


def by_kind(kind: Any, tag: str, otherwise: str) -> Discriminator:
    """Choose the member of a union: the one with this tag for values of this kind, else the other."""
    return Discriminator(lambda value: tag if isinstance(value, kind) else otherwise)


Count = Annotated[int, BeforeValidator(_no_bool), Field(ge=1, le=1_000_000)]
NonNegativeInt = Annotated[int, BeforeValidator(_no_bool), Field(ge=0, le=1_000_000)]
Rank = Annotated[int, BeforeValidator(_no_bool), Field(ge=0)]
# Ray rounds shares to ten-thousandths: a smaller share would be 0.
Share = Annotated[float, BeforeValidator(_no_truth), Field(ge=0.0001, le=1, allow_inf_nan=False)]
Text = Annotated[str, BeforeValidator(_text), WithJsonSchema({"type": ["string", "integer"]})]
TextOrTexts = Annotated[
    Annotated[Text, Tag("one")] | Annotated[list[Text], Tag("many")], by_kind(list, "many", "one")
]
# Pydantic's own `min_length` does not count a tuple's wrong entries, and would call a tuple of them empty.
NonEmptyTuple = Annotated[
    tuple[Entry, ...], AfterValidator(_not_empty), Field(json_schema_extra={"minItems": 1})
]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
