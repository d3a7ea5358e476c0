"""Where a configuration comes from: files, dicts, DictConfigs, and overrides on top."""

from __future__ import annotations

import copy
import inspect
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

import roost
from roost import Inventory
from roost.config.document import Document, load, parse, read_file

INVENTORY = Inventory.parse("2x8")
JOB = """\
cluster:
  num_nodes: 2
  component_placement:
    actor: 0-7
    pair: 4:0
    rollout: {node_group: b, placement: "0-3"}
  node_groups:
    - {label: a, node_ranks: 0}
    - label: b
      node_ranks: 1
      env_configs:
        - {node_ranks: 1, env_vars: {MASK: 010, FLAG: off, TIME: 1:30, WORD: "off"}}
    - {label: c, node_ranks: 0-1}
"""


def environment(source: Any, label: str = "b", overrides: list[str] | None = None) -> dict[str, Any]:
    placed = roost.ComponentPlacement(source, INVENTORY, overrides or [])
    return dict(placed.inventory.environment(label, 1).env_vars)


def ranks(source: Any, name: str, overrides: list[str] | None = None) -> list[int]:
    return roost.ComponentPlacement(source, INVENTORY, overrides or []).get_hardware_ranks(name)


# -- sources ---------------------------------------------------------------------------------------------


def test_a_path_as_text_or_object(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    assert ranks(str(file), "actor") == ranks(file, "actor") == list(range(8))


def test_a_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + JOB.encode())
    assert ranks(file, "actor") == list(range(8))
    assert parse("\ufeffcluster: 1").data == {"cluster": 1}


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_ends(tmp_path: Path, newline: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes(JOB.replace("0-7", "7-0").replace("\n", newline).encode())
    with pytest.raises(roost.ConfigurationError) as caught:
        roost.plan(file, INVENTORY)
    where = caught.value.findings[0].where
    assert where is not None
    assert (where.line, where.column, where.excerpt) == (4, 12, "    actor: 7-0")


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("missing.yaml", None, "RC001"),
        ("latin.yaml", b"a: \xe9", "RC001"),
        ("big.yaml", b"#" * 2_000_000, "RC004"),
    ],
)
def test_unreadable_files(tmp_path: Path, name: str, content: bytes | None, code: str) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(roost.ConfigurationError) as caught:
        read_file(file)
    assert caught.value.codes == (code,)
    assert name in str(caught.value)


def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes(b"a: 1\nb: \xe9\n")
    with pytest.raises(roost.ConfigurationError, match=r"line 2 is not UTF-8 text\n.*save it as UTF-8"):
        read_file(file)


def test_values_are_used_as_written(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    assert ranks(file, "pair") == [4]
    assert environment(file) == {"MASK": "010", "FLAG": "off", "TIME": "1:30", "WORD": "off"}


def test_a_dict_can_only_say_what_it_holds() -> None:
    group = {
        "label": "b",
        "node_ranks": 1,
        "env_configs": [{"node_ranks": 1, "env_vars": {"A": 8, "B": True}}],
    }
    job = {"cluster": {"component_placement": {"actor": "0-7"}, "node_groups": [group]}}
    assert environment(job) == {"A": "8", "B": "True"}


def test_a_dict_config() -> None:
    config = OmegaConf.create({"n": 3, "cluster": {"component_placement": {"actor": "0-${n}"}}})
    assert ranks(config, "actor") == [0, 1, 2, 3]
    assert ranks(config, "actor", ["n=1"]) == [0, 1]
    assert config.cluster.component_placement.actor == "0-3"  # the caller's is left as it was


def test_a_part_of_a_dict_config_resolves_in_the_whole() -> None:
    whole = OmegaConf.create(
        {
            "sizes": {"last": 5},
            "mine": "${not_there}",
            "job": {
                "cluster": {"component_placement": {"actor": "${..first}-${sizes.last}", "first": "0"}},
                "other": "${not_there_either}",
            },
        }
    )
    whole.job.cluster.component_placement.actor = "2-${sizes.last}"
    del whole.job.cluster.component_placement["first"]
    assert ranks(whole.job, "actor") == [2, 3, 4, 5]
    assert ranks(whole.job, "actor", ["cluster.component_placement.actor=0-${sizes.last}"]) == list(range(6))


def test_node_groups_of_a_dict_config() -> None:
    config = OmegaConf.create(
        {"groups": [{"label": "a", "node_ranks": [0, 1]}, {"label": 7, "node_ranks": 1}]}
    )
    assert list(INVENTORY.grouped(config.groups).groups) == ["a", "7"]


@pytest.mark.parametrize(
    "config",
    [
        OmegaConf.create([1, 2]),
        OmegaConf.create({"cluster": {"component_placement": "${nothing}"}}),
        OmegaConf.create({"cluster": "???"}),
        OmegaConf.create({"job": {"cluster": {"num_nodes": "${nothing}"}}}).job,
    ],
)
def test_a_dict_config_that_is_wrong(config: Any) -> None:
    with pytest.raises(roost.ConfigurationError):
        roost.plan(config, INVENTORY)


def test_a_document_is_not_changed_by_loading_it() -> None:
    document = parse("n: 1\ncluster: {component_placement: {actor: '${n}', b: 010}}\n")
    texts = dict(document.positions.texts)
    loaded = load(document, ["cluster.component_placement.b=2"])
    assert loaded.data["cluster"]["component_placement"] == {"actor": 1, "b": 2}
    assert document.data["cluster"]["component_placement"] == {"actor": "${n}", "b": "010"}
    assert document.positions.texts == texts


# -- interpolations --------------------------------------------------------------------------------------


def test_kinds_of_interpolations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_TEST_RANKS", "0-1")
    text = """
base: {ranks: 0-3, which: ranks}
cluster:
  component_placement:
    plain: ${base.ranks}
    relative: ${.plain}
    nested: ${base.${base.which}}
    environment: ${oc.env:ROOST_TEST_RANKS}
    fallback: ${oc.env:ROOST_NOT_SET,'5'}
    selected: ${oc.select:base.ranks}
    whole: ${rule}
rule: {node_group: node, placement: 0-1}
"""
    placed = roost.ComponentPlacement(parse(text), INVENTORY)
    assert {name: placed.get_hardware_ranks(name) for name in placed.components} == {
        **{key: [0, 1, 2, 3] for key in ("plain", "relative", "nested", "selected")},
        "environment": [0, 1],
        "fallback": [5],
        "whole": [0, 1],
    }


def test_resolvers_may_give_lists_and_mappings() -> None:
    register = OmegaConf.register_new_resolver  # register_resolver from 2.4 on; before, that is another one
    if "replace" in inspect.signature(OmegaConf.register_resolver).parameters:
        register = OmegaConf.register_resolver
    register("roost_test_rules", lambda: {"a": {"placement": "0-3"}, "b": 4}, replace=True)
    register("roost_test_many", lambda count: ["0"] * count, replace=True)
    text = """
cluster:
  component_placement: ${roost_test_rules:}
  node_groups: [{label: g, node_ranks: '${oc.decode:"[0, 1]"}'}]
"""
    placed = roost.ComponentPlacement(parse(text), INVENTORY)
    assert {name: placed.get_hardware_ranks(name) for name in placed.components} == {
        "a": [0, 1, 2, 3],
        "b": [4],
    }
    assert placed.inventory.groups["g"].node_ranks == (0, 1)
    with pytest.raises(roost.ConfigurationError, match="more than 20,000 values"):
        load(parse("cluster: {node_groups: '${roost_test_many:30000}'}"))


def test_what_roost_does_not_read_need_not_resolve() -> None:
    text = "mine: ${nothing}\nactor: {model: {path: '${nothing}'}}\ncluster: {component_placement: {a: '${n}'}}\nn: 0"
    assert ranks(parse(text), "a") == [0]


def test_a_large_section_of_the_user_costs_nothing() -> None:
    data = {"rows": [{"x": number} for number in range(20_000)]}
    job = {"data": data, "n": 3, "cluster": {"component_placement": {"a": "0-${n}"}}}
    assert ranks(job, "a") == [0, 1, 2, 3]


# -- overrides -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", ["", "+", "++"])
def test_setting(mark: str) -> None:
    assert ranks(parse(JOB), "actor", [f"{mark}cluster.component_placement.actor=1:0"]) == [1]


def test_setting_what_was_not_there() -> None:
    document = load(parse(JOB), ["+cluster.component_placement.env=0-3:0-7", "+mine.depth.x=[1, {a: 010}]"])
    assert document.data["cluster"]["component_placement"]["env"] == "0-3:0-7"
    assert document.data["mine"] == {"depth": {"x": [1, {"a": "010"}]}}


def test_setting_under_an_empty_section() -> None:
    assert load(parse("cluster:\n"), ["cluster.num_nodes=2"]).data == {"cluster": {"num_nodes": 2}}


def test_a_section_needs_a_plus() -> None:
    with pytest.raises(roost.ConfigurationError, match="no section 'mien'"):
        load(parse("mine: 1\ncluster: {}\n"), ["mien=2"])
    assert load(parse("mine: 1\n"), ["mine=2"]).data == {"mine": 2}


@pytest.mark.parametrize(
    "override",
    [
        "cluster.component_placement.acter=0-3",
        "cluster.component_placement.acter.placement=0-3",
        "cluster.component_placement.my.env=0-3",
    ],
)
def test_a_component_needs_a_plus(override: str) -> None:
    with pytest.raises(roost.ConfigurationError, match="there is no component") as caught:
        load(parse(JOB), [override])
    finding = caught.value.findings[0]
    name = "my.env" if "my" in override else "acter"
    assert finding.code == "RC007"
    assert finding.where is not None
    assert finding.where.source == "<override>"
    assert finding.remedy.endswith(f"to add one write +cluster.component_placement.{name}=...")
    assert ("did you mean 'actor'?" in finding.remedy) == (name == "acter")


@pytest.mark.parametrize("mark", ["+", "++"])
def test_a_component_added_with_a_plus(mark: str) -> None:
    for job in (JOB, "cluster: {component_placement: }", "cluster:"):
        data = load(parse(job), [f"{mark}cluster.component_placement.acter=0-3"]).data
        assert data["cluster"]["component_placement"]["acter"] == "0-3"


def test_a_component_is_added_to_none_with_a_plus_too() -> None:
    with pytest.raises(roost.ConfigurationError, match=r"there are none; to add one write \+cluster"):
        load(parse("cluster:"), ["cluster.component_placement.actor=0-3"])


@pytest.mark.parametrize("job", ["cluster: 3", "cluster: {component_placement: 3}"])
def test_a_component_of_no_mapping(job: str) -> None:
    with pytest.raises(roost.ConfigurationError, match="is a value"):
        load(parse(job), ["cluster.component_placement.actor=0-3"])


def test_deleting() -> None:
    document = load(parse(JOB), ["~cluster.component_placement.rollout"])
    assert list(document.data["cluster"]["component_placement"]) == ["actor", "pair"]


def test_deleting_only_a_certain_value() -> None:
    document = load(parse(JOB), ["~cluster.component_placement.actor=0-7"])
    assert list(document.data["cluster"]["component_placement"]) == ["pair", "rollout"]
    for value in ("0-6", "", "null"):
        with pytest.raises(roost.ConfigurationError, match="has another value"):
            load(parse(JOB), [f"~cluster.component_placement.actor={value}"])


def test_keys_with_dots_in_them() -> None:
    job = "cluster: {component_placement: {my.env: 0-7, other.env: {placement: 1}}}"
    rules = ["cluster.component_placement.my.env=1", "cluster.component_placement.other.env.placement=2"]
    assert load(parse(job), rules).data["cluster"]["component_placement"] == {
        "my.env": 1,
        "other.env": {"placement": 2},
    }
    left = load(parse(job), ["~cluster.component_placement.my.env"]).data["cluster"]["component_placement"]
    assert list(left) == ["other.env"]
    assert load(parse("mine.a: {b: 1}"), ["mine.a.b=2"]).data == {"mine.a": {"b": 2}}


@pytest.mark.parametrize("override", ["cluster.num_nodes=", "cluster.component_placement.actor= "])
def test_no_text_is_not_null(override: str) -> None:
    with pytest.raises(roost.ConfigurationError) as caught:
        roost.plan(parse(JOB), INVENTORY, overrides=[override])
    assert [finding.where and finding.where.source for finding in caught.value.findings] == ["<override>"]
    assert load(parse(JOB), ["cluster.num_nodes=null"]).data["cluster"]["num_nodes"] is None


def test_keys_that_an_override_makes_are_found_in_it() -> None:
    made = load(parse(JOB), ["cluster.layouts.a.b=1"])
    for path in (("cluster", "layouts"), ("cluster", "layouts", "a"), ("cluster", "layouts", "a", "b")):
        span = made.key_span(path)
        assert span is not None
        assert span.source == "<override>"


@pytest.mark.parametrize("spelling", ["cluster.node_groups[0].label=x", "cluster.node_groups.0.label=x"])
def test_an_entry_of_a_list(spelling: str) -> None:
    labels = [group["label"] for group in load(parse(JOB), [spelling]).data["cluster"]["node_groups"]]
    assert labels == ["x", "b", "c"]


def test_deleting_an_entry_moves_the_others_with_their_texts() -> None:
    document = parse(JOB)
    assert environment(document, overrides=["~cluster.node_groups[0]"])["MASK"] == "010"
    with pytest.raises(roost.ConfigurationError) as caught:
        roost.plan(
            document, INVENTORY, overrides=["~cluster.node_groups[0]", "cluster.node_groups[1].label=b"]
        )
    assert caught.value.codes == ("RI102",)
    moved = load(document, ["~cluster.node_groups[0]"])
    span = moved.value_span(("cluster", "node_groups", 1, "label"))
    assert span is not None
    assert (span.line, span.excerpt.strip()) == (13, "- {label: c, node_ranks: 0-1}")
    assert moved.value_span(("cluster", "node_groups", 2, "label")) is None


def test_overrides_leave_the_source_alone() -> None:
    job = {
        "cluster": {"component_placement": {"actor": "0-7"}, "node_groups": [{"label": "a", "node_ranks": 0}]}
    }
    load(
        job, ["cluster.component_placement.actor=0", "cluster.node_groups[0].label=b", "~cluster.node_groups"]
    )
    assert job["cluster"]["component_placement"] == {"actor": "0-7"}
    assert job["cluster"]["node_groups"] == [{"label": "a", "node_ranks": 0}]


def test_one_override_may_be_a_plain_text() -> None:
    assert load(parse(JOB), "cluster.num_nodes=1").data["cluster"]["num_nodes"] == 1


def test_all_wrong_overrides_are_reported() -> None:
    with pytest.raises(roost.ConfigurationError) as caught:
        load(parse(JOB), ["nonsense", "~cluster.nothing", "a..b=1", "cluster.num_nodes=[", "=3"])
    assert caught.value.codes == ("RC007", "RC007", "RC007", "RC002", "RC007")


def test_positions_inside_an_override() -> None:
    override = "cluster.component_placement={actor: 0-7, rollout: 7-0}"
    with pytest.raises(roost.ConfigurationError) as caught:
        roost.plan(parse(JOB), INVENTORY, overrides=[override])
    where = caught.value.findings[0].where
    assert where is not None
    assert where.source == "<override>"
    assert where.excerpt[where.column - 1 :][: where.length] == "7-0"


def test_a_document_without_positions_points_nowhere() -> None:
    assert Document({"cluster": 1}).finding("RC103", "x", ("cluster",)).where is None


# -- corners of overrides, interpolations and files ------------------------------------------------------


THREE_GROUPS = """\
cluster:
  num_nodes: 2
  component_placement: {actor: 0-7}
  node_groups:
    - {label: a, node_ranks: 0}
    - {label: b, node_ranks: 1}
    - {label: c, node_ranks: 0-1}
"""


def test_loading_changes_nothing_of_a_document() -> None:
    document = parse(THREE_GROUPS)
    before = copy.deepcopy((document.data, document.positions))
    load(document, ["cluster.num_nodes=1", "~cluster.node_groups[1]", "+cluster.component_placement.x=[0]"])
    assert (document.data, document.positions) == before


def test_deleting_in_the_middle_moves_only_what_follows() -> None:
    keys = load(parse(THREE_GROUPS), ["~cluster.node_groups[1]"]).positions.keys
    lines = [keys[("cluster", "node_groups", index, "label")].line for index in (0, 1)]
    assert lines == [5, 7]
    assert ("cluster", "node_groups", 2, "label") not in keys


@pytest.mark.parametrize("override", ["cluster..num_nodes=1", "+a..b=1", "cluster.=1", "+a[x=1", "+a]=1"])
def test_what_is_no_path(override: str) -> None:
    with pytest.raises(roost.ConfigurationError, match="is not a path of keys"):
        load(parse(THREE_GROUPS), [override])


def test_sections_roost_reads_need_no_plus() -> None:
    assert load(parse(""), ["rollout.tensor_parallel_size=2"]).data == {
        "rollout": {"tensor_parallel_size": 2}
    }


SIZES = {f"s{number}": number for number in range(200)}


@pytest.mark.parametrize(
    ("sections", "placement"),
    [
        ({"sizes": SIZES}, "0-${sizes.s3}"),  # large, but referred to
        ({"sizes": {"all": SIZES}}, "0-${sizes.all.s3}"),
        (
            {"sizes": {"bad": "${", "n": 3, "same": "${.n}"}},
            "0-${sizes.same}",
        ),  # beside what only looks like one
        ({"sizes": {"none": None, "missing": "???", "n": 3}}, "0-${sizes.n}"),
        ({"sizes": [0, 3]}, "${sizes.0}-${sizes[1]}"),
        ({"rule": {"node_group": ["late", "early"], "placement": "0-3"}}, "${rule}"),
    ],
)
def test_what_interpolations_reach(sections: dict[str, Any], placement: str) -> None:
    groups = [{"label": "late", "node_ranks": "${nodes}"}, {"label": "early", "node_ranks": 0}]
    cluster = {"component_placement": {"a": placement}, "node_groups": groups}
    source = {**sections, "nodes": [1], "cluster": cluster}
    assert roost.ComponentPlacement(source, "2x8").get_hardware_ranks("a") == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("missing.yaml", None, "No such file or directory"),
        ("latin.yaml", b"a: \xe9", "is not UTF-8 text"),
        (".", None, "it is not a regular file"),
    ],
)
def test_why_a_file_cannot_be_read(tmp_path: Path, name: str, content: bytes | None, why: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(roost.ConfigurationError) as caught:
        read_file(tmp_path / name)
    (finding,) = caught.value.findings
    assert finding.code == "RC001"
    assert why in finding.why
