"""Which names hold secrets, and that their values are neither shown nor saved."""

from __future__ import annotations

import json
from typing import Any

import pytest
from omegaconf import OmegaConf

import roost
from roost.config.document import load, parse
from roost.config.placement_editing import with_rules
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


REFERENCES = """\
cluster:
  num_nodes: 1
  component_placement: {a: {node_group: g, placement: 0}}
  node_groups:
    - label: g
      node_ranks: 0
      hardware: {type: Arm, configs: [{node_rank: 0, login: "@", more: [{deep: "@"}]}]}
      env_configs:
        - node_ranks: 0
          env_vars: {MINE: "@", OTHER: "${.MINE}"}
          python_interpreter_path: /opt/@/python
login: ${oc.env:MY_TOKEN}
again: ${login}
which: MY_TOKEN
field: password
my: {password: canary, open: x}
passwords: {robot: canary}
robot: ${passwords}
listed: ${oc.dict.values:my}
"""


def referring(reference: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MY_TOKEN", "canary")
    monkeypatch.setenv("DATA_ROOT", "/data")
    return parse(REFERENCES.replace("@", reference), "job.yaml")


@pytest.mark.parametrize(
    "reference",
    [
        "${oc.env:MY_TOKEN}",
        "${my.password}",
        "x-${my.password}",
        "${login}",
        "${again}",
        "${robot.robot}",
        "${listed.0}",
        "${oc.env:NOT_SET,${my.password}}",
        "${oc.env:${which}}",
        "${my.${field}}",
        "${oc.select:my.password}",
        "${oc.select:login}",
        "${oc.decode:${oc.env:MY_TOKEN}}",
    ],
)
def test_references_to_secrets_stay_out_of_saved_plans_wherever_they_stand(
    reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = roost.plan(referring(reference, monkeypatch), roost.Inventory.parse("1x1"))
    found = plan.inventory.environment("g", 0)
    assert all("canary" in str(value) for _, value in found.env_vars)
    assert "canary" in str(found.python_interpreter_path)
    assert "canary" not in json.dumps(plan.to_dict())
    assert "canary" not in repr(plan)


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ("${oc.env:DATA_ROOT}/tokens/data", "/data/tokens/data"),
        ("${oc.env:NOT_SET,/my/tokens}", "/my/tokens"),
        ("${my.open}_tokens", "x_tokens"),
        ("${my.open}", "x"),
    ],
)
def test_only_the_reference_tells_that_a_value_is_secret(
    reference: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = roost.plan(referring(reference, monkeypatch), roost.Inventory.parse("1x1"))
    (group,) = plan.to_dict()["node_groups"]
    assert group["environments"][0]["env_vars"]["MINE"] == value
    assert group["environments"][0]["python_interpreter_path"] == f"/opt/{value}/python"
    assert group["hardware"] == [{"node_rank": 0, "login": value, "more": [{"deep": value}]}]


def test_a_reference_to_a_mapping_with_references_to_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        ENVIRONMENT.rstrip()
        + " ${mine}\nmine: {A: '${oc.env:MY_TOKEN}', B: b, C: '${robots.pin_password}'}\n"
    )
    monkeypatch.setenv("MY_TOKEN", "canary")
    plan = roost.plan(parse(text + "robots: {pin_password: 20261119}\n"), roost.Inventory.parse("1x1"))
    (group,) = plan.to_dict()["node_groups"]
    assert group["environments"][0]["env_vars"] == {"A": None, "B": "b", "C": None}


def test_a_config_that_a_resolver_gives_may_refer_to_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    given = OmegaConf.create({"A": "${oc.env:MY_TOKEN}", "B": "b"})
    OmegaConf.register_new_resolver("settings", lambda: given)
    try:
        monkeypatch.setenv("MY_TOKEN", "canary")
        text = ENVIRONMENT.rstrip() + " ${settings:}\n"
        plan = roost.plan(parse(text), roost.Inventory.parse("1x1"))
    finally:
        OmegaConf.clear_resolver("settings")
    (group,) = plan.to_dict()["node_groups"]
    assert group["environments"][0]["env_vars"] == {"A": None, "B": "b"}
    assert "resolve_parse_tree" not in vars(given)  # the program's own config is as it was


def test_documents_that_are_changed_keep_their_secrets_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    document = load(referring("${oc.env:MY_TOKEN}", monkeypatch))
    for changed in (
        with_rules(document, {"a": {"node_group": "g", "placement": "0"}}),
        load(document, ["+mine=1"]),
    ):
        assert "canary" not in json.dumps(roost.plan(changed, roost.Inventory.parse("1x1")).to_dict())
    open_now = load(document, ["cluster.node_groups.0.env_configs.0.env_vars={MINE: canary}"])
    (group,) = roost.plan(open_now, roost.Inventory.parse("1x1")).to_dict()["node_groups"]
    assert group["environments"][0]["env_vars"] == {"MINE": "canary"}  # written anew, and no reference


def test_node_groups_that_a_program_gives_keep_their_secrets_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "canary")
    variables = {"A": "${oc.env:MY_TOKEN}", "B": "${.A}", "C": "${mine.open}", "D": "${mine.password}"}
    group = {"label": "g", "node_ranks": 0, "env_configs": [{"node_ranks": 0, "env_vars": variables}]}
    section = {"num_nodes": "${mine.nodes}", "node_groups": [group]}
    mine = {"open": "x", "password": "canary", "nodes": 1}
    config = OmegaConf.create({"mine": mine, "cluster": section})
    grouped = roost.Inventory.parse("1x1").grouped(config.cluster.node_groups)
    plan = roost.plan(
        {"cluster": {"component_placement": {"a": {"node_group": "g", "placement": 0}}}}, grouped
    )
    assert dict(plan.inventory.environment("g", 0).env_vars) == {
        **{"A": "canary", "B": "canary"},
        **{"C": "x", "D": "canary"},
    }
    (saved,) = plan.to_dict()["node_groups"]
    assert saved["environments"][0]["env_vars"] == {"A": None, "B": None, "C": "x", "D": None}


@pytest.mark.parametrize(
    "secret",
    ["canary" * 40, "first,canary:second", "0-canary", "canary\ncanary", "-----BEGIN KEY-----\ncanary"],
)
@pytest.mark.parametrize(
    "key", ["num_nodes", "component_placement.a.placement", "component_placement.a.node_group", "layout"]
)
def test_errors_show_no_part_of_a_secret(key: str, secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", secret)
    with pytest.raises(roost.ConfigurationError) as caught:
        roost.plan(parse(REFERENCE), "1x1", overrides=[f"+cluster.{key}=${{oc.env:MY_TOKEN}}"])
    assert "canary" not in str(caught.value)
    assert "canary" not in str([finding.to_dict() for finding in caught.value.findings])


def test_reasons_of_resolvers_show_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "[canary]canary")
    with pytest.raises(roost.ConfigurationError, match="cannot resolve") as caught:
        roost.plan(parse(REFERENCE), "1x1", overrides=["cluster.num_nodes=${oc.decode:${oc.env:MY_TOKEN}}"])
    assert "canary" not in str(caught.value)


def test_a_short_secret_leaves_other_messages_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "8")
    with pytest.raises(roost.ConfigurationError, match="accelerator 8 does not exist") as caught:
        roost.plan(parse(REFERENCE), "1x1", overrides=["cluster.component_placement.a.placement=0-8"])
    assert "***" not in str(caught.value)
    monkeypatch.setenv("MY_TOKEN", "eh")
    with pytest.raises(roost.ConfigurationError, match=r"'\*\*\*' does not fit"):
        roost.plan(parse(REFERENCE), "1x1", overrides=["cluster.num_nodes=${oc.env:MY_TOKEN}"])


@pytest.mark.parametrize(
    ("key", "name"), [("node_groups.0.label", "label"), ("node_groups.0.hardware.type", "type")]
)
def test_a_secret_is_no_name(key: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    document = referring("${my.open}", monkeypatch)
    overrides = [f"cluster.{key}=${{my.password}}", "cluster.component_placement.a=0"]
    with pytest.raises(roost.ConfigurationError, match=f"the {name} comes from a secret") as caught:
        roost.plan(document, roost.Inventory.parse("1x1"), overrides=overrides)
    assert caught.value.codes == ("RC105",)
    assert "canary" not in str(caught.value)
