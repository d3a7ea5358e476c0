"""Checks nodes where inventories and saved plans are read. Worker processes load nodes, but not pydantic."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field, GetPydanticSchema
from pydantic_core import core_schema

from roost.config.fields import NonNegativeInt, Rank, Section, Text
from roost.inventory.accelerators import AcceleratorType
from roost.inventory.nodes import NO_ACCELERATORS, Accelerators, Node

MAX_ACCELERATORS = 4_096  # on one node
AcceleratorCount = Annotated[Rank, Field(le=MAX_ACCELERATORS)]


def _read_as(record: type, fields: type[BaseModel]) -> GetPydanticSchema:
    """Check the fields, then make the record of them."""

    def schema(_: Any, handler: Any) -> Any:
        checked = handler.generate_schema(fields)
        return core_schema.no_info_after_validator_function(lambda one: record(**dict(one)), checked)

    return GetPydanticSchema(schema)


class _AcceleratorFields(Section):
    count: AcceleratorCount
    type: str = AcceleratorType.NV_GPU.value
    model: Text = ""
    memory_gib: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


CheckedAccelerators = Annotated[Accelerators, _read_as(Accelerators, _AcceleratorFields)]


class _NodeFields(Section):
    rank: Rank
    ip: Text = ""
    hostname: Text = ""
    cpus: NonNegativeInt | None = None
    accelerators: CheckedAccelerators = NO_ACCELERATORS


CheckedNode = Annotated[Node, _read_as(Node, _NodeFields)]
