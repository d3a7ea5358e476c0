"""Which names hold secrets, and that their values are neither shown nor saved."""

from __future__ import annotations

import json

import pytest

import roost
from roost.config.document import parse
from roost.secret_names import hide_secrets, looks_secret

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
    *("PGPASSWORD", "DBPASSWORD", "SSHPASS", "HFTOKEN", "OPENAIKEY", "mytoken", "GITTOKENS", "AWSCREDS"),
    *("GITHUB_PAT", "JWT", "PSWD", "PASSWORDFILE"),
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
    *(
        "KEYFRAME",
        "PASSTHROUGH",
        "TOKENIZER_PATH",
        "NCCL_IB_PKEY",
        "turkeys",
        "BYPASS",
        "lowpass",
        "SECRETARY",
    ),
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
    values = [f"canary-{number}" for number in range(9)]
    group = {
        "label": "g",
        "node_ranks": 0,
        "env_configs": [
            {
                "node_ranks": 0,
                "env_vars": {
                    "DB_PASS": values[0],
                    "OPENAI_KEY_1": values[1],
                    "NCCL_DEBUG": "INFO",
                    "EXTRA_ARGS": f"--steps=3 --api-key={values[0]}",
                    "HEADERS": f"Authorization: Bearer {values[0]}",
                    "DSN": f"host=x;Password={values[0]}",
                },
                "python_interpreter_path": f"uv run --index https://me:{values[8]}@host python",
            }
        ],
        "hardware": {
            "type": "Arm",
            "configs": [
                {"node_rank": 0, "api-key": values[2], "pwd": values[3], "keys": [values[4]]},
                {"node_rank": 0, "url": f"https://me:{values[5]}@host"},
                {"node_rank": 0, "cams": [f"rtsp://admin:{values[6]}@10.0.0.9", ["rtsp://10.0.0.8/x"]]},
                {"node_rank": 0, "url": f"{'x' * 3000} https://me:a/{values[7]}@host/path"},
            ],
        },
    }
    job = {
        "cluster": {"component_placement": {"a": {"node_group": "g", "placement": 0}}, "node_groups": [group]}
    }
    plan = roost.plan(job, roost.Inventory.parse("1x1"))
    saved = json.dumps(plan.to_dict())
    assert "canary" not in saved
    assert "INFO" in saved
    assert "rtsp://10.0.0.8/x" in saved
    assert "@host python" in saved
    assert roost.Plan.from_dict(plan.to_dict()) == plan.without_secrets()


ENVIRONMENT = """\
cluster:
  component_placement: {a: {node_group: g, placement: 0}}
  node_groups:
    - label: g
      node_ranks: 0
      env_configs:
        - node_ranks: 0
          env_vars:
"""


@pytest.mark.parametrize(
    "lines",
    [
        ["DB_PASSWORD: x,canary", "DB_PASSWORD: x,canary"],
        ['DB_PASSWORD: "x\\"canary"', "DB_PASSWORD: 1"],
        ['{DB_PASSWORD: "x\\"canary", A: [1]}'],
        ["{DB_PASSWORD: x}canary: 3"],
        ["DB_PASSWORD: ${foo:canary}"],
        ["DB_PASSWORD: ${canary"],
        ["A: ${oc.env:HF_TOKEN,canary"],
        ["- {name: HF_TOKEN, value: canary}"],
        ["- {value: canary, name: HF_TOKEN}"],
        ["- name: HF_TOKEN", "  value: canary"],
        ["{key: HF_TOKEN, value: canary}"],
        ["A: https://me:canary/canary@host", "A: 1"],
        ["- {name: HF_TOKEN, value: canary, x: 1}"],
        ["{Name: HF_TOKEN, Value: canary}"],
        ["HF_TOKEN: !canary"],
        ["HF_TOKEN: *canary"],
        ["{HF_TOKEN=canary}"],
        ["{HF_TOKEN:canary}"],
        ["- HF_TOKEN canary"],
        ["{HF_TOKEN:", '  "canary" x}'],
        ["HF_TOKEN: |", "  begin", "  canary", " canary"],
        ["- HF_TOKENS:", "    - canary: ["],
        ["- HF_TOKENS:", "  - canary: ["],
        ["HF_TOKENS:", "  - !x canary"],
        ["HF_TOKEN: 'begin", "  canary' x"],
        ["{HF_TOKEN: 'begin", "  canary' x}"],
        ['HF_TOKEN: "begin', '  \\qcanary"'],
        ["HF_TOKEN:", "  ? [canary]", "  : 1"],
    ],
)
def test_errors_show_no_secret(lines: list[str]) -> None:
    text = ENVIRONMENT + "".join(f"            {line}\n" for line in lines)
    with pytest.raises(roost.ConfigurationError) as caught:
        roost.plan(parse(text, "job.yaml"), roost.Inventory.parse("1x1"))
    assert "job.yaml:" in str(caught.value)
    assert "canary" not in str(caught.value)
    assert "canary" not in str([finding.to_dict() for finding in caught.value.findings])


def test_several_variables_in_one_entry_of_a_list() -> None:
    text = ENVIRONMENT + "            - {A: 1, API_KEY: canary}\n            - {API_KEY: canary, B: 2}\n"
    with pytest.raises(roost.ConfigurationError, match="has 2 variables") as caught:
        roost.plan(parse(text), roost.Inventory.parse("1x1"))
    assert caught.value.codes == ("RC103", "RC103")
    assert "canary" not in str(caught.value)


def test_a_variable_may_be_called_name() -> None:
    text = ENVIRONMENT + "            - {name: x}\n"
    plan = roost.plan(parse(text), roost.Inventory.parse("1x1"))
    assert dict(plan.inventory.environment("g", 0).env_vars) == {"name": "x"}


@pytest.mark.parametrize(
    "override", ["secrets.API_KEY=canary", "hf_token canary", "cluster.num_nodes=x://me:canary@h"]
)
def test_an_override_with_a_secret_is_not_repeated(override: str) -> None:
    job = {"cluster": {"component_placement": {"a": 0}}}
    with pytest.raises(roost.ConfigurationError) as caught:
        roost.plan(job, roost.Inventory.parse("1x1"), overrides=[override])
    assert "canary" not in str(caught.value)


REFERENCE = """\
cluster:
  num_nodes: 1
  component_placement: {a: {node_group: g, placement: 0}}
  node_groups:
    - {label: g, node_ranks: 0, env_configs: [{node_ranks: 0, env_vars: {MINE: "${oc.env:MY_TOKEN}"}}]}
my: {password: canary}
"""


def test_references_to_secrets_stay_out_of_saved_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "canary")
    plan = roost.plan(parse(REFERENCE, "job.yaml"), roost.Inventory.parse("1x1"))
    assert dict(plan.inventory.environment("g", 0).env_vars) == {"MINE": "canary"}
    assert "canary" not in json.dumps(plan.to_dict())
    assert "canary" not in repr(dict(plan.inventory.environment("g", 0).env_vars))


@pytest.mark.parametrize(
    "key",
    [
        "num_nodes",
        "component_placement.a.placement",
        "component_placement.a.node_group",
        "node_groups.0.label",
    ],
)
@pytest.mark.parametrize("reference", ["${oc.env:MY_TOKEN}", "${my.password}"])
def test_references_to_secrets_stay_out_of_errors(
    key: str, reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "canary")
    with pytest.raises(roost.ConfigurationError) as caught:
        roost.plan(
            parse(REFERENCE, "job.yaml"),
            roost.Inventory.parse("1x1"),
            overrides=[f"cluster.{key}={reference}"],
        )
    assert "canary" not in str(caught.value)
