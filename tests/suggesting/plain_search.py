"""Random small problems, and a search without dominance rules: it visits every state of every tree."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import roost

NAMES = ["rollout", "actor", "inference", "critic"]
NODE_GROUPS = [{"label": "a", "node_ranks": 0}, {"label": "b", "node_ranks": 1}]


def random_case(seed: int, most: int = 3) -> tuple[dict[str, Any], roost.Inventory, list[str] | None]:
    """A profile, an inventory and the groups to use."""
    rng = random.Random(seed)
    names = rng.sample(NAMES, rng.randint(2, most))
    two = rng.random() < 0.3
    per_node = rng.choice([2, 4])
    memory = rng.choice([None, 40, 80])
    nodes = [{"accelerators": {"count": per_node, **({"memory_gib": memory} if memory else {})}}] * 2
    components: dict[str, Any] = {}
    for name in names:
        if rng.random() < 0.12:
            components[name] = {"seconds": rng.uniform(1, 90), "streams": rng.random() < 0.5}
            continue
        width = rng.choice([1, 1, 2, per_node])

        def table(width: int = width) -> dict[int, float]:
            sizes = rng.sample(
                range(width, 2 * per_node + 1, width), min(rng.randint(1, 2), 2 * per_node // width)
            )
            return {size: round(rng.uniform(20, 200) / size**0.8, 3) for size in sorted(sizes)}

        components[name] = {
            "seconds": {"a": table(), "b": table()} if two and rng.random() < 0.5 else table(),
            "accelerators_per_process": width,
            "streams": rng.random() < 0.5,
            "switch": rng.choice([0, 0, round(rng.uniform(1, 10), 2)]),
            "memory_gib": rng.choice([0, rng.randint(5, 40)]),
            "resident_gib": rng.choice([0, rng.randint(1, 15)]),
        }
    flow = {name: [other for other in names[:at] if rng.random() < 0.5] for at, name in enumerate(names)}
    profile: dict[str, Any] = {
        "batch": rng.choice([1, 4, 64]),
        "flow": flow,
        "mode": rng.choice(["sync", "sync", "async"]),
        "components": components,
    }
    if rng.random() < 0.5:
        source, to = rng.sample(names, 2)
        costs = {"together": rng.uniform(0, 5), "apart": rng.uniform(0, 20)}
        profile["weights"] = {"from": source, "to": to, **costs}
    inventory = roost.Inventory.from_dict({"nodes": nodes})
    if two:
        inventory = inventory.grouped(NODE_GROUPS)
    return profile, inventory, ["a", "b"] if two else None


class PlainSearch:
    """States are tuples: n by group, T, f, R by group, P by group, the pair's groups, the weights' seconds."""

    def __init__(self, profile: dict[str, Any], groups: list[tuple[str, int, float | None]]) -> None:
        self.profile, self.groups = profile, groups
        self.parts = profile["components"]
        self.names = list(self.parts)
        weights = profile.get("weights")
        self.pair = (weights["from"], weights["to"]) if weights else ()
        self.known: dict[tuple[frozenset[str], bool], set[Any]] = {}

    def width(self, name: str) -> int:
        part = self.parts[name]
        return part.get("accelerators_per_process", 1) if isinstance(part["seconds"], dict) else 1

    def seconds(self, name: str, label: str, most: int) -> dict[int, float]:
        table = self.parts[name]["seconds"]
        if any(isinstance(value, dict) for value in table.values()):
            table = table.get(label, {})
        known = sorted(table)
        found: dict[int, float] = {}
        for n in range(known[0], known[-1] + 1) if known else ():
            if n % self.width(name) or n > most:
                continue
            low, high = max(k for k in known if k <= n), min(k for k in known if k >= n)
            at = 0 if low == high else (n - low) / (high - low)
            rate = (1 - at) / table[low] + at / table[high]
            found[n] = min([1 / rate, *found.values()])
        return found

    def leaves(self, name: str, below: bool) -> set[Any]:
        part, batch, count = self.parts[name], self.profile["batch"], len(self.groups)
        zero = (0,) * count
        if not isinstance(part["seconds"], dict):
            t = part["seconds"]
            return {
                (
                    zero,
                    t,
                    t / batch if part.get("streams") else t,
                    zero,
                    zero,
                    (None,) if name in self.pair else (),
                    0.0,
                )
            }
        found = set()
        for g, (label, most, _) in enumerate(self.groups):
            for n, t in self.seconds(name, label, most).items():
                pause = part["switch"] if below else 0
                at = lambda value, g=g: tuple(value if i == g else 0 for i in range(count))  # noqa: E731
                first = (t / batch if part["streams"] else t) + pause
                mark = (label,) if name in self.pair else ()
                found.add(
                    (at(n), t + pause, first, at(part["resident_gib"]), at(part["memory_gib"]), mark, 0.0)
                )
        return found

    def states(self, members: frozenset[str], below: bool) -> set[Any]:
        key = members, below
        if key not in self.known:
            self.known[key] = self._states(members, below)
        return self.known[key]

    def _states(self, members: frozenset[str], below: bool) -> set[Any]:
        if len(members) == 1:
            return self.leaves(next(iter(members)), below)
        ordered = sorted(members)
        k = max(map(self.width, members))
        found = set()
        for choice in product((0, 1), repeat=len(ordered)):
            a = frozenset(name for name, side in zip(ordered, choice, strict=True) if side == 0)
            b = members - a
            if not a or not b or any(x in self.profile["flow"][y] for x in b for y in a):
                continue
            fed = any(x in self.profile["flow"][y] for x in a for y in b)
            for x, y in product(self.states(a, True), self.states(b, True)):
                found.add(self.turns(x, y, k))
            for x, y in product(self.states(a, below), self.states(b, below)):
                loose = self.profile["mode"] == "async" and not below
                found.add(self.beside(x, y, fed and not loose))
        return {
            state
            for state in found
            if all(n <= most for n, (_, most, _) in zip(state[0], self.groups, strict=True))
        }

    def turns(self, x: Any, y: Any, k: int) -> Any:
        n = tuple(-(-max(p, q) // k) * k for p, q in zip(x[0], y[0], strict=True))
        R = tuple(p + q for p, q in zip(x[3], y[3], strict=True))
        P = tuple(max(p + s, q + r) for p, q, r, s in zip(x[4], y[4], x[3], y[3], strict=True))
        return n, x[1] + y[1], x[1] + y[2], R, P, *self.renewal(x, y, True)

    def beside(self, x: Any, y: Any, fed: bool) -> Any:
        n = tuple(p + q for p, q in zip(x[0], y[0], strict=True))
        T = max(x[1] + y[2], x[2] + y[1]) if fed else max(x[1], y[1])
        f = x[2] + y[2] if fed else max(x[2], y[2])
        return n, T, f, tuple(map(max, x[3], y[3])), tuple(map(max, x[4], y[4])), *self.renewal(x, y, False)

    def renewal(self, x: Any, y: Any, turns: bool) -> Any:
        marks = x[5] + y[5]
        if len(marks) < 2:
            return marks, x[6] + y[6]
        together = turns and marks[0] == marks[1] is not None
        return (), self.profile["weights"]["together" if together else "apart"]

    def best(self) -> tuple[float, int] | None:
        """The least seconds and the fewest accelerators of an arrangement; None if nothing fits."""
        whole = [
            (state[1] + state[6], sum(state[0]))
            for state in self.states(frozenset(self.names), False)
            if all(most is None or p <= most for p, (_, _, most) in zip(state[4], self.groups, strict=True))
        ]
        if not whole:
            return None
        least = min(value for value, _ in whole)
        return least, min(n for value, n in whole if value <= least * (1 + 1e-9))
