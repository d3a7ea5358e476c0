"""Saves plans to files, and loads them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path as FilePath

from roost.config.plain_data import read_json
from roost.config.text_files import read_text
from roost.errors import ConfigurationError
from roost.planning.files import write_file
from roost.planning.plan import Plan

MAX_BYTES = 1 << 30


def plan_text(plan: Plan) -> str:
    return json.dumps(plan.to_dict(), indent=1) + "\n"


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write a plan, without secrets, to a file that only its owner can read."""
    write_file(path, plan_text(plan), private=True)


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Load the plan in a file. Every error names the file."""
    source = FilePath(path)
    try:
        text = read_text(source, MAX_BYTES)
    except ConfigurationError as error:
        raise ConfigurationError(*(replace(found, code="RS101") for found in error.findings)) from None
    return read_plan(text, str(source))


def read_plan(text: str, source: str) -> Plan:
    """The plan in a text. Every error names its source."""
    try:
        return Plan.from_dict(read_json(text))
    except ConfigurationError as error:
        raise ConfigurationError(
            *(replace(found, code="RS101", what=f"{source}: {found.what}") for found in error.findings)
        ) from None
    except (ValueError, RecursionError) as error:
        remedy = "make it anew with `roost plan -o`"
        what = f"{source}: this is not a saved plan"
        raise ConfigurationError(code="RS101", what=what, why=str(error)[:200], remedy=remedy) from None
