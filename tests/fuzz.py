"""Coverage-guided fuzzing of what reads job files: nothing but configuration errors, and none takes a second.

python tests/fuzz.py [SECONDS] [SEED]
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
import traceback
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import roost
import roost.config
from roost.config.document import as_written
from roost.config.job import read_job
from roost.config.program import program_problems
from roost.config.ranks import RankSyntaxError, parse_ranks

ROOT = Path(__file__).parent.parent
WATCHED = tuple(
    str(Path(next(iter(roost.config.__path__))).parent / name) for name in ("config", "inventory")
)
TOKENS = [
    *("cluster:", "num_nodes:", "component_placement:", "node_groups:", "supervise:", "workers:", "driver:"),
    *(
        "policy:",
        "restarts:",
        "within:",
        "spare_nodes:",
        "{",
        "}",
        "[",
        "]",
        "&a ",
        "*a",
        "<<: *a",
        "!!python/",
    ),
    *(
        "0-7",
        "all",
        "0-3:0-7",
        "1e999",
        "0x",
        "${cluster}",
        "${",
        "???",
        "\t",
        "\n  ",
        ": ",
        "- ",
        "'",
        '"',
        "\0",
    ),
    *("9" * 30, "-1", ".nan", "null", "~", "\u202e", "\ufeff", "%YAML 1.1", "---", "...", "|", ">", "#"),
]
SLOW = 1.0  # seconds


def seeds() -> list[str]:
    files = [*ROOT.glob("examples/*.yaml"), *ROOT.glob("tests/data/**/*.yaml")]
    texts = [file.read_text() for file in files if file.stat().st_size < 20_000]
    return [
        *texts,
        "cluster: {component_placement: {a: 0-3}}\nsupervise: {a: {policy: one_for_one}}\n",
        "0-3:0-7,all",
    ]


def mutated(text: str, other: str, chance: random.Random) -> str:
    for _ in range(chance.randint(1, 4)):
        at, to = sorted(chance.choices(range(len(text) + 1), k=2))
        text = chance.choice(
            [
                text[:at] + chance.choice(TOKENS) + text[at:],
                text[:at] + text[to:],
                text[:at] + text[at:to] * chance.randint(2, 5) + text[to:],
                text[:at] + other[: chance.randint(0, 200)] + text[to:],
                text[:at] + chr(chance.choice([0, 10, 32, 45, 58, 123, 255, 0x2028, 0x1F600])) + text[at:],
            ]
        )[:20_000]
    return text


def read(text: str, file: Path) -> None:
    """Everything that reads a job. Configuration errors are what it is for."""
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    with contextlib.suppress(roost.ConfigurationError):
        roost.plan(file, "4x8")
    try:
        document = as_written(file)
        read_job(document)
        program_problems(document)
    except roost.ConfigurationError:
        pass
    with contextlib.suppress(RankSyntaxError):
        parse_ranks(text[:2_000])


def main(seconds: float = 600.0, seed: int = 1) -> int:
    chance, corpus, known = random.Random(seed), seeds(), set[tuple[CodeType, int]]()
    reached = set[tuple[CodeType, int]]()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(WATCHED):
            return None
        reached.add((frame.f_code, frame.f_lineno))
        return trace

    file = Path(f"/tmp/roost-fuzz-{seed}-{time.time_ns()}.yaml")
    tried, began = 0, time.monotonic()
    try:
        while time.monotonic() - began < seconds:
            text = mutated(chance.choice(corpus), chance.choice(corpus), chance) if tried else corpus[0]
            reached.clear()
            started = time.process_time()
            sys.settrace(trace)
            try:
                read(text, file)
            except Exception:
                sys.settrace(None)
                traceback.print_exc()
                print(f"seed {seed}, input {tried}: {text!r}")
                return 1
            finally:
                sys.settrace(None)
            if time.process_time() - started > 20 * SLOW:  # tracing makes it many times slower
                print(
                    f"seed {seed}, input {tried} took {time.process_time() - started:.1f} s: {text[:2000]!r}"
                )
                return 1
            tried += 1
            if not reached <= known:
                known |= reached
                corpus.append(text)
    finally:
        file.unlink(missing_ok=True)
    print(
        f"seed {seed}: {tried} inputs, {len(known)} lines reached, {len(corpus)} inputs kept, nothing but configuration errors"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(*(float(one) if index == 0 else int(one) for index, one in enumerate(sys.argv[1:]))))
