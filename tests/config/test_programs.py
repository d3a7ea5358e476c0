"""The sections `workers` and `driver` of a job file."""

from __future__ import annotations

from typing import Any

import pytest

from roost.config.document import parse
from roost.config.job import read_job
from roost.config.program import (
    Roles,
    driver_config,
    has_program,
    program_problems,
    read_program,
    unmatched,
)
from roost.errors import Finding, render

JOB = """\
cluster: {component_placement: {actor: 0, "rollout,env": 1}}
lr: 1e-4
"""


def problems(text: str) -> list[tuple[str, str]]:
    return [(found.code, found.what) for found in program_problems(parse(JOB + text))]


def carets(findings: list[Finding]) -> list[tuple[int, str]]:
    """The line of each finding, and what its caret marks there."""
    places = [found.where for found in findings]
    return [
        (place.line, place.excerpt[place.column - 1 :][: place.length])
        for place in places
        if place is not None
    ]


def test_both_forms_and_keys_for_several_components() -> None:
    document = parse(
        JOB
        + "workers:\n"
        + "  actor: {class: my.module:Actor, args: {lr: '${lr}', steps: 1_000, tags: [a, {b: 2}]}}\n"
        + "  rollout, env: my.module:Outer.Inner\n"
        + "driver: my.module:main\n"
    )
    program, findings = read_program(document)
    assert not findings
    assert program is not None
    assert list(program.workers) == ["actor", "rollout", "env"]
    assert program.workers["actor"].import_path == "my.module:Actor"
    assert program.workers["actor"].args == {"lr": 1e-4, "steps": 1000, "tags": ["a", {"b": 2}]}
    assert program.workers["env"].import_path == "my.module:Outer.Inner"
    assert program.workers["env"].args == {}
    assert program.driver == "my.module:main"
    assert program_problems(document) == []


def test_a_driver_is_not_needed() -> None:
    program, findings = read_program(parse(JOB + "workers: {actor: {class: a:B, args: }}\n"))
    assert (program and program.driver, findings) == (None, [])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "workers: 4\n",
        "workers: [a, b]\n",
        "workers: {num: 4, kind: thread}\n",
        "workers: {actor: a.b}\n",
        "workers: {data: {class_name: Loader}}\n",
        "workers: 4\ndriver: osmesa\n",
        "driver: osmesa\n",
        "driver: 7\nworkers: {num: 4}\n",
    ],
)
def test_what_belongs_to_training_code_is_left_alone(text: str) -> None:
    document = parse(JOB + text)
    assert not has_program(document)
    assert program_problems(document) == []
    assert read_job(document)[1] == []


MISTAKES = """\
workers:
  actor: {clas: my.module:Actor}
  rollout: my.module.Rollout
  env: {class: 3, args: [1]}
driver: main
"""


def test_every_problem_at_once_with_its_place() -> None:
    findings = program_problems(parse(JOB + MISTAKES))
    assert [(found.code, found.what) for found in findings] == [
        ("RC101", "unknown key 'clas'"),
        ("RC103", "rollout: `my.module.Rollout` does not fit"),
        ("RC103", "class: `3` does not fit"),
        ("RC103", "args: a list does not fit"),
        ("RC103", "driver: `main` does not fit"),
    ]
    assert carets(findings) == [
        (4, "clas"),
        (5, "my.module.Rollout"),
        (6, "3"),
        (6, "[1]"),
        (7, "main"),
    ]
    text = render(findings)
    assert "did you mean 'class'? known: args, class" in text
    assert "it should be a module and a name in it: my.module:Rollout" in text
    assert "it should be a module and a name in it: my.module:Name" in text


def test_a_missing_class_is_named() -> None:
    text = "workers: {actor: {args: {}}, rollout: {class: a:B}}\n"
    assert ("RC102", "actor: 'class' is missing") in problems(text)


def test_both_sides_are_listed() -> None:
    findings = program_problems(parse(JOB + "workers:\n  actor: {class: a:B}\n  rolout: {class: a:B}\n"))
    assert [(found.code, found.what) for found in findings] == [
        ("RE122", "no worker for component 'rollout'"),
        ("RE122", "no worker for component 'env'"),
        ("RE122", "there is no component 'rolout'"),
    ]
    assert carets(findings) == [(3, "workers"), (3, "workers"), (5, "rolout")]
    assert {found.why for found in findings} == {
        "the job has actor, rollout, env; workers are given for actor, rolout"
    }
    assert "--skip rollout" in findings[0].remedy
    assert findings[2].remedy.startswith("did you mean 'rollout'?")


def test_a_component_has_one_worker() -> None:
    assert problems("workers: {'actor,env': {class: a:B}, rollout: a:B, env: a:C}\n") == [
        ("RC106", "component 'env' has two workers")
    ]


def test_an_interpolation_that_leads_nowhere() -> None:
    text = "workers: {actor: {class: a:B, args: {x: '${nothing}'}}, 'rollout,env': a:B}\n"
    findings = program_problems(parse(JOB + text))
    assert [found.code for found in findings] == ["RC006"]
    assert carets(findings) == [(3, "${nothing}")]


def test_a_broken_placement_does_not_hide_components() -> None:
    document = parse("cluster: {component_placement: {actor: 3-1}}\nworkers: {actor: {class: a:B}}\n")
    assert program_problems(document) == []  # the placement is what to mend


@pytest.mark.parametrize(
    ("text", "code"),
    [("", "RC102"), ("workers: 4\n", "RC103"), ("workers:\n", "RC103")],
)
def test_a_launch_says_what_to_write(text: str, code: str) -> None:
    program, findings = read_program(parse(JOB + text))
    assert program is None
    assert [found.code for found in findings] == [code]
    assert "workers: {actor: {class: my.module:Actor}, ...}" in findings[0].remedy


LAYOUT = """\
cluster:
  num_nodes: 2
  layout:
    actor_num_gpus_per_node: 4
    servers: [{groups: [{kind: prefill, num_gpus: 2}, {kind: placeholder, num_gpus: 2}]}]
    debug_train_only: DEBUG
workers:
  actor: {class: a:B}
"""


@pytest.mark.parametrize(
    ("debug", "more", "wrong"),
    [
        ("true", "", []),
        ("true", "  rollout.prefill: {class: a:B}\n", []),  # stays while the mode is switched
        ("false", "  rollout.prefill: {class: a:B}\n", []),
        ("false", "", ["no worker for component 'rollout.prefill'"]),
        (
            "false",
            "  'rollout.prefill,rollout.placeholder': {class: a:B}\n",
            ["component 'rollout.placeholder' is a placeholder and runs nothing"],
        ),
        ("true", "  env: {class: a:B}\n", ["there is no component 'env'"]),
    ],
)
def test_the_roles_of_a_layout(debug: str, more: str, wrong: list[str]) -> None:
    document = parse(LAYOUT.replace("DEBUG", debug) + more)
    assert [found.what for found in program_problems(document)] == wrong


def test_skipped_components_need_no_worker() -> None:
    document = parse(JOB + "workers: {actor: a:B}\n")
    program, _ = read_program(document)
    assert program is not None
    assert unmatched(program, Roles.of(read_job(document)[0]), document, skip=("rollout", "env")) == []


def test_the_driver_gets_the_whole_configuration() -> None:
    document = parse(
        "cluster: {component_placement: {actor: '4:7', env: 0-1:0-3}}\n"
        "trainer: {steps: 1_000_000, mask: 0x1f, rate: 1e-4, id: '1_000', time: 4:7, twice: '${trainer.rate}'}\n"
        "items: [1_0, '???']\n"
    )
    config: Any = driver_config(document)
    assert (config.trainer.steps, config.trainer.mask, config.trainer.rate) == (1_000_000, 31, 1e-4)
    assert (config.trainer.id, config.trainer.time) == ("1_000", "4:7")
    assert config["items"][0] == 10
    assert config.cluster.component_placement.actor == "4:7"
    config.trainer.rate = 2
    assert config.trainer.twice == 2  # resolved when it is read


def test_a_configuration_that_omegaconf_refuses() -> None:
    with pytest.raises(ValueError, match=r"RC006.*OmegaConf refuses"):
        driver_config(parse("cluster: {}\nformat: '${'\n"))


@pytest.mark.parametrize("number", ["0x_", "0b_", "9" * 5_000])
def test_a_number_that_python_cannot_read_stays_text(number: str) -> None:
    document = parse(JOB + f"workers: {{actor: m:A, rollout: m:B, env: m:C}}\nseed: {number}\n")
    assert program_problems(document) == []
    assert driver_config(document).seed == number
