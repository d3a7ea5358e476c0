"""Ten thousand inputs nobody should write: a configuration error or an answer, each within a second."""

from __future__ import annotations

import copy
import json
import os
import random
import string
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

import roost
from roost.config.document import load, parse

BATCH = int(os.environ.get("ROOST_BATCH", "60"))  # how many inputs each seed makes
SMALL = roost.Inventory.parse("2x8:A800,1x4:4090,1x0")

JOBS = [
    """\
cluster:
  num_nodes: 4
  component_placement:
    actor,inference: 0-7
    rollout:
      node_group: a800,4090
      placement: 8-19
    env: {node_group: robot, placement: "0-1:0-3"}
    agent: {node_group: node, placement: "0-1:0-200,2-3:201-511"}
  node_groups:
    - label: a800
      node_ranks: 0-1
      env_configs:
        - node_ranks: 0
          env_vars: [{GLOO_SOCKET_IFNAME: eth0}, {API_KEY: "sk-1"}]
          python_interpreter_path: /opt/venv/bin/python3
    - {label: 4090, node_ranks: 2}
    - label: robot
      node_ranks: 3
      hardware:
        type: Franka
        configs: [{node_rank: 3, robot_ip: 10.0.0.9}, {node_rank: 3, robot_ip: 10.0.0.10}]
    - {label: cpu, node_ranks: [0, 3], ignore_hardware: true}
""",
    """\
defaults: &base
  placement: 0-3
size: 4
cluster:
  component_placement:
    actor: {<<: *base, node_group: cluster}
    rollout: ${defaults.placement}
    env: "${size}-${oc.decode:'7'}"
""",
    """\
cluster: {num_nodes: 2, component_placement: {actor: 0-7, rollout: 8-15, inference: 4-7}}
actor: {model: {tensor_model_parallel_size: 2, pipeline_model_parallel_size: 1}}
rollout: {tensor_parallel_size: 4, pipeline_parallel_size: 1}
algorithm: {recompute_logprobs: true}
""",
    """\
cluster:
  num_nodes: 4
  layout:
    actor_num_gpus_per_node: 4
    rollout_num_gpus: 12
    rollout_num_gpus_per_engine: 2
    use_critic: true
    servers:
      - {name: policy, groups: [{kind: prefill, num_gpus: 4}, {kind: decode, num_gpus: 6, gpus_per_engine: 2}]}
      - {name: judge, groups: [{kind: placeholder, num_gpus: 2}]}
    node_group: a800
    accelerators: 0-15
  shares: {actor: 0.6, rollout: 0.2, env: 0.1}
  component_placement: {env: "0-1:0-3"}
  node_groups: [{label: a800, node_ranks: 0-1}]
""",
]

PIECES = [
    *("0-7", "7-0", "0-3:4-7", "0--1", "0:0:0", "4:7", "all", "0-3:all", ",", "2,1", "0,0", "-1", "1e3"),
    *(
        "99999999999999999999",
        "0-99999999",
        "0:0-99999999",
        "0-1:0-1999999",
        "9" * 5000,
        "0x10",
        "010",
        "1_0",
    ),
    *(
        "${a}",
        "${cluster}",
        "${cluster.num_nodes}",
        "${..actor}",
        "${oc.env:HOME}",
        "${oc.env:NOT_SET}",
        "${",
        "}",
    ),
    *("${oc.create:{a:1}}", "${oc.decode:'[1,2'}", "${oc.select:cluster}", "${${${a}}}", "???", "\\${a}"),
    *(
        "&x",
        "*x",
        "*y",
        "<<: *x",
        "<<: [*x, *x]",
        "<<",
        "!!python/object:os.system",
        "!!int",
        "!custom",
        "!!set",
    ),
    *(
        "{",
        "}",
        "[",
        "]",
        "{a: [",
        "- - - -",
        "? ",
        "? [a]\n: b",
        ": ",
        "|",
        ">",
        "---",
        "...",
        "%YAML 1.1",
        "#",
    ),
    *("\t", "\0", "\x07", "\x1b[31m", "\x85", "\u2028", "\ufeff", "\ud800", "\udfff", "\U0010ffff", "\u202e"),
    *(
        "٣",
        "\N{FULLWIDTH DIGIT THREE}",
        "²",
        "½",
        "0\N{EN DASH}3",
        "\xa0",
        "'",
        '"',
        "\\",
        "'''",
        '"\\x"',
        "\r",
    ),
    *(
        "null",
        "~",
        ".nan",
        ".inf",
        "-.inf",
        "1e999",
        "true",
        "off",
        "2001-01-01",
        "1:2:3",
        "=",
        "@",
        "`",
        "%",
    ),
    *("cluster:", "  component_placement:", "  node_groups:", "label: cluster", "label: node", "hardware:"),
    *("colocate: true", "debug_rollout_only: 1", "num_gpus: -1", "kind: x", "shares: {a: 2}", "servers: {}"),
    *("env_vars: 3", "env_vars: [[1]]", "node_ranks: all", "node_ranks: 0-99999", "configs: 1", "type: ''"),
]


def survive(action: Callable[[], Any]) -> bool:
    """Run it. Configuration errors are fine, and must render; anything else that is raised is not.

    Says whether it was refused.
    """
    start = time.process_time()
    text = ""
    try:
        outcome = action()
    except roost.ConfigurationError as error:
        outcome, text = None, str(error)
    assert time.process_time() - start < 5.0  # CPU seconds; most take milliseconds
    if isinstance(outcome, roost.Plan):
        assert roost.Plan.from_dict(json.loads(json.dumps(outcome.to_dict()))) == outcome.without_secrets()
    else:
        assert text or outcome is not None
        assert all(ch.isprintable() or ch == "\n" for ch in text)
    return bool(text)


def mutated(rng: random.Random, text: str) -> str:
    for _ in range(rng.randint(1, 5)):
        at = rng.randrange(len(text) + 1)
        size = rng.choice([1, 1, 2, 5, 20])
        kind = rng.randrange(6)
        if kind == 0:
            text = text[:at] + text[at + size :]
        elif kind == 1:
            text = text[:at] + rng.choice(PIECES) + text[at:]
        elif kind == 2:
            text = text[:at] + rng.choice(PIECES) + text[at + size :]
        elif kind == 3:
            text = text[:at] + text[at : at + size] * rng.randint(2, 4) + text[at + size :]
        elif kind == 4:
            text = text[:at] + chr(rng.choice([rng.randrange(128), rng.randrange(0x3000)])) + text[at + 1 :]
        else:
            lines = text.splitlines(keepends=True) or [""]
            line = rng.randrange(len(lines))
            words = lines[line].split(": ", 1)
            lines[line] = words[0] + ": " + rng.choice(PIECES) + "\n"
            text = "".join(lines)
    return text


def placement_class(rng: random.Random) -> type[roost.ComponentPlacement]:
    return rng.choice([roost.ComponentPlacement, roost.ModelParallelComponentPlacement])


@pytest.mark.parametrize("seed", range(16))
def test_mutated_jobs(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(BATCH):
        text = mutated(rng, rng.choice(JOBS))
        survive(lambda text=text: roost.plan(parse(text), SMALL, placement=placement_class(rng)))


@pytest.mark.parametrize("seed", range(4))
def test_yaml_like_noise(seed: int) -> None:
    rng = random.Random(1000 + seed)
    filler = [*PIECES, *"abc019", " ", "  ", "\n", "\n  ", "\n    ", ": ", "- ", "a: ", "cluster: ", ", "]
    for _ in range(BATCH):
        text = "".join(rng.choice(filler) for _ in range(rng.randint(1, 60)))
        survive(lambda text=text: roost.plan(parse(text), SMALL))


@pytest.mark.parametrize("seed", range(2))
def test_files_of_noise(seed: int, tmp_path: Path) -> None:
    rng = random.Random(2000 + seed)
    file = tmp_path / "job.yaml"
    for _ in range(BATCH):
        content = bytearray(rng.choice(JOBS), "utf-8")
        for _ in range(rng.randint(1, 20)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        file.write_bytes(content)
        survive(lambda: roost.plan(file, SMALL))
        survive(lambda: roost.Inventory.load(file))


class Stranger:
    """An object no configuration should hold."""


def value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(22 if depth < 4 else 18)
    scalars: list[Any] = [
        *(None, True, False, 0, 1, -1, 4, 247, 60, 10**30, 10**5000, 0.5, float("nan"), float("inf")),
        *(b"bytes", Stranger(), "", rng.choice(PIECES)),
    ]
    if kind < len(scalars):
        return scalars[kind]
    if kind < 20:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    keys = [
        "label",
        "node_ranks",
        "placement",
        "node_group",
        "hardware",
        "configs",
        "type",
        "x",
        3,
        None,
        ("t",),
    ]
    return {rng.choice(keys): value(rng, depth + 1) for _ in range(rng.randrange(4))}


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    steps = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(place for step, item in steps for place in places(item, (*path, step)))]


def damaged(rng: random.Random, data: Any) -> Any:
    """A copy with wrong values, missing entries and extra ones in random places."""
    data = copy.deepcopy(data)
    for _ in range(rng.randint(1, 3)):
        spot = rng.choice(places(data)[1:] or [()])
        if not spot:
            return value(rng)
        around = data
        for step in spot[:-1]:
            around = around[step]
        action = rng.randrange(4)
        if action == 0:
            around.pop(spot[-1])
        elif action == 1 and isinstance(around, dict):
            around[rng.choice(["extra", "lable", 7])] = value(rng)
        else:
            around[spot[-1]] = value(rng)
    return data


PLAIN_JOBS = [load(parse(text)).data for text in JOBS]


@pytest.mark.parametrize("seed", range(8))
def test_wrong_types_everywhere(seed: int) -> None:
    rng = random.Random(3000 + seed)
    for _ in range(BATCH):
        job = damaged(rng, rng.choice(PLAIN_JOBS))
        survive(lambda job=job: roost.plan(job, SMALL, placement=placement_class(rng)))


@pytest.mark.parametrize("seed", range(2))
def test_wrong_types_through_omegaconf(seed: int) -> None:
    rng = random.Random(4000 + seed)
    for _ in range(BATCH // 2):
        try:
            config = OmegaConf.create(damaged(rng, rng.choice(PLAIN_JOBS)), flags={"allow_objects": True})
        except Exception:
            continue  # OmegaConf refused it first
        survive(lambda config=config: roost.plan(config, SMALL))


@pytest.mark.parametrize("seed", range(3))
def test_odd_overrides(seed: int) -> None:
    rng = random.Random(5000 + seed)
    keys = [
        "cluster",
        "component_placement",
        "actor",
        "node_groups",
        "0",
        "[0]",
        "[99]",
        "label",
        "",
        "~",
        "+",
        "٣",
    ]
    for _ in range(BATCH):
        overrides = []
        for _ in range(rng.randint(1, 3)):
            mark = rng.choice(["", "", "+", "++", "~", "+~"])
            target = rng.choice([".", "..", ""]).join(
                rng.choices([*keys, rng.choice(PIECES)], k=rng.randint(1, 5))
            )
            overrides.append(mark + target + rng.choice(["=", "=", "", "=="]) + rng.choice(PIECES))
        source = rng.choice([parse(JOBS[0]), PLAIN_JOBS[0]])
        survive(lambda source=source, overrides=overrides: roost.plan(source, SMALL, overrides=overrides))


@pytest.mark.parametrize("seed", range(4))
def test_damaged_plans(seed: int, tmp_path: Path) -> None:
    rng = random.Random(6000 + seed)
    job = {
        "cluster": {
            "component_placement": {
                "actor,critic": "0-3",
                "env": {"node_group": "arm", "placement": "0:0-1"},
            },
            "shares": {"actor": 0.6},
            "node_groups": [
                {
                    "label": "arm",
                    "node_ranks": 0,
                    "hardware": {"type": "Arm", "configs": [{"node_rank": 0, "ip": "10.0.0.1"}]},
                    "env_configs": [{"node_ranks": 0, "env_vars": {"A": "1"}}],
                }
            ],
        }
    }
    saved = roost.plan(job, roost.Inventory.parse("1x4")).to_dict()
    file = tmp_path / "plan.json"
    for number in range(BATCH):
        data = damaged(rng, saved)
        survive(lambda data=data: usable(roost.Plan.from_dict(data)))
        if number % 10 == 0:
            text = json.dumps(saved)
            at = rng.randrange(len(text))
            file.write_text(text[:at] + rng.choice(string.printable) + text[at + 1 :])
            survive(lambda: usable(roost.load_plan(file)))


def usable(plan: roost.Plan) -> roost.Plan:
    """Whatever was read can be asked everything."""
    assert plan.idle is not None
    assert plan.shared is not None
    assert plan.charges is not None
    assert all(finding.severity for finding in plan.findings)
    assert repr(plan)
    return plan


@pytest.mark.parametrize("seed", range(2))
def test_odd_inventories(seed: int) -> None:
    rng = random.Random(7000 + seed)
    good = {
        "nodes": [
            {"ip": "10.0.0.1", "cpus": 32, "accelerators": 8},
            {"accelerators": {"count": 4, "model": "A"}},
        ]
    }
    alphabet = "0123456789xX:,. ab٣-\0\n"
    for _ in range(BATCH):
        data = damaged(rng, good)
        survive(lambda data=data: roost.Inventory.from_dict(data))
        text = "".join(rng.choice(alphabet) for _ in range(rng.randint(0, 20)))
        survive(lambda text=text: roost.Inventory.parse(text))


@pytest.mark.parametrize("seed", range(2))
def test_odd_node_groups(seed: int) -> None:
    rng = random.Random(8000 + seed)
    groups = PLAIN_JOBS[0]["cluster"]["node_groups"]
    for _ in range(BATCH):
        data = damaged(rng, groups)
        survive(lambda data=data: SMALL.grouped(data))


@pytest.mark.parametrize("seed", range(4))
def test_odd_flags(seed: int) -> None:
    rng = random.Random(9000 + seed)
    good = {**PLAIN_JOBS[3]["cluster"]["layout"], "num_gpus_per_actor": 0.5, "critic_num_nodes": 1}
    for _ in range(BATCH):
        flags = {key: value(rng) if rng.random() < 0.2 else item for key, item in good.items()}
        survive(lambda flags=flags: roost.Layout.from_args(flags))
        layout = damaged(rng, PLAIN_JOBS[3]["cluster"]["layout"])
        if isinstance(layout, dict):
            survive(
                lambda layout=layout: roost.Layout.from_args(
                    SimpleNamespace(**{str(k): v for k, v in layout.items()})
                )
            )


# -- attacks with a name ---------------------------------------------------------------------------------


def bomb(line: str, levels: int = 30, width: int = 10) -> str:
    text = ["x0: &x0 {a: 1}" if "{" in line else "x0: &x0 [a, a]"]
    for level in range(1, levels):
        inner = ",".join([f"*x{level - 1}"] * width)
        text.append(f"x{level}: &x{level} " + line.replace("@", inner))
    return "\n".join([*text, f"cluster: *x{levels - 1}", ""])


def reference_bomb(width: int, levels: int = 30) -> str:
    lines = ["x0: " + "a" * 50]
    lines += [f"x{level}: '{f'${{x{level - 1}}}' * width}'" for level in range(1, levels)]
    return "\n".join([*lines, f"cluster: {{component_placement: {{a: '${{x{levels - 1}}}'}}}}", ""])


def mapping_bomb(levels: int = 30) -> str:
    lines = ["x0: {a: 1}"]
    lines += [f"x{n}: {{{', '.join(f'k{i}: ${{x{n - 1}}}' for i in range(4))}}}" for n in range(1, levels)]
    return "\n".join([*lines, f"cluster: ${{x{levels - 1}}}", ""])


def with_placement(text: str) -> str:
    return f"cluster: {{component_placement: {{a: {text}}}}}\n"


def with_variables(text: str) -> str:
    group = f"{{label: g, node_ranks: 0, env_configs: [{{node_ranks: 0, {text}}}]}}"
    return (
        f"cluster: {{component_placement: {{a: {{node_group: g, placement: 0}}}}, node_groups: [{group}]}}\n"
    )


def with_layout(text: str) -> str:
    return f"cluster: {{layout: {{{text}}}}}\n"


ATTACKS = {
    "giant layout": with_layout("actor_num_nodes: 1000000, actor_num_gpus_per_node: 1000000, colocate: true"),
    "giant layout of external engines": with_layout(
        "actor_num_nodes: 1000000, actor_num_gpus_per_node: 99, rollout_external: true"
    ),
    "many servers": with_layout(
        "servers: [" + ",".join(f"{{name: s{n}, groups: [{{num_gpus: 0}}]}}" for n in range(5000)) + "]"
    ),
    "many groups of engines": with_layout("servers: [{groups: [" + "{num_gpus: 1}," * 5000 + "]}]"),
    "many wishes": "cluster: {layout: {colocate: true}, shares: {"
    + ",".join(f"c{n}: 0.1" for n in range(10_000))
    + "}}\n",
    "many runs of accelerators": with_layout(
        "colocate: true, accelerators: '" + ",".join(map(str, range(0, 8000, 2))) + "'"
    ),
    "alias bomb of lists": bomb("[@]"),
    "alias bomb of mappings": bomb("{a: [@]}"),
    "merge bomb": bomb("{<<: [@]}"),
    "merge bomb of nothing": bomb("{<<: [@]}").replace("{a: 1}", "{}"),
    "alias inside itself": "cluster: &a\n  component_placement: *a\n",
    "list inside itself": "cluster: &a [*a, *a, *a]\n",
    "merge of itself": "cluster: &a\n  <<: *a\n",
    "reference bomb": reference_bomb(10),
    "wide reference bomb": reference_bomb(20, 5),
    "mapping bomb": mapping_bomb(),
    "reference cycle": "cluster: {component_placement: {a: '${b}'}}\nb: ${c}\nc: ${b}\n",
    "reference to itself": "cluster: {component_placement: ${cluster}}\n",
    "reference around itself": "cluster: {component_placement: {a: {placement: '${cluster}'}}}\n",
    "nested references": with_placement("'" + "${" * 3000 + "a" + "}" * 3000 + "'"),
    "open references": with_placement("'" + "${" * 100_000 + "'"),
    "reference of a resolver": with_placement("'${oc.decode:\"" + "[" * 900 + "\"}'"),
    "many references": "x: 1\ncluster:\n  component_placement:\n"
    + "".join(f"    c{n}: ${{x}}\n" for n in range(5000)),
    "a large section beside a reference": "x: 1\ndata: ["
    + "1," * 40_000
    + "]\n"
    + with_placement("'${x}-x'"),
    "a reference to a large section": "data: [" + "1," * 40_000 + "]\n" + with_placement("'${data}'"),
    "references elsewhere": "".join(f"x{n}: ${{x{n + 1}}}\n" for n in range(5000))
    + with_placement("'${x0}'"),
    "deep flow": "cluster: " + "[" * 100_000,
    "deep mapping": "cluster: " + "{a: " * 50_000,
    "deep block": "\n".join(" " * depth + "a:" for depth in range(1000)),
    "deep sequence": "- " * 100_000,
    "question marks": "? " * 100_000,
    "a megabyte of text": "a" * (1 << 20),
    "a megabyte key": "cluster: {" + "k" * 1_000_000 + ": 1}",
    "a secret line": "cluster: {a: 1, a: 2, " + "key" * 300_000 + "}",
    "many keys": "cluster:\n" + "".join(f"  k{n}: {n}\n" for n in range(40_000)),
    "the same key": "cluster:\n" + "  k: 1\n" * 40_000,
    "many components": "cluster:\n  component_placement:\n"
    + "".join(f"    c{n}: 0-7\n" for n in range(40_000)),
    "many components in one key": with_placement("0-7").replace(
        "a: 0-7", '"' + ",".join(f"c{n}" for n in range(100_000)) + '": 0-7'
    ),
    "components with unknown groups": "cluster:\n  component_placement:\n"
    + "".join(f"    c{n}: {{node_group: g{n}, placement: 0}}\n" for n in range(900)),
    "many groups": "cluster:\n  component_placement: {a: 0}\n  node_groups:\n"
    + "".join(f"    - {{label: g{n}, node_ranks: all}}\n" for n in range(12_000)),
    "many variables": "cluster:\n  component_placement: {a: 0}\n  node_groups:\n"
    + "    - label: g\n      node_ranks: all\n      env_configs:\n"
    + "".join(f"        - {{node_ranks: all, env_vars: {{V: {n}}}}}\n" for n in range(6000)),
    "giant range": with_placement("0-99999999"),
    "giant number": with_placement("9" * 100_000),
    "giant count": with_placement('"0:0-99999999"'),
    "two million processes": with_placement('"0:0-1999999"'),
    "many crowded components": "cluster:\n  component_placement:\n"
    + "".join(f'    c{n}: "0:0-40000"\n' for n in range(900)),
    "one crowded rule for many": with_placement('"0:0-40000"').replace(
        "a:", '"' + ",".join(f"c{n}" for n in range(900)) + '":'
    ),
    "many segments": with_placement('"' + ",".join(map(str, range(4000))) + '"'),
    "many uneven segments": with_placement(
        '"' + ",".join(f"{7 * n}-{7 * n + 6}:{5 * n}-{5 * n + 4}" for n in range(1000)) + '"'
    ),
    "many components with uneven segments": "cluster:\n  component_placement:\n"
    + "".join(f'    c{n}: "0-6:0-4,7-13:5-9,14-20:10-14"\n' for n in range(900)),
    "segments out of order": with_placement('"' + "9:9," * 4900 + '0"'),
    "digits of another script": with_placement('"' + "\u0663-" * 9_000 + '"'),
    "anchors of nothing": "cluster: [" + ",".join(f"&a{n}" for n in range(29_000)) + "]",
    "escapes": "cluster: [" + '"\\x41",' * 29_000 + "]" + "#" * 500_000,
    "a key without a space": "a" * 500_000 + ":1\n" + "\n" * 400_000 + "b: 1",
    "many long placements": "cluster:\n  component_placement:\n"
    + "".join(f'    c{n}: "{"1," * 9_000}1"\n' for n in range(50)),
    "a long interpreter": with_variables("python_interpreter_path: " + "a" * 900_000),
    "an interpreter of logins": with_variables("python_interpreter_path: " + "x://a" * 150_000),
    "many variables named secrets": with_variables("env_vars: {A: '" + "token:" * 150_000 + "'}"),
    "many variables of logins": with_variables("env_vars: {A: '" + "x://a" * 100_000 + "'}"),
    "commas": with_placement('"' + "," * 19_000 + '"'),
    "colons": with_placement('"' + ":" * 19_000 + '"'),
    "digits": with_placement('"' + "1" * 19_000 + '"'),
    "spaces": with_placement('"' + " " * 19_000 + '"'),
    "spaces before a dash": with_placement('"0' + " " * 19_000 + 'x"'),
    "uneven on a large scale": with_placement('"0-6:0-40002"'),
    "many spare nodes": with_placement("0")
    + "supervise: {a: {policy: relocate, spare_nodes: '"
    + ",".join(f"{n}0000-{n}9999" for n in range(1, 1_200))
    + "'}}\n",
    "many components with many spare nodes": "cluster: {component_placement: {"
    + ",".join(f"c{n}: 0" for n in range(900))
    + "}}\nsupervise: {"
    + ",".join(f"c{n}: {{policy: relocate, spare_nodes: 1-99999}}" for n in range(900))
    + "}\n",
    "many secrets in many errors": "passwords: {"
    + ",".join(f"'A=A{n}': value{n}" for n in range(3_500))
    + "}\n"
    + with_variables("env_vars: '${passwords}'"),
    "nul": "cluster:\0",
    "surrogate": "cluster: \ud800",
    "controls": "cluster: \x07\x1b[31m",
    "only a tag": "!!python/object/apply:os.system ['true']",
    "only an anchor": "&a",
    "only an alias": "*a",
    "two documents": "a: 1\n---\nb: 2\n",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(name: str) -> None:
    text = ATTACKS[name]
    refused = survive(lambda: roost.plan(parse(text), SMALL))
    assert refused or "uneven" in name or name.startswith(("many crowded", "many variables"))
    survive(lambda: roost.plan(parse(text), SMALL, placement=roost.ModelParallelComponentPlacement))


def test_large_cluster_does_not_make_suggestions_costly() -> None:
    large = roost.Inventory.parse("100000x4096")
    for text in ('"0-6:0-3"', '"1-409599999:0"', '"0-409599999:0-1023"', '"0-409600000:0-1"'):
        survive(lambda text=text: roost.plan(parse(with_placement(text)), large))


def test_objects_that_hold_themselves() -> None:
    cluster: dict[str, Any] = {}
    cluster["component_placement"] = cluster
    survive(lambda: roost.plan({"cluster": cluster}, SMALL))
    endless: list[Any] = []
    endless.append(endless)
    survive(lambda: roost.plan({"cluster": endless}, SMALL))
    survive(lambda: roost.Inventory.from_dict({"nodes": endless}))
    survive(lambda: SMALL.grouped(endless))
    wide: Any = {"a": 1}
    for _ in range(12):
        wide = {str(number): wide for number in range(10)}
    survive(lambda: roost.plan({"cluster": wide}, SMALL))


def test_sections_of_the_user_may_hold_anything() -> None:
    mine: dict[str, Any] = {"object": Stranger(), "broken": "${oc.decode:'["}
    mine["self"] = mine
    job = {"mine": mine, "n": 7, "cluster": {"component_placement": {"a": "0-${n}"}}}
    plan = roost.plan(job, SMALL, overrides=["+mine.x=1", "n=3"])
    assert plan.components["a"].world_size == 4


@pytest.mark.parametrize(
    "source", [None, 3, 1.5, b"job", [], (), {1, 2}, object(), "\0", "/", "", "x" * 5000]
)
def test_strange_sources(source: Any) -> None:
    survive(lambda: roost.plan(source, SMALL))
    survive(lambda: roost.Inventory.from_dict(source))
    survive(lambda: roost.Plan.from_dict(source))
    if not isinstance(source, (bytes, str)):
        return
    survive(lambda: roost.Inventory.parse(source))
