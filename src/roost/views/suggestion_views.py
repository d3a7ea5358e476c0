"""A suggestion as text for a terminal, and as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from roost.errors import counted
from roost.suggesting.arrangement import Arrangement, Leaf, Turns, leaves
from roost.suggesting.next_measurements import Measurement
from roost.suggesting.replays import Replay
from roost.suggesting.suggestion import Alternative, Suggestion
from roost.suggesting.timeline import Timeline
from roost.suggesting.verification import Verification
from roost.views.drawing import text
from roost.views.page import page_head, table
from roost.views.timeline_pictures import bubbles, timeline_picture, timeline_text

_NOTABLE = 0.01  # of an iteration


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestionReport:
    """A suggestion, and the values shown beside it."""

    job: str
    suggestion: Suggestion
    verification: Verification
    timeline: Timeline
    replays: tuple[Replay, ...]
    tails: Mapping[str, float]
    worth: tuple[Measurement, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.suggestion.to_dict(),
            "verification": self.verification.to_dict(),
            "tails": dict(self.tails),
            "replays": [one.to_dict() for one in self.replays],
            "worth_measuring": [one.to_dict() for one in self.worth],
        }


def verdict(suggestion: Suggestion) -> str:
    used = counted(suggestion.accelerators_used, "accelerator")
    head = f"{suggestion.seconds:.6g} s per iteration on {used}"
    if suggestion.gap == 0:
        return f"{head}: proven, no arrangement is faster"
    return f"{head}: no arrangement is faster than {suggestion.bound:.6g} s (gap {suggestion.gap:.2%})"


def in_words(tree: Arrangement) -> str:
    """`(rollout 8 beside reward) then actor 16`."""
    if isinstance(tree, Leaf):
        return f"{tree.component} {tree.accelerators}" if tree.accelerators else tree.component
    sides = [
        in_words(side) if isinstance(side, (Leaf, type(tree))) else f"({in_words(side)})"
        for side in (tree.first, tree.second)
    ]
    return (" then " if isinstance(tree, Turns) else " beside ").join(sides)


def component_lines(suggestion: Suggestion) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for leaf in leaves(suggestion.arrangement):
        part = suggestion.problem.profile.components[leaf.component]
        seconds = part.seconds
        if leaf.group is not None:
            seconds = suggestion.problem.curves[leaf.component][leaf.group].at(leaf.accelerators) or 0.0
        where = f"{leaf.accelerators} of {leaf.group}" if leaf.group else "none"
        rows.append((leaf.component, where, f"{seconds:.6g} s", suggestion.measured[leaf.component]))
    return rows


def _other(one: Alternative, seconds: float) -> str:
    if one.seconds is None:
        return one.why
    return f"{one.seconds:.6g} s ({one.seconds / seconds - 1:+.1%})"


def notes(report: SuggestionReport) -> list[str]:
    """Notes about the limits of the suggestion, and about useful further measurements."""
    found = [f"limited by {limit}" for limit in report.suggestion.binding]
    for one in report.worth:
        where = (
            f"{one.accelerators} of {one.group}" if one.group else counted(one.accelerators, "accelerator")
        )
        found.append(
            f"worth measuring: {one.component} on {where}, {'up to' if one.complete else 'perhaps more than'} "
            f"{one.gain:.4g} s ({one.gain / report.suggestion.seconds:.1%}) of an iteration"
        )
    return found


def proof(report: SuggestionReport) -> str:
    done = report.verification
    if done.gap == 0:
        return f"a second method ({done.method}) agrees: no arrangement is faster"
    return (
        f"a second method ({done.method}) proves by itself that none is faster than {done.proven:.6g} s "
        f"(gap {done.gap:.2%})"
    )


def replay_title(report: SuggestionReport) -> str:
    tails = ", ".join(f"{name} {sigma:g}" for name, sigma in report.tails.items())
    return f"replayed item by item, tails: {tails}" if tails else "replayed item by item"


def replay_lines(report: SuggestionReport) -> list[tuple[str, ...]]:
    return [
        (
            f"{one.replayed:.6g} s",
            f"{one.seconds:.6g} s",
            in_words(one.arrangement),
            "suggested" if one.arrangement == report.suggestion.arrangement else "",
        )
        for one in report.replays
    ]


def replay_advice(report: SuggestionReport) -> list[str]:
    """Advice if the replay ranks another arrangement first."""
    first = report.replays[0]
    own = [one for one in report.replays if one.arrangement == report.suggestion.arrangement]
    if not own or first.replayed > own[0].replayed * (1 - _NOTABLE):
        return []
    gain = 1 - first.replayed / own[0].replayed
    return [f"in the replay the first takes {gain:.1%} less than the suggested one: --by-replay takes it"]


def render_suggestion(report: SuggestionReport, *, width: int, ascii_only: bool = False) -> str:
    suggestion, shown = report.suggestion, report.timeline
    lines = [verdict(suggestion), in_words(suggestion.arrangement), proof(report), ""]
    lines += _columns([("component", "accelerators", "a batch", ""), *component_lines(suggestion)])
    lines += ["", timeline_text(shown, width, ascii_only), *bubbles(shown), ""]
    lines += _columns([(one.name, _other(one, suggestion.seconds)) for one in suggestion.alternatives])
    lines += ["", f"{replay_title(report)}:"]
    lines += _columns([("replayed", "model", "", ""), *replay_lines(report)])
    lines += [*replay_advice(report), "", *notes(report)]
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def _columns(rows: list[tuple[str, ...]]) -> Iterator[str]:
    if not rows:
        return
    wide = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, wide, strict=True))


def suggestion_page(report: SuggestionReport) -> str:
    suggestion, shown = report.suggestion, report.timeline
    title = f"{report.job}: {verdict(suggestion)}" if report.job else verdict(suggestion)
    others = [(one.name, _other(one, suggestion.seconds)) for one in suggestion.alternatives]
    return (
        f"{page_head(title)}<body>\n<h1>{text(title)}</h1>\n<p>{text(in_words(suggestion.arrangement))}</p>\n"
        f'<p class="dim">{text(proof(report))}</p>\n'
        f'<h2>One iteration</h2>\n<div class="map">\n{timeline_picture(shown).as_svg("timeline")}</div>\n'
        + _paragraphs(bubbles(shown), "dim")
        + "<h2>Components</h2>\n"
        + table(("component", "accelerators", "a batch", ""), component_lines(suggestion))
        + "<h2>Alternatives</h2>\n"
        + table((), others)
        + f"<h2>{text(replay_title(report).capitalize())}</h2>\n"
        + table(("replayed", "model", "arrangement", ""), replay_lines(report))
        + _paragraphs(replay_advice(report))
        + "<h2>What limits it</h2>\n"
        + _paragraphs(notes(report) or ["nothing: more accelerators or sizes would not make it faster"])
        + "</body>\n</html>\n"
    )


def _paragraphs(lines: list[str], kind: str = "") -> str:
    start = f'<p class="{kind}">' if kind else "<p>"
    return "".join(f"{start}{text(line)}</p>\n" for line in lines)
