"""`roost schema`: what roost reads fits the schema of jobs, and what it prints fits those of its outputs."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import roost
from roost.cli.output_schemas import OUTPUTS, output_schema
from roost.cli.validate import problems_of
from roost.cli.verbs import VERBS
from roost.config.document import parse
from roost.config.job_schema import job_schema
from roost.errors import ClusterError, errors_in

ROOT = Path(__file__).parents[2]
JOBS = [
    *(
        path.read_text()
        for path in sorted((ROOT / "examples").glob("*.yaml"))
        if "\ncluster:" in f"\n{path.read_text()}"
    ),
    *(
        body
        for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
        for kind, body in re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
        if kind == "yaml" and re.search(r"^cluster:", body, re.MULTILINE) and "(wrong)" not in body
    ),
]
PROGRAM = {"cluster": {"component_placement": {"actor": "0-7"}}, "workers": {"actor": {"class": "m:A"}}}


def job(**cluster: Any) -> dict[str, Any]:
    return {"cluster": {"component_placement": {"actor": "0-7"}, **cluster}}


@pytest.fixture(scope="module")
def fits() -> Any:
    schema = job_schema()
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema).is_valid


def test_the_verb_prints_it(cli: Any) -> None:
    assert cli("schema").data == job_schema()
    assert cli("schema", "--of", "diff").data == output_schema("diff")
    assert cli("schema", "--of", "nothing").code == 2


def test_every_job_of_the_docs_and_examples_fits(fits: Any) -> None:
    assert len(JOBS) > 10
    for text in JOBS:
        assert fits(parse(text).data), text
        assert fits(yaml.safe_load(text)), text  # an editor reads 4:7 and yes as YAML 1.1 does


@pytest.mark.parametrize(
    "good",
    [
        job(num_nodes="${nodes}", node_groups="${groups}", shares={"actor": "${part}"}),
        job(node_groups=[{"label": 4090, "node_ranks": [0, "2-3"]}]),
        job(profiling=True, nsight={}),
        {**job(), "training": {"lr": 1}, "workers": 8},
        {**job(), "workers": {"loader": 4}},
        {**PROGRAM, "driver": "m:main"},
        {**job(), "workers": {"actor": "m:A"}, "driver": "m:main"},
        {
            **job(),
            "supervise": {"actor": {"policy": "relocate", "within": "1h", "ping": 2, "spare_nodes": 3}},
        },
        {"cluster": {"layout": {"colocate": True, "servers": [{"groups": [{"num_gpus": 8}]}]}}},
    ],
)
def test_what_roost_reads_fits(fits: Any, good: dict[str, Any]) -> None:
    assert fits(good)


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"cluster": []},
        job(num_nodes=0),
        job(num_nodes="two"),
        job(nodegroups=[]),
        job(node_groups=[{"label": "a"}]),
        job(shares={"actor": 2}),
        job(component_placement={"actor": {"node_group": "a"}}),
        {"cluster": {"layout": {"servers": [{"groups": []}]}}},
        {**job(), "supervise": {"actor": {"policy": "never"}}},
        {**job(), "supervise": {"actor": {"within": "soon"}}},
        {**PROGRAM, "workers": {"actor": {"class": "m:A", "arguments": {}}}},
        {**job(), "workers": {"actor": 4}, "driver": "m:main"},
    ],
)
def test_what_roost_refuses_does_not_fit(fits: Any, bad: dict[str, Any], tmp_path: Path) -> None:
    assert not fits(bad)
    path = tmp_path / "bad.yaml"
    path.write_text(json.dumps(bad))
    assert errors_in(problems_of(str(path), None))


# -- outputs -----------------------------------------------------------------------------------------------

PROFILE = "profile: {batch: 8, flow: {actor: []}, components: {actor: {seconds: {8: 10.0}}}}\n"
JOB = ("job.yaml", "--on", "2x8", "--json")
COMMANDS = [
    ("plan", *JOB),
    ("plan", "layout.yaml", "--on", "3x8", "--json"),
    ("plan", "wrong.yaml", "--on", "2x8", "--json"),
    ("show", "plan.json", "--json"),
    ("show", "wrong.yaml", "--json"),
    ("validate", "job.yaml", "wrong.yaml", "--json"),
    ("explain", "layout.yaml", "rollout:1", "--on", "3x8", "--json"),
    ("explain", "plan.json", "actor", "--json"),
    ("explain", "RP104", "--json"),
    ("explain", "wrong.yaml", "actor", "--on", "2x8", "--json"),
    ("diff", "job.yaml", "layout.yaml", "--on", "3x8", "--json"),
    ("diff", "job.yaml", "wrong.yaml", "--on", "3x8", "--json"),
    ("profile", "wrong.yaml", "--sizes", "actor=1", "--on", "1x8", "--json"),
    ("suggest", "job.yaml", "--profile", "profile.yaml", "--on", "1x8", "--json"),
    ("suggest", "job.yaml", "--profile", "missing.yaml", "--on", "1x8", "--json"),
    ("simulate", "tree.json", "--profile", "profile.yaml", "--on", "1x8", "--json"),
    ("simulate", "job.yaml", "--profile", "profile.yaml", "--on", "1x8", "--json"),
    ("launch", "wrong.yaml", "--on", "1x1", "--json"),
    ("up", "slurm", *JOB),
    ("up", "kubernetes", *JOB, "--image", "i", "--ray-version", "2.52.0"),
    ("up", "hosts", *JOB, "--head", "h"),
    ("up", "hosts", "wrong.yaml", "--on", "2x8", "--json"),
    ("doctor", "--json"),
]
NEEDING_RAY = {"embedded", "status", "logs", "stacks", "down"}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_outputs_fit_their_published_schemas(cli: Any, command: tuple[str, ...]) -> None:
    group = {"label": "g", "node_ranks": "0-1", "env_configs": [{"node_ranks": 0, "env_vars": {"A": 1}}]}
    rule = {"node_group": "g", "placement": "0-7"}
    Path("job.yaml").write_text(
        json.dumps(job(num_nodes=2, component_placement={"actor": rule}, node_groups=[group]))
    )
    Path("layout.yaml").write_text(
        "cluster: {layout: {rollout_num_gpus: 16, rollout_num_gpus_per_engine: 16}}\nsupervise: {actor: {restarts: 1}}\n"
    )
    Path("wrong.yaml").write_text("cluster:\n  component_placement: {actor: 7-0}\n")
    Path("profile.yaml").write_text(PROFILE)
    Path("tree.json").write_text('{"component": "actor", "accelerators": 8, "group": "cluster"}')
    roost.save_plan(roost.plan("job.yaml", roost.Inventory.parse("2x8")), "plan.json")
    done = cli(*command)
    schema = output_schema(command[0])
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(done.data, schema, jsonschema.Draft202012Validator)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**done.data, "more": 1}, schema, jsonschema.Draft202012Validator)


def test_every_verb_that_prints_json_publishes_its_schema() -> None:
    for verb in VERBS:
        command = import_module(f"roost.cli.{verb}").command
        for one in getattr(command, "commands", {verb: command}).values():
            options = {name for parameter in one.params for name in parameter.opts}
            assert ("--json" in options) == (verb in OUTPUTS), one.name
    assert {command[0] for command in COMMANDS} == {*OUTPUTS} - NEEDING_RAY


def test_a_refusal_is_printed_as_json_by_every_verb(monkeypatch: pytest.MonkeyPatch, cli: Any) -> None:
    def refuse(address: str | None, job: str | None) -> str:
        raise ClusterError(code="RE101", what="there is no Ray")

    monkeypatch.setattr("roost.cli.status.chosen_address", refuse)
    done = cli("status", "nope", "--json")
    assert (done.code, "RE101" in done.err, cli("status", "nope").out) == (4, True, "")
    for verb in {*OUTPUTS} - {"validate", "launch"}:  # these have findings among their results
        jsonschema.validate(done.data, output_schema(verb), jsonschema.Draft202012Validator)
