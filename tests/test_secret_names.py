"""Which names hold secrets, and that their values are neither shown nor saved."""

from __future__ import annotations

import json

import pytest

import roost
from roost.errors import hide_secrets, looks_secret

SECRET = [
    "api-key",
    "SSH-KEY",
    "robot.key",
    "DB_PASS",
    "pass",
    "pwd",
    "DB_PWD",
    "OPENAI_KEY_1",
    "SSH_KEY_DATA",
    "SIGNING_KEYS",
    "keys",
    "ENCRYPTIONKEY",
    "encryption_key_b64",
    "PASSCODE",
    "HF_TOKEN",
    "MY_API_KEY",
    "openaiKey",
    "AWS_SECRET_ACCESS_KEY",
    "db_password",
    "authToken",
]
OPEN = [
    "TOKENIZERS_PARALLELISM",
    "AUTHOR",
    "authors",
    "keyboard",
    "PATH",
    "NCCL_DEBUG",
    "compass",
    "MONKEY",
    "robot_ip",
    "passes",
    "PYTHONPATH",
]


@pytest.mark.parametrize("name", SECRET)
def test_secret(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize("name", OPEN)
def test_open(name: str) -> None:
    assert not looks_secret(name)


def test_lines_are_starred_at_the_same_width() -> None:
    line = "env_vars: {API_KEY: sk-1, X: 2, url: https://u:p@h/x}"
    hidden = hide_secrets(line)
    assert hidden == "env_vars: {API_KEY: ****, X: 2, url: https://***@h/x}"
    assert len(hidden) == len(line)


def test_plans_keep_no_secret_values() -> None:
    values = [f"canary-{number}" for number in range(6)]
    group = {
        "label": "g",
        "node_ranks": 0,
        "env_configs": [
            {
                "node_ranks": 0,
                "env_vars": {"DB_PASS": values[0], "OPENAI_KEY_1": values[1], "NCCL_DEBUG": "INFO"},
            }
        ],
        "hardware": {
            "type": "Arm",
            "configs": [
                {"node_rank": 0, "api-key": values[2], "pwd": values[3], "keys": [values[4]]},
                {"node_rank": 0, "url": f"https://me:{values[5]}@host"},
            ],
        },
    }
    job = {
        "cluster": {"component_placement": {"a": {"node_group": "g", "placement": 0}}, "node_groups": [group]}
    }
    saved = json.dumps(roost.plan(job, roost.Inventory.parse("1x1")).to_dict())
    assert "canary" not in saved
    assert "INFO" in saved


def test_an_override_with_a_secret_is_not_repeated() -> None:
    job = {"cluster": {"component_placement": {"a": 0}}}
    with pytest.raises(roost.ConfigurationError) as caught:
        roost.plan(job, roost.Inventory.parse("1x1"), overrides=["secrets.API_KEY=canary"])
    assert "canary" not in str(caught.value)
