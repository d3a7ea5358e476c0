"""Small Hydra projects: roost composes what Hydra composes, and finds the file that set a wrong value.

«8-15» marks the value of a project that is made wrong, so each project also says where the error must point.
"""

from __future__ import annotations

import re
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

import roost
from roost.cli.validate import problems_of
from roost.config.document import JobFile, as_written, load
from roost.config.job import read_job
from roost.errors import Finding, errors_in

MARK = re.compile("«(.*?)»")
TWO = "num_nodes: 2\ncomponent_placement: {actor: 0-7, rollout: 8-15}\n"


@dataclass(frozen=True)
class Project:
    files: dict[str, str]  # by their path in `conf`
    overrides: tuple[str, ...] = ()
    config: str = "config.yaml"
    config_dir: str | None = None


PROJECTS = {
    "groups and their overrides": Project(
        {
            "config.yaml": "defaults: [{cluster: two}, _self_]\nlr: 0.1\n",
            "cluster/two.yaml": TWO,
            "cluster/four.yaml": "num_nodes: 4\ncomponent_placement:\n  actor: 0-7\n  rollout: «8-31»\n",
        },
        ("cluster=four", "lr=0.2"),
    ),
    "nested defaults": Project(
        {
            "config.yaml": "defaults:\n  - cluster: two\n",
            "cluster/two.yaml": "defaults:\n  - component_placement: small\n  - common\nnum_nodes: 2\n",
            "cluster/common.yaml": "shares: {actor: 1}\n",
            "cluster/component_placement/small.yaml": "# all on one node\nactor: «0-7»\n",
        },
    ),
    "interpolation of values and of the list": Project(
        {
            "config.yaml": "defaults: [{model: big}, {cluster: 'for_${model}'}, _self_]\nlast: 7\n",
            "model/big.yaml": "layers: 48\n",
            "cluster/for_big.yaml": "component_placement:\n  actor: 0-${last}\n  rollout: '«${.actor}»'\n",
        },
    ),
    "packages": Project(
        {
            "config.yaml": "defaults:\n  - place@cluster.component_placement: small\n  - place@other: small\n  - nodes\n",
            "place/small.yaml": "actor: «0-7»\nrollout: 8-15\n",
            "nodes.yaml": "# @package cluster\nnum_nodes: 2\n",
        },
    ),
    "_self_ first": Project(
        {
            "config.yaml": "defaults:\n  - _self_\n  - cluster: two\ncluster:\n  component_placement: {rollout: 0-1}\n",
            "cluster/two.yaml": "component_placement:\n  actor: 0-7\n  rollout: «8-15»\n",
        },
    ),
    "_self_ last": Project(
        {
            "config.yaml": "defaults: [{cluster: two}, _self_]\ncluster:\n  component_placement: {rollout: «0-1»}\n",
            "cluster/two.yaml": TWO,
        },
    ),
    "optional, missing and null": Project(
        {
            "config.yaml": (
                "defaults: [{optional cluster: none}, {optional place@cluster: both}, {db: null}, _self_]\n"
                "cluster:\n  num_nodes: ???\n"
            ),
            "place/both.yaml": "num_nodes: «2»\ncomponent_placement: {actor: 0-7}\n",
            "db/mysql.yaml": "port: 1\n",
        },
    ),
    "an experiment overrides a group": Project(
        {
            "config.yaml": "defaults: [{cluster: two}, {place@cluster.component_placement: small}, _self_]\n",
            "cluster/two.yaml": "num_nodes: 2\n",
            "cluster/four.yaml": "num_nodes: 4\n",
            "place/small.yaml": "{actor: 0-7}\n",
            "place/large.yaml": "actor: 0-15\nrollout: «16-31»\n",
            "experiment/a.yaml": (
                "# @package _global_\ndefaults:\n  - override /cluster: four\n"
                "  - override /place@cluster.component_placement: large\nlr: 1e-3\n"
            ),
        },
        ("+experiment=a",),
    ),
    "absolute names and several options": Project(
        {
            "config.yaml": "defaults: [cluster: [base, more]]\n",
            "cluster/base.yaml": "defaults: [/shared/nodes@, _self_]\ncomponent_placement: {actor: 0-7}\n",
            "cluster/more.yaml": "component_placement:\n  reward: '«8-15»'\n",
            "shared/nodes.yaml": "num_nodes: 2\n",
        },
    ),
    "overrides of values": Project(
        {
            "config.yaml": "defaults: [{cluster: two}, _self_]\na: {b: [1, 2], c: 3, d: 4}\n",
            "cluster/two.yaml": TWO,
        },
        (
            "a.b=[3,{x:4}]",
            "~a.c",
            "~a.d=4",
            "+a.e={f:1}",
            "++a.e.g='it is'",
            "cluster.num_nodes=3",
            "+cluster.component_placement.reward=«16-23»",
        ),
    ),
    "overrides of groups": Project(
        {
            "config.yaml": "defaults: [{cluster: two}, {place@cluster.component_placement: small}]\n",
            "cluster/two.yaml": "num_nodes: 2\ncomponent_placement: {rollout: «8-15»}\n",
            "place/small.yaml": "actor: zero\nrollout: zero\n",
            "place/large.yaml": "actor: 0-15\n",
            "model/big.yaml": "layers: 48\n",
        },
        ("~place@cluster.component_placement", "+place@other=large", "+model=big", "model.layers=2"),
    ),
    "a config in a folder, and lists": Project(
        {
            "runs/one.yaml": (
                "# @package _global_\ndefaults: [{/cluster@_global_.cluster: two}, _self_]\n"
                "cluster:\n  node_groups:\n  - {label: a, node_ranks: 0}\n  - {label: b, node_ranks: «1»}\n"
            ),
            "cluster/two.yaml": TWO + "node_groups: [{label: x, node_ranks: 0}]\n",
        },
        config="runs/one.yaml",
        config_dir="conf",
    ),
    "a second directory and a search path": Project(
        {
            "config.yaml": "defaults: [{cluster: two}, {place: far}, _self_]\nhydra: {searchpath: ['file://${oc.env:PLACE}']}\n",
            "../extra/cluster/two.yaml": TWO,
            "../far/place/far.yaml": "# @package cluster.component_placement\nreward: «0-7»\n",
        },
        config_dir="extra",
    ),
}


def written(project: Project, place: Path, wrong: bool) -> tuple[JobFile, list[str], tuple[str, int, int]]:
    """The files of the project. Also its overrides, and the file, line and column of the mark."""
    marked = []

    def unmarked(text: str, name: str) -> str:
        for number, line in enumerate(text.splitlines(), 1):
            if found := MARK.search(line):
                marked.append((name, number, found.start() + 1))
        return MARK.sub("8-x" if wrong else r"\1", text)

    for name, text in project.files.items():
        path = place / "conf" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shown = str(place / name[3:]) if name.startswith("../") else f"conf/{name}"
        path.write_text(unmarked(text, shown))
    overrides = [unmarked(one, "<override>") for one in project.overrides]
    (where,) = marked
    return JobFile(f"conf/{project.config}", project.config_dir), overrides, where


def by_hydra(project: Project, place: Path, overrides: list[str]) -> Any:
    """What Hydra composes, through its own API alone."""
    import hydra

    more = (
        [f"hydra.searchpath=[file://{place}/extra,file://{place}/far]"]
        if project.config_dir == "extra"
        else []
    )
    with hydra.initialize_config_dir(str(place / "conf"), version_base="1.3"):
        return hydra.compose(project.config.removesuffix(".yaml"), [*more, *overrides])


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLACE", str(tmp_path / "far"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("project", PROJECTS.values(), ids=PROJECTS)
def test_a_project(project: Project, tmp_path: Path) -> None:
    file, overrides, _ = written(project, tmp_path, wrong=False)
    right, document = by_hydra(project, tmp_path, overrides), as_written(file, overrides)
    assert document.data == OmegaConf.to_container(right, resolve=False)
    assert load(document).data["cluster"] == OmegaConf.to_container(right.cluster, resolve=True)
    assert errors_in(read_job(document)[1]) == []
    file, overrides, (name, line, column) = written(project, tmp_path, wrong=True)
    where = [finding.where for finding in problems_of(file, None, overrides=tuple(overrides))]
    assert {(one.source, one.line) for one in where if one} == {(name, line)}
    assert all(one and column in (one.column, one.column - 2) for one in where), (where, column)


def project(files: dict[str, str], name: str = "conf/config.yaml") -> str:
    for path, text in files.items():
        Path("conf", path).parent.mkdir(parents=True, exist_ok=True)
        Path("conf", path).write_text(text)
    return name


PLAIN = {"config.yaml": "defaults: [{cluster: two}, _self_]\n", "cluster/two.yaml": TWO}


def refusal(file: Any, *overrides: str) -> Finding:
    with pytest.raises(roost.ConfigurationError) as caught:
        as_written(file, overrides)
    (finding,) = caught.value.findings
    return finding


REFUSED = [  # files on top of PLAIN, overrides: the code, a part of the message, the file and line
    (
        {"config.yaml": "defaults:\n  - cluster: tow\n"},
        (),
        "RC008",
        "Could not find 'cluster/tow'",
        "conf/config.yaml",
        2,
    ),
    ({"config.yaml": "defaults:\n  - base_schema\n"}, (), "RC008", "base_schema", "conf/config.yaml", 2),
    ({}, ("cluster=tow",), "RC008", "Could not find 'cluster/tow'", "<override>", 1),
    ({}, ("cluster.num_node=3",), "RC008", "Could not override 'cluster.num_node'", "<override>", 1),
    (
        {},
        ("~cluster.x",),
        "RC008",
        "Could not delete from config. 'cluster.x' does not exist",
        "<override>",
        1,
    ),
    ({}, ("cluster.num_nodes=[1",), "RC007", "cannot parse", "<override>", 1),
    ({}, ("cluster.num_nodes=1,2",), "RC008", "num_nodes=1,2", "<override>", 1),
    (
        {"cluster/two.yaml": "a: 1\nb: 2\na: 3\n"},
        (),
        "RC003",
        "'a' is written twice",
        "conf/cluster/two.yaml",
        3,
    ),
    (
        {"cluster/two.yaml": "a: !!python/name:os.system x\n"},
        (),
        "RC005",
        "a tag is not",
        "conf/cluster/two.yaml",
        1,
    ),
    ({"cluster/two.yaml": "a: [1\n"}, (), "RC002", "never closed", "conf/cluster/two.yaml", 1),
    ({"cluster/two.yaml": "- 1\n"}, (), "RC103", "a config is a mapping", "conf/cluster/two.yaml", 1),
    ({"cluster/two.yaml": "defaults: [two]\n"}, (), "RC008", "include each other", "conf/config.yaml", 1),
    ({"cluster/two.yaml": "a: 1\nb: ${\n"}, (), "RC006", "cannot resolve '${'", "conf/cluster/two.yaml", 2),
    ({}, ("a=1\nb",), "RC007", "is not an override", "<override>", 1),
]


@pytest.mark.parametrize(("files", "overrides", "code", "what", "source", "line"), REFUSED)
def test_a_refused_composition(
    files: dict[str, str], overrides: tuple[str, ...], code: str, what: str, source: str, line: int
) -> None:
    finding = refusal(project(PLAIN | files), *overrides)
    assert (finding.code, what in finding.what) == (code, True), finding
    assert finding.where is not None
    assert (finding.where.source, finding.where.line) == (source, line)


@pytest.mark.parametrize("value", ["1,2", "[1"])
def test_advice_about_quotes_survives_a_shell(value: str) -> None:
    assert "\"key='a,b'\"" in refusal(project(PLAIN), f"cluster.num_nodes={value}").remedy


def test_configs_that_multiply_are_bounded() -> None:
    doubling = {f"a{n}.yaml": f"defaults: [a{n + 1}@x, a{n + 1}@y]\n" for n in range(40)}
    finding = refusal(project({"config.yaml": "defaults: [a0]\n", "a40.yaml": "v: 1\n"} | doubling))
    assert (finding.code, "its `defaults` bring more than" in finding.what) == ("RC004", True)


def test_a_secret_is_not_shown() -> None:
    for override in ("cluster.hf_token=hunter2", "+cluster.password=[hunter2"):
        assert "hunter2" not in str(roost.ConfigurationError(refusal(project(PLAIN), override)))
    unclosed = {"cluster/two.yaml": "password: ${hunter2\n"}
    assert "hunter2" not in str(roost.ConfigurationError(refusal(project(PLAIN | unclosed))))


def test_numbers_that_yaml_rewrites_stay_text_in_the_cluster_section() -> None:
    job = project(
        {"config.yaml": "defaults: [_self_]\ncluster: {component_placement: {actor: 4:7}}\nother: 4:7\n"}
    )
    data = as_written(job).data
    assert (data["cluster"]["component_placement"]["actor"], data["other"]) == ("4:7", 247)


def test_the_state_of_the_program_stays() -> None:
    import hydra
    from hydra.core.global_hydra import GlobalHydra
    from hydra.version import VersionBase, getbase
    from omegaconf.basecontainer import BaseContainer

    job = project(PLAIN)
    try:
        with hydra.initialize_config_dir(str(Path("conf").absolute()), version_base="1.3"):
            OmegaConf.register_new_resolver("now", lambda: "mine", replace=True)
            own, version, base = GlobalHydra.instance(), VersionBase.instance(), getbase()
            refusal(job, "cluster=tow")
            threads = [threading.Thread(target=as_written, args=(job,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert GlobalHydra.instance() is own
            assert GlobalHydra.instance().is_initialized()
            assert VersionBase.instance() is version
            assert getbase() == base
            assert hydra.compose("config").cluster.num_nodes == 2  # also its source of files is Hydra's
            assert OmegaConf.create({"a": "${now:}"}).a == "mine"
        assert as_written(job).data["cluster"]["num_nodes"] == 2
        assert not GlobalHydra.instance().is_initialized()
    finally:
        BaseContainer._resolvers.pop("now")


def test_without_hydra_only_compositions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hydra", None)
    monkeypatch.delitem(sys.modules, "roost.config.hydra_composition", raising=False)  # it is imported anew
    job = project(PLAIN | {"plain.yaml": "cluster: {num_nodes: 2}\n"})
    finding = refusal(job)
    assert (finding.code, finding.remedy) == ("RC008", "pip install 'roost[hydra]'")
    assert as_written("conf/plain.yaml", ["cluster.num_nodes=3"]).data["cluster"]["num_nodes"] == 3


def test_configs_of_a_program_and_of_a_package() -> None:
    """They have no position, and do not lend theirs to a file."""
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store("two", {"num_nodes": -1}, group="registered")
    job = project(PLAIN | {"config.yaml": "defaults: [{cluster: two}, {registered@cluster: two}]\n"})
    document = as_written(job)
    assert document.data["cluster"]["num_nodes"] == -1
    assert ("cluster", "num_nodes") not in document.positions.values
    (problem,) = errors_in(read_job(document)[1])
    assert problem.where is not None
    assert problem.where.source == "conf/config.yaml"
