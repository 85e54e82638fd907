"""How shards become slices of a Job: numbers, forms, and what is refused."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from podslices import slice_inputs

from tarkit.errors import UsageError
from tarkit.k8s.plan.shardlist import LIST_SPEC, MOST_BYTES, list_config_map
from tarkit.k8s.plan.sliceplan import ShardPlan, plan_shards, slice_count
from tarkit.names.outputnames import plan_outputs
from tarkit.specs.shardspec import expand, take_slice
from tarkit.specs.slicedlist import even_counts, open_list

OUT = "gs://out/d"


def plan(*specs: str, **more: Any) -> ShardPlan:
    return plan_shards(specs, **{"outdir": OUT, **more})


# Numbers


@given(st.integers(0, 10**7), st.integers(1, 10**5), st.data())
def test_slices_share_out_everything(n: int, w: int, data: st.DataObject) -> None:
    assert take_slice(n, 0, w).start == 0 and take_slice(n, w - 1, w).stop == n
    for index in data.draw(st.lists(st.integers(0, w - 1), max_size=20)):
        this = take_slice(n, index, w)
        assert len(this) in (n // w, -(-n // w))
        if index + 1 < w:
            assert take_slice(n, index + 1, w).start == this.stop


def test_all_slices_of_ten_million() -> None:
    counts = even_counts(10**7, 10**5 - 7)
    assert sum(counts) == 10**7 and max(counts) - min(counts) == 1


def test_how_many_slices() -> None:
    for n, slices, expected in (
        (148, None, 148), (10_000, None, 10_000), (10_000_000, None, 10_000), (100_000, 70_000, 70_000), (10, 500, 10),
    ):  # fmt: skip
        assert slice_count(n, slices) == expected
    for n, slices in ((0, None), (1, 0), (1, 100_001)):
        with pytest.raises(UsageError):
            slice_count(n, slices)


# Patterns


def test_a_pattern_stays_one() -> None:
    made = plan("s3://b/x-{000000..001281}.tar")
    assert (made.specs, made.shards, made.slices) == (["s3://b/x-{000000..001281}.tar"], 1282, 1282)
    assert made.entries is None and made.notes == []


def test_outputs_that_would_be_the_same() -> None:
    with pytest.raises(UsageError, match=r"would both become x-0.tar"):
        plan("s3://{b,c}/x-{0..9}.tar")
    with pytest.raises(UsageError, match="would both become"):
        plan("s3://{b,c}/x-{00000..59999}.tar")
    assert plan("s3://{b,c}/x-{0..9}.tar", outdir=None).shards == 20


@pytest.mark.parametrize("last", ["001281", "999999"])
def test_only_the_first_name_of_a_plain_pattern_is_looked_at(last: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []

    def plan_and_note(names: Iterable[str], folder: str) -> Iterator[tuple[str, str]]:
        for pair in plan_outputs(names, folder):
            looked_at.append(pair[0])
            yield pair

    monkeypatch.setattr("tarkit.k8s.plan.sliceplan.plan_outputs", plan_and_note)
    assert plan(f"s3://b/x-{{000000..{last}}}.tar", "s3://c/y-{0..9}.tar").shards == int(last) + 11
    assert looked_at == ["s3://b/x-000000.tar", "s3://c/y-0.tar"]
    with pytest.raises(UsageError, match=r"x-000000.tar would be replaced by its own output"):
        plan(f"{OUT}/x-{{000000..{last}}}.tar")


def test_a_pattern_of_which_pods_look_at_all_names() -> None:
    (note,) = plan("s3://b/{0..59}{a,aa}{000..999}").notes
    assert "each pod looks at all 120,000 names" in note and "--list-url" in note


# What a pod cannot read


def test_refused() -> None:
    for spec, words in (
        ("-", "no standard input"), ("@-", "no standard input"), ("pipe:cat x", "a command"),
        ("./x-{0..9}.tar", "a pod cannot see"), ("s3://b/{1..2", "not balanced"),
    ):  # fmt: skip
        for specs in ((spec,), ("s3://b/y.tar", spec)):
            with pytest.raises(UsageError, match=words):
                plan(*specs)
    with pytest.raises(UsageError, match="no shards are named"):
        plan()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "in").mkdir()
    for number in range(5):
        (tmp_path / "in" / f"s{number}.tar").write_bytes(bytes(100 * (number + 1)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_relative_names_where_they_have_a_meaning(folder: Path) -> None:
    (folder / "list").write_text("in/s0.tar\nin/s1.tar\n")
    for spec, n in (("in/s{0..4}.tar", 5), ("in/*.tar", 5), ("@list", 2)):
        with pytest.raises(UsageError, match="a pod cannot see"):
            plan(spec)
        assert plan(spec, allow_local=True).shards == n
    assert plan(f"{folder}/in/*.tar").shards == 5


# A ConfigMap


def test_globs_become_a_config_map(folder: Path) -> None:
    (folder / "list").write_text("s3://b/y.tar\n")
    made = plan(f"{folder}/in/*.tar", "s3://b/x-{0..9}.tar", "@list", slices=4)
    assert (made.specs, made.shards, made.slices) == ([LIST_SPEC], 16, 4)
    assert made.entries == [*(f"{folder}/in/s{n}.tar" for n in range(5)), "s3://b/x-{0..9}.tar", "s3://b/y.tar"]
    config_map = list_config_map("run", made.entries, "etl", {"app": "x"})
    assert config_map["metadata"]["namespace"] == "etl" and config_map["immutable"] is True
    # What a pod reads is what was planned.
    mounted = folder / "shards.gz"
    mounted.write_bytes(base64.b64decode(config_map["binaryData"]["shards.gz"]))
    everything = [name for index in range(4) for name in slice_inputs([f"@{mounted}"], index, 4)]
    assert everything == list(expand(made.entries))
    assert plan(f"{folder}/in/s*.tar") == plan(f"{folder}/in/*.tar"), "it is of what they name"
    (folder / "in" / "s9.tar").write_bytes(b"")
    assert plan(f"{folder}/in/*.tar") != plan(f"{folder}/in/s[0-4].tar")


def test_config_maps_are_the_same_for_the_same_list() -> None:
    first, second = (list_config_map("run", ["a", "b"], None, {}) for _ in range(2))
    assert first == second
    assert gzip.decompress(base64.b64decode(first["binaryData"]["shards.gz"])) == b"a\nb\n"
    assert list_config_map("run", ["a", "c"], None, {})["metadata"]["name"] != first["metadata"]["name"]
    assert first["metadata"] == {"name": "run-shards-" + first["metadata"]["name"][-8:]}


def test_config_maps_have_an_end() -> None:
    names = [f"s3://b/{hashlib.md5(str(number).encode()).hexdigest()}.tar" for number in range(10_000)]
    assert len(json.dumps(list_config_map("run", names[:7000], None, {}))) < MOST_BYTES
    with pytest.raises(UsageError, match=r"the list of 10000 shards .*--list-url"):
        list_config_map("run", names, None, {})
    for spec in ("@l", "#x", "a\nb", " a", "", "pipe:x"):
        with pytest.raises(UsageError, match="cannot stand in a list"):
            list_config_map("run", [spec], None, {})


# Buckets


@pytest.fixture
def bucket() -> str:
    """With five shards of different sizes."""
    name = f"bucket-{uuid.uuid4().hex}"
    for number in range(5):
        fsspec.filesystem("memory").pipe(f"/{name}/raw/s{number}.tar", bytes(100 * (number + 1)))
    return f"memory://{name}"


def test_a_list_in_a_bucket_by_bytes(bucket: str) -> None:
    made = plan(f"{bucket}/raw/*.tar", list_url=f"{bucket}/lists/", slices=3)
    assert (made.shards, made.slices, made.entries) == (5, 3, None)
    (spec,) = made.specs
    found = open_list(spec[1:])
    assert found is not None and (found.n, found.w, found.checked) == (5, 3, True)
    sizes = [[int(name[-5]) + 1 for name in slice_inputs([spec], index, 3)] for index in range(3)]
    assert sizes == [[5], [1, 4], [2, 3]]
    assert (plan(spec).slices, plan(spec).shards) == (3, 5)
    with pytest.raises(UsageError, match="which was planned in 3: leave the number out"):
        plan(spec, slices=4)
    again = plan(f"{bucket}/raw/*.tar", list_url=f"{bucket}/lists/", slices=3)
    assert again == made
    other = plan(f"{bucket}/raw/*.tar", list_url=f"{bucket}/lists/", slices=2)
    assert other.specs != made.specs, "a run that goes on keeps its list"


def test_a_pattern_in_a_bucket_list(bucket: str) -> None:
    made = plan("s3://b/x-{0..99}.tar", list_url=f"{bucket}/here.list", slices=7)
    assert made.specs == [f"@{bucket}/here.list"]
    names = [name for index in range(7) for name in slice_inputs(made.specs, index, 7)]
    assert names == [f"s3://b/x-{number}.tar" for number in range(100)]


def test_lists_that_cannot_be_written(bucket: str) -> None:
    with pytest.raises(UsageError, match="--list-url"):
        plan(f"{bucket}/raw/*.tar", list_url="here.list")
    with pytest.raises(UsageError, match="would both become"):
        plan(f"{bucket}/raw/*.tar", "s3://x/s0.tar", list_url=f"{bucket}/no/")


def test_a_list_that_others_wrote(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe(f"{bucket.removeprefix('memory:/')}/theirs", b"# all\nraw/s{0..4}.tar\n")
    made = plan(f"@{bucket}/theirs")
    assert (made.specs, made.shards, made.slices) == ([f"@{bucket}/theirs"], 5, 5)
    assert "must stay as it is" in made.notes[0]
    monkeypatch.setattr("tarkit.k8s.plan.sliceplan._MOST_READ_BY_ALL", 4)
    with pytest.raises(UsageError, match=r"more than 4 shards.*--list-url"):
        plan(f"@{bucket}/theirs")
    assert plan(f"@{bucket}/theirs", list_url=f"{bucket}/l").specs == [f"@{bucket}/l"]
    # With others beside it, it is looked up now.
    assert plan(f"@{bucket}/theirs", "s3://b/x.tar").specs == [LIST_SPEC]


def test_a_list_that_another_run_may_be_reading_stays(tmp_path: Path) -> None:
    url = str(tmp_path / "run.list")
    one = plan_shards(["s3://b/a-{0..3}.tar"], list_url=url)
    content = Path(url).read_bytes()
    assert plan_shards(["s3://b/a-{0..3}.tar"], list_url=url) == one
    for specs, slices in ((["s3://b/a-{0..4}.tar"], None), (["s3://b/a-{0..3}.tar"], 2)):
        with pytest.raises(UsageError, match="another list is there, which pods of another run may be reading"):
            plan_shards(specs, slices=slices, list_url=url)
    assert Path(url).read_bytes() == content
