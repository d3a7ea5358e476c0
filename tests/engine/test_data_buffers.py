"""Data buffers: each sample once an epoch, in a seeded order, also over restarts."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from channel_users import BufferUser
from running import Program, eventually

import roost
from roost.engine.channels.buffer_desk import permutation
from roost.engine.job import agents, ray_buffer

COUNT = 23


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> Iterator[roost.Cluster]:
    with roost.Cluster(num_nodes=1, inline="1x2") as made:
        monkeypatch.setenv("ROOST_JOB", made.job)  # this process may be connected to a Ray as well
        yield made


class Squares:
    """A dataset object."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, place: int) -> dict[str, int]:
        return {"square": place * place}


def lines(path: Path, count: int = COUNT) -> Path:
    path.write_text("".join(json.dumps({"square": n * n}) + "\n" for n in range(count)))
    return path


@pytest.mark.parametrize("kind", ["iterable", "lines", "dataset"])
def test_each_sample_once_an_epoch_in_a_new_order(inline: roost.Cluster, tmp_path: Path, kind: str) -> None:
    sources = {
        "iterable": ({"square": n * n} for n in range(COUNT)),
        "lines": lines(tmp_path / "samples.jsonl"),
        "dataset": Squares(),
    }
    buffer = roost.DataBuffer(sources[kind], seed=3)
    epochs = [buffer.get_samples(COUNT) for _ in range(3)]
    assert buffer.epoch == 3
    everything = [{"square": n * n} for n in range(COUNT)]
    for epoch in epochs:
        assert sorted(epoch, key=lambda sample: sample["square"]) == everything
    assert epochs[0] != epochs[1] != epochs[2]
    again = roost.DataBuffer(Squares(), seed=3, name="again")
    assert again.get_samples(3 * COUNT) == list(itertools.chain(*epochs))  # the order is the seed's alone
    assert roost.DataBuffer(Squares(), seed=4, name="other").get_samples(COUNT) != epochs[0]


def test_the_order_is_written_down() -> None:
    """A saved buffer must go on in the same order in every version of Python and of roost."""
    assert permutation(0, 0, 8) == [0, 5, 3, 7, 1, 6, 4, 2]
    assert permutation(7, 2, 8) == [0, 6, 7, 1, 4, 2, 3, 5]


def test_what_is_put_back_comes_first(inline: roost.Cluster) -> None:
    buffer = roost.DataBuffer(range(COUNT))
    first = buffer.get_samples(4)
    buffer.put_back([*first[2:], {"unfinished": "half an answer"}])
    assert buffer.get_samples(4)[:3] == [*first[2:], {"unfinished": "half an answer"}]
    buffer.put_back([1])
    buffer.put_back([2, 3])
    assert buffer.get_samples(3) == [2, 3, 1]


def one_step(buffer: roost.DataBuffer, number: int) -> list[Any]:
    """What a training step takes. Every third sample is not finished."""
    taken = buffer.get_samples(5)
    buffer.put_back([sample for sample in taken if (sample["square"] + number) % 3 == 0])
    return taken


def test_killed_and_restored_at_twenty_random_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that is killed goes on from its last save, and takes what it would have taken."""
    chance, source, path = random.Random(5), lines(tmp_path / "samples.jsonl"), tmp_path / "state.json"
    monkeypatch.setenv("ROOST_JOB", "inline")
    done: list[list[Any]] = []  # steps whose work was saved
    for life in range(21):
        with roost.Cluster(num_nodes=1, inline="1x1"):
            buffer = roost.DataBuffer(source, seed=1)
            if life:
                buffer.load(path)
            unsaved: list[list[Any]] = []
            for _ in range(chance.randint(2, 6)):
                unsaved.append(one_step(buffer, len(done) + len(unsaved)))
                if chance.random() < 0.5 or not life:
                    buffer.save(path)
                    done += unsaved
                    unsaved.clear()
    with roost.Cluster(num_nodes=1, inline="1x1"):
        undisturbed = roost.DataBuffer(source, seed=1)
        assert done == [one_step(undisturbed, number) for number in range(len(done))]
        assert undisturbed.epoch > 3


@pytest.mark.slow
def test_processes_that_are_killed_twenty_times(tmp_path: Path) -> None:
    """Each process of a job is killed at a random moment; the next one goes on from what is saved."""
    chance, source, path = random.Random(7), lines(tmp_path / "samples.jsonl"), tmp_path / "state.json"
    lives: list[tuple[int, list[Any]]] = []  # where each process began, and what it took
    began = 0
    for _ in range(20):
        program = Program("sampling", str(source), str(path))
        lives.append((began, [program.answer() for _ in range(chance.randint(1, 8))]))
        program.kill()
        saved = json.loads(path.read_text())
        began = saved["epoch"] * COUNT + saved["given"]
    with roost.Cluster(num_nodes=1, inline="1x1"):
        undisturbed = roost.DataBuffer(source, seed=1).get_samples(began + 3 * 8)
    for start, steps in lives:
        taken = [sample for step in steps for sample in step]
        assert taken == undisturbed[start : start + len(taken)]
    assert began > 3 * COUNT


def test_saved_files_are_for_the_owner_and_hold_plain_json(inline: roost.Cluster, tmp_path: Path) -> None:
    buffer = roost.DataBuffer(range(COUNT))
    buffer.put_back(buffer.get_samples(2))
    path = tmp_path / "state.json"
    buffer.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    expected = buffer.get_samples(50)
    buffer.load(path)
    assert buffer.get_samples(50) == expected


def saved(**changes: Any) -> Callable[[Path, roost.DataBuffer], None]:
    def change(path: Path, buffer: roost.DataBuffer) -> None:
        buffer.save(path)
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


WRONG: list[tuple[Callable[[Path, roost.DataBuffer], Any], str]] = [
    (lambda path, _: None, "No such file or directory"),
    (lambda path, _: path.write_text("{"), "is not a saved data buffer"),
    (lambda path, _: pipe(path), "it is not a regular file"),
    (lambda path, _: path.write_bytes(b"\x80\x04K\x01."), "is not a saved data buffer"),
    (lambda path, _: path.write_text("[" * 100_000), "is not a saved data buffer"),
    (lambda path, _: path.write_text("[]"), "it is not a data buffer of format 1"),
    (saved(format_version=9), "it is not a data buffer of format 1"),
    (saved(given="0"), "it is incomplete"),
    (saved(seed=1), "it has seed 1 and 23 samples, this one seed 0 and 23 samples"),
    (saved(count=4), "it has seed 0 and 4 samples"),
    (saved(digest="x"), "the source has other samples"),
    (saved(given=23), "epoch 0 and place 23 do not exist"),
]


@pytest.mark.parametrize(("write", "says"), WRONG, ids=[says for _, says in WRONG])
def test_a_file_that_does_not_fit_changes_nothing(
    inline: roost.Cluster, tmp_path: Path, write: Callable[[Path, roost.DataBuffer], Any], says: str
) -> None:
    buffer = roost.DataBuffer(range(COUNT))
    buffer.get_samples(3)
    path = tmp_path / "state.json"
    write(path, buffer)
    with pytest.raises(roost.ConfigurationError) as caught:
        buffer.load(path)
    assert caught.value.codes == ("RS104",)
    assert says in str(caught.value)
    assert buffer.get_samples(COUNT - 3) == [*permutation(0, 0, COUNT)][3:]


def cut(path: Path) -> Path:
    path.write_text('{"a": 1}\n{"a": 2}\n{"a"')
    return path


def pipe(path: Path) -> Path:
    """Opening it would wait for a process that writes."""
    os.mkfifo(path)
    return path


SOURCES: list[tuple[Callable[[Path], Any], str]] = [
    (lambda path: [], "the source has no samples"),
    (lambda path: iter(()), "the source has no samples"),
    (lambda path: 7, "7 is not a source of samples"),
    (lambda path: {"a", "b"}, "a set is not a source of samples"),
    (lambda path: frozenset("ab"), "its order changes from run to run"),
    (lambda path: path / "missing.jsonl", "cannot be read"),
    (lambda path: lines(path / "empty.jsonl", 0), "the source has no samples"),
    (lambda path: cut(path / "cut.jsonl"), "line 3 is no JSON value"),
    (lambda path: cut(path / "cut.jsonl"), "Expecting ':' delimiter at column 5"),
    (lambda path: pipe(path / "pipe"), "it is not a regular file"),
    (lambda path: path, "it is not a regular file"),
]


@pytest.mark.parametrize(("source", "says"), SOURCES)
def test_sources_that_cannot_be_used(
    inline: roost.Cluster, tmp_path: Path, source: Callable[[Path], Any], says: str
) -> None:
    with pytest.raises(roost.ConfigurationError) as caught:
        roost.DataBuffer(source(tmp_path))
    assert says in str(caught.value)
    roost.DataBuffer([1])  # a later try is no other buffer


class NoLength(Squares):
    def __len__(self) -> int:
        raise TypeError("a stream has no length")


def test_samples_are_copies(inline: roost.Cluster) -> None:
    """As on Ray: what a program writes into a sample is neither in the source nor in the next epoch."""
    source = [{"prompt": "a"}, {"prompt": "b"}]
    buffer = roost.DataBuffer(source)
    for sample in buffer.get_samples(2):
        sample["answer"] = "x"
    assert sorted(one["prompt"] for one in source) == ["a", "b"]
    assert all(len(one) == 1 for one in [*source, *buffer.get_samples(2)])
    unfinished = {"prompt": "a", "tokens": [1]}
    buffer.put_back([unfinished])
    unfinished["tokens"].append(2)  # type: ignore[attr-defined]
    assert buffer.get_samples(1) == [{"prompt": "a", "tokens": [1]}]


def test_another_source_under_the_same_name_is_refused(inline: roost.Cluster, tmp_path: Path) -> None:
    roost.DataBuffer(range(COUNT))
    roost.DataBuffer(Squares())  # iterables and datasets are known by their number of samples
    with pytest.raises(roost.ClusterError, match="data buffer 'data' has 23 samples, not 4"):
        roost.DataBuffer(range(4))
    with pytest.raises(roost.ClusterError, match=r"has the source of another process, not .*samples.jsonl"):
        roost.DataBuffer(lines(tmp_path / "samples.jsonl"))


def check_that_nothing_is_lost(path: Path) -> None:
    """When samples cannot go from one process to another."""
    with pytest.raises(roost.ConfigurationError, match="does not tell its length"):
        roost.DataBuffer(NoLength(), name="stuck")
    buffer = roost.DataBuffer(HoldsALock(), name="stuck")
    buffer.put_back(["first"])
    with pytest.raises(roost.ConfigurationError, match="a sample of type lock cannot go to another process"):
        buffer.get_samples(COUNT + 1)
    with pytest.raises(roost.ConfigurationError, match="cannot be put back into data buffer 'stuck'"):
        buffer.put_back([threading.Lock()])
    buffer.save(path)
    state = json.loads(path.read_text())
    assert (state["epoch"], state["given"], state["put_back"]) == (0, 0, ["first"])
    assert buffer.get_samples(1) == ["first"]


class HoldsALock(Squares):
    def __getitem__(self, place: int) -> Any:
        return threading.Lock() if place == 5 else place


def test_samples_that_cannot_be_sent_are_not_lost(inline: roost.Cluster, tmp_path: Path) -> None:
    check_that_nothing_is_lost(tmp_path / "state.json")


@pytest.mark.ray
def test_the_same_on_ray(cluster: roost.Cluster, tmp_path: Path) -> None:
    check_that_nothing_is_lost(tmp_path / "state.json")
    with pytest.raises(roost.ConfigurationError, match="source of data buffer 'locked' cannot go to"):
        roost.DataBuffer([threading.Lock()], name="locked")
    assert buffer_actors("locked") == []


class EndsEarly(Squares):
    def __getitem__(self, place: int) -> dict[str, int]:
        if place == 5 and not self.__dict__.get("grown"):
            raise IndexError("list index out of range")
        return super().__getitem__(place)


def test_a_source_that_ends_early_loses_nothing(inline: roost.Cluster) -> None:
    source = EndsEarly()
    buffer = roost.DataBuffer(source)
    buffer.put_back(["first"])
    with pytest.raises(roost.ConfigurationError, match=r"no sample 5(?s:.)*IndexError: list index"):
        buffer.get_samples(COUNT + 1)
    source.__dict__["grown"] = True
    assert len(buffer.get_samples(COUNT + 1)) == COUNT + 1
    assert buffer.epoch == 1


class Raises(Squares):
    def __getitem__(self, place: int) -> Any:
        return place // 0


class CannotBeLoaded(Squares):
    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("no number",)


def check_a_source_that_raises() -> None:
    buffer = roost.DataBuffer(Raises(), name="raising")
    with pytest.raises(
        roost.ConfigurationError, match=r"the source raised at sample 2(?s:.)*ZeroDivisionError: integer div"
    ) as caught:
        buffer.get_samples(1)
    assert caught.value.codes == ("RS104",)


def test_a_source_that_raises(inline: roost.Cluster) -> None:
    check_a_source_that_raises()


@pytest.mark.ray
def test_a_source_that_raises_in_the_buffers_process(cluster: roost.Cluster) -> None:
    check_a_source_that_raises()
    with pytest.raises(
        roost.ConfigurationError, match=r"'unloaded' cannot be loaded(?s:.)*ValueError: invalid literal"
    ):
        roost.DataBuffer(CannotBeLoaded(), name="unloaded")
    assert buffer_actors("unloaded") == []
    buffer = roost.DataBuffer([1], name="loaded")
    with pytest.raises(roost.ConfigurationError, match="cannot be put back into data buffer 'loaded'"):
        buffer.put_back([CannotBeLoaded()])
    assert buffer.get_samples(1) == [1]


class RaisesAtLength(Squares):
    def __getitem__(self, place: int) -> Any:
        raise ValueError("z" * 5_000_000)


@pytest.mark.ray
def test_a_long_text_of_a_source_is_not_carried_whole(cluster: roost.Cluster) -> None:
    import ray

    buffer = roost.DataBuffer(RaisesAtLength(), name="long")
    with pytest.raises(ray.exceptions.RayTaskError) as caught:
        ray.get(buffer._side._host.ask.remote("take", ray_buffer._packed((1,))), timeout=60)
    assert len(str(caught.value)) < 20_000


def test_a_file_that_changes_under_a_buffer_is_noticed_and_loses_nothing(
    inline: roost.Cluster, tmp_path: Path
) -> None:
    source = lines(tmp_path / "samples.jsonl")
    buffer, before = roost.DataBuffer(source), source.read_text()
    with source.open("a") as more:
        more.write('{"square": -1}\n')  # it is not one of this buffer's samples
    first = buffer.get_samples(5)
    source.write_text(before.replace("4", "5"))  # as long as before, and all lines are JSON
    with pytest.raises(roost.ConfigurationError, match="the file has changed while it is in use"):
        buffer.get_samples(COUNT - 5)
    source.write_text("")
    with pytest.raises(roost.ConfigurationError, match="the file has changed while it is in use"):
        buffer.get_samples(1)
    source.write_text(before)
    rest = buffer.get_samples(COUNT - 5)
    assert sorted(one["square"] for one in [*first, *rest]) == [n * n for n in range(COUNT)]


def test_mistakes(inline: roost.Cluster, tmp_path: Path) -> None:
    with pytest.raises(roost.ClusterError, match="no process of this job has made a data buffer 'x'"):
        roost.DataBuffer(name="x")
    with pytest.raises(roost.ConfigurationError, match="not a name of a data buffer"):
        roost.DataBuffer([1], name="../x")
    buffer = roost.DataBuffer(range(COUNT), seed=2)
    with pytest.raises(roost.ClusterError, match="has seed 2, not 3"):
        roost.DataBuffer(range(COUNT), seed=3)
    for wrong in (-1, True, "3", 10**9):
        with pytest.raises(roost.ConfigurationError, match="a number of samples"):
            buffer.get_samples(wrong)  # type: ignore[arg-type]
    with pytest.raises(roost.ConfigurationError, match="put_back takes a list"):
        buffer.put_back("one sample")
    buffer.put_back([(1, 2)])
    with pytest.raises(roost.ConfigurationError, match="cannot be saved"):
        buffer.save(tmp_path / "x.json")
    assert buffer.get_samples(1) == [(1, 2)]


def buffer_actors(name: str = "shared") -> list[str]:
    import ray

    named = ray.util.list_named_actors(all_namespaces=True)
    return [one["name"] for one in named if one["name"] == f"data-buffer:{name}"]


@pytest.mark.ray
def test_a_buffer_is_shared_by_the_processes_of_a_job(
    cluster: roost.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    source = lines(tmp_path / "samples.jsonl")
    broken = cut(tmp_path / "cut.jsonl")
    strategy = roost.NodePlacementStrategy([0])
    with BufferUser.create_group().launch(cluster, strategy, name="readers") as group:
        with pytest.raises(roost.WorkerRaised, match="line 3 is no JSON value"):
            group.get_samples(str(broken), 1).wait(timeout=60)
        with pytest.raises(
            roost.ClusterError, match="no process of this job has made a data buffer 'shared'"
        ):
            roost.DataBuffer(name="shared")
        eventually(lambda: not buffer_actors(), 60, "no process of a buffer that was not made is left")
        (theirs,) = group.get_samples(str(source), 10).wait(timeout=60)
    buffer = roost.DataBuffer(name="shared")  # it outlives the process that made it
    mine = buffer.get_samples(COUNT - 10)
    order = permutation(0, 0, COUNT)
    assert [sample["square"] for sample in [*theirs, *mine]] == [n * n for n in order]
    assert buffer.epoch == 1
    buffer.save(tmp_path / "state.json")
    following = buffer.get_samples(5)
    buffer.load(tmp_path / "state.json")
    assert buffer.get_samples(5) == following
    os.kill(
        ray.get(buffer._side._host.__ray_call__.remote(lambda _: os.getpid()), timeout=60), signal.SIGKILL
    )
    with pytest.raises(roost.ChannelError, match="process of data buffer 'shared' has ended, and with it"):
        buffer.get_samples(1)
    # Another process has not found it dead yet, and Ray still finds it by its name.
    monkeypatch.setattr(agents, "_ended", set())
    with monkeypatch.context() as patch:
        patch.setattr(ray_buffer, "find_or_keep", lambda *_, **__: (cluster.job, buffer._side._host))
        with pytest.raises(roost.ChannelError, match="process of data buffer 'shared' has ended") as ended:
            roost.DataBuffer(source, name="shared")
    assert ended.value.codes == ("RE126",)
    assert len(roost.DataBuffer(source, name="shared").get_samples(2)) == 2  # a new one
