"""The form of the `profile` section: its keys and the values they take."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from roost.config.fields import Count, Section, Text


def _number(value: Any) -> Any:
    if isinstance(value, (bool, str)):
        raise PydanticCustomError("float_type", "a number")
    return value


Positive = Annotated[float, BeforeValidator(_number), Field(ge=1e-9, le=1e12, allow_inf_nan=False)]
NotNegative = Annotated[float, BeforeValidator(_number), Field(ge=0, le=1e12, allow_inf_nan=False)]


def _seconds_form(value: Any) -> str:
    if not isinstance(value, dict):
        return "one"
    return "maps" if any(isinstance(inner, dict) for inner in value.values()) else "map"


Seconds = Annotated[
    Annotated[Positive, Tag("one")]
    | Annotated[dict[str, Positive], Tag("map")]
    | Annotated[dict[str, dict[str, Positive]], Tag("maps")],
    Discriminator(_seconds_form),
]


class ComponentCosts(Section):
    accelerators_per_process: Count = 1
    streams: bool = False
    switch: NotNegative = 0.0
    memory_gib: NotNegative = 0.0
    resident_gib: NotNegative = 0.0


class ComponentSection(ComponentCosts):
    seconds: Seconds


class WeightsSection(Section):
    source: Text = Field(alias="from")
    to: Text
    together: NotNegative
    apart: NotNegative


class Flow(Section):
    batch: Count
    flow: dict[str, list[Text]]
    mode: Literal["sync", "async"] = "sync"
    weights: WeightsSection | None = None


class ProfileSection(Flow):
    components: dict[str, ComponentSection]
