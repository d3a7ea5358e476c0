"""Decides what to do when processes fail. Pure: failures and the time go in, actions come out.

Each rank is up, down, or ending: being restarted or ended on purpose. The supervisor ignores failures of a rank that
is not up, and failures of an earlier generation. A rank that hangs is down as well, but it may go on, or end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from roost.config.supervise import RestartPolicy
from roost.engine.events import Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One incident: some ranks of a component failed for the same cause, each in a generation."""

    component: str
    cause: str  # one of `roost.config.supervise.CAUSES`
    generations: Mapping[int, int]  # by rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Only report: the policy is `fail`, or the component sits on robots or was given up."""

    component: str
    ranks: tuple[int, ...]
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Restart these ranks in their places, or on spare nodes if `move`."""

    component: str
    ranks: tuple[int, ...]
    cause: str
    number: int  # counts the restarts for this cause in this period, from 1
    limit: int
    move: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """Restart nothing of this component any more, and refuse calls to it."""

    component: str
    ranks: tuple[int, ...]
    cause: str
    why: str


Action = Keep | Restart | GiveUp


@dataclass(slots=True, kw_only=True)
class Supervised:
    """The state of one component."""

    policy: RestartPolicy
    on_robots: bool
    generations: dict[int, int]  # by rank
    down: dict[int, str] = field(default_factory=dict)  # causes by rank; none where it was ended on purpose
    ending: set[int] = field(default_factory=set)
    given_up: str = ""  # why
    spent: dict[str, deque[float]] = field(default_factory=dict)  # when restarts were made, by cause

    def put_up(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            self.ending.discard(rank)
            self.down.pop(rank, None)
        if not self.down and not self.ending:
            self.given_up = (
                ""  # nothing restarts what was given up: it came back by hand, or went on by itself
            )

    def put_down(self, ranks: Iterable[int], cause: str = "") -> None:
        for rank in ranks:
            self.ending.discard(rank)
            self.down[rank] = cause


class Supervisor:
    """Supervises the components of a job. `now` is in seconds of any steady clock."""

    def __init__(self) -> None:
        self._components: dict[str, Supervised] = {}

    def cover(self, component: str, world_size: int, policy: RestartPolicy, on_robots: bool = False) -> None:
        """Supervise a component whose ranks have all just started."""
        generations = dict.fromkeys(range(world_size), 0)
        self._components[component] = Supervised(policy=policy, on_robots=on_robots, generations=generations)

    def drop(self, component: str) -> None:
        """Stop supervising a component that was shut down."""
        self._components.pop(component, None)

    def given_up(self, component: str) -> str:
        """Why a component was given up; empty if it was not."""
        found = self._components.get(component)
        return found.given_up if found else ""

    def settled(self, component: str) -> bool:
        """Whether no rank is being restarted or ended."""
        found = self._components.get(component)
        return found is None or not found.ending

    def standing(self, component: str) -> Standing | None:
        """What other processes may know of a component; None if it is not supervised."""
        if (found := self._components.get(component)) is None:
            return None
        return Standing(
            settled=not found.ending,
            given_up=found.given_up,
            down={rank: found.generations[rank] for rank, cause in found.down.items() if cause != "hang"},
        )

    def ending(self, component: str, ranks: Iterable[int]) -> None:
        """Record that these ranks are about to be ended on purpose, as by `end_ranks`."""
        if found := self._components.get(component):
            found.ending.update(ranks)

    def stopped(self, component: str, ranks: Iterable[int]) -> None:
        """Record that these ranks were ended on purpose. They are not restarted."""
        if found := self._components.get(component):
            found.put_down(ranks)

    def is_ahead(self, component: str, rank: int, generation: int) -> bool:
        """Whether a process is newer than the one this knows: its start is not recorded yet."""
        found = self._components.get(component)
        return found is None or generation > found.generations.get(rank, -1)

    def started(self, component: str, generations: Mapping[int, int]) -> None:
        """Record that these ranks run again."""
        if (found := self._components.get(component)) is None:
            return
        found.generations.update(generations)
        found.put_up(generations)

    def resumed(self, component: str, generations: Mapping[int, int]) -> tuple[int, ...]:
        """These processes hung and go on. Returns the ranks that are up again: not those that are restarted."""
        if (found := self._components.get(component)) is None:
            return ()
        back = tuple(
            rank
            for rank, generation in generations.items()
            if found.generations.get(rank) == generation
            and found.down.get(rank) == "hang"
            and rank not in found.ending
        )
        found.put_up(back)
        return back

    def not_started(
        self, component: str, ranks: Iterable[int], now: float, cause: str = "failed start"
    ) -> list[Action]:
        """Decide about ranks whose restart failed, or whose node was lost during it. None of these ranks runs."""
        found = self._components.get(component)
        if found is None:
            return []
        failed = tuple(sorted(set(ranks) & found.ending))
        found.put_down(failed, cause)
        return self._decide(component, found, failed, cause, now) if failed else []

    def failed(self, failures: Iterable[Failure], now: float) -> list[Action]:
        """Decide about incidents that were found at the same time."""
        actions: list[Action] = []
        for failure in failures:
            found = self._components.get(failure.component)
            if found is None:
                continue
            fresh = tuple(
                sorted(
                    rank
                    for rank, generation in failure.generations.items()
                    if found.generations.get(rank) == generation
                    and rank not in found.ending
                    and (rank not in found.down or (found.down[rank] == "hang" and failure.cause != "hang"))
                )
            )
            if fresh:
                found.put_down(fresh, failure.cause)
                actions += self._decide(failure.component, found, fresh, failure.cause, now)
        return actions

    def _decide(
        self, component: str, found: Supervised, ranks: tuple[int, ...], cause: str, now: float
    ) -> list[Action]:
        policy = found.policy
        if found.given_up or policy.policy == "fail" or found.on_robots:
            return [Keep(component=component, ranks=ranks, cause=cause)]
        move = cause == "node lost"
        if move and policy.policy != "relocate":
            return self._give_up(
                component, found, ranks, cause, "its node is gone, and its policy moves nothing"
            )
        limit, spent = policy.restarts.of(cause), found.spent.setdefault(cause, deque())
        while spent and now - spent[0] >= policy.within:
            spent.popleft()
        if len(spent) >= limit:
            why = f"{len(spent)} restarts for this cause within {policy.within:g} s, of {limit} allowed"
            return self._give_up(component, found, ranks, cause, why)
        spent.append(now)
        chosen = tuple(found.generations) if policy.policy == "one_for_all" else ranks
        found.ending.update(chosen)
        restart = Restart(
            component=component, ranks=chosen, cause=cause, number=len(spent), limit=limit, move=move
        )
        return [restart]

    def cannot_move(self, component: str, ranks: Iterable[int], why: str) -> list[Action]:
        """Give up a component: no spare node can take these ranks."""
        found = self._components.get(component)
        if found is None:
            return []
        stuck = tuple(sorted(set(ranks) & found.ending))
        found.put_down(stuck, "node lost")
        return self._give_up(component, found, stuck, "node lost", why) if stuck else []

    def _give_up(
        self, component: str, found: Supervised, ranks: tuple[int, ...], cause: str, why: str
    ) -> list[Action]:
        found.given_up = f"{cause}: {why}"
        return [GiveUp(component=component, ranks=ranks, cause=cause, why=why)]
