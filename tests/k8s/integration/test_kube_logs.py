"""kubetpl logs: which pods, and which lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kubecluster import Cluster, Said
from kubejobs import indexed, job, manifest, run_pods, shards

from tarkit.specs.shardspec import take_slice


def test_nothing_to_show_is_66(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    """As documented: 0 only if something was shown."""
    cluster.apply(job("mute"), indexed("talk", 1), job("held", suspend=True))
    cluster.add_pod("mute", code=0, log="")
    cluster.add_pod("talk", 0, code=0, log="one\n")
    cluster.end_indexes("talk", {0: 0})
    for words, why in (
        (["mute"], "mute: its pods have written nothing"),
        (["talk", "--tail", "0"], "talk: its pods have written nothing"),
        (["talk", "--failed"], "talk: there are no failed pods"),
        (["talk", "--index", "1"], "Job talk has the indexes 0 to 0; no index 1"),
        (["mute", "--index", "0"], "Job mute has no indexes: it is not an Indexed Job; leave out --index"),
        (["held"], "held: there are no pods: it is suspended, and its pods are deleted for that"),
    ):
        said = kubetpl("logs", *words)
        assert (said.code, said.out) == (66, "") and why in said.err, said
    assert kubetpl("logs", "talk", "--index", "").code == 2
    assert kubetpl("logs", "talk").out == "[0] one\n", "lines of the only index have their prefix, too"


def test_lines_of_the_pods_that_matter(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    cluster.apply(indexed("talk", 3))
    cluster.add_pod("talk", 0, code=0, log="seen\nend 0\n")
    cluster.add_pod("talk", 1, code=1, log="seen\nbroken\n")
    cluster.add_pod("talk", 2, phase="Pending")
    cluster.set_job("talk", active=1, completedIndexes="0", succeeded=1, failedIndexes="1")
    every = kubetpl("logs", "talk")
    assert every.out == "[0] seen\n[0] end 0\n[1] seen\n[1] broken\n"
    assert every.err.startswith("kubetpl logs: 2: ") and "is waiting to start: ContainerCreating" in every.err
    assert kubetpl("logs", "talk", "--tail", "1", "--index", "0-1").out == "[0] end 0\n[1] broken\n"
    assert kubetpl("logs", "talk", "--failed").out == "[1] seen\n[1] broken\n"


def test_logs_of_a_pod_with_several_containers(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    both = job("both")
    both["spec"]["template"]["spec"]["containers"].insert(0, {"name": "beside", "image": "busybox:1"})
    cluster.apply(both)
    name = cluster.add_pod("both", code=0)
    uid = cluster.get("pods", name)["metadata"]["uid"]
    for container in ("main", "beside"):
        cluster.standin.objects.add_log(uid, container, f"of {container}\n")
    assert kubetpl("logs", "both").out == "of main\n"
    assert kubetpl("logs", "both", "--container", "beside").out == "of beside\n"


def test_why_there_are_no_pods(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    cluster.apply(job("new"), job("late", activeDeadlineSeconds=8), indexed("some", 3))
    cluster.set_job("late", "failed", "DeadlineExceeded", failed=1)
    cluster.end_indexes("some", {0: 0, 1: 1, 2: 0})
    for words, why in (
        (["new"], "new: there are no pods: none was made yet\n"),
        (
            ["late"],
            "(DeadlineExceeded), as it ran out of its time (--deadline), and the pods that ran then were deleted",
        ),
        (
            ["some", "--index", "1"],
            "some has no pods of index 1, and no logs: they have ended, and were deleted: by hand,",
        ),
    ):
        said = kubetpl("logs", *words)
        assert (said.code, said.out) == (66, "") and why in said.err, said


def test_pods_that_are_gone_have_the_lines_of_their_done_records(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    spec, command = shards(tmp_path / "in", 5), "! grep -q 3 sample.txt || exit 9"
    text = manifest(kubetpl, "grey", command, spec, tmp_path / "out", "--slices", "2")
    cluster.apply(text)
    run_pods(cluster, "grey", tmp_path)
    for each in cluster.items("pods"):
        cluster.end_pod(each["metadata"]["name"])
    cluster.end_indexes("grey", {0: 0, 1: 1})
    said = kubetpl("logs", "grey", "--index", "0-1")
    lines = said.out.splitlines()
    assert said.code == 0 and "grey has no pods of indexes 0,1, and no logs: they have ended" in said.err, said
    assert [line.partition(";")[0] for line in lines[:2]] == ["[0] in-0.tar: done", "[0] in-1.tar: done"]
    assert lines[3] == "[1] in-3.tar: failed: all 2 samples failed; this shard is not published"
    for shard in ("in-3.tar", f"{tmp_path}/in/in-3.tar"):
        assert kubetpl("logs", "grey", "--shard", shard).out == f"{lines[3]}\n"
    for words, why in (
        (["--shard", "in-9.tar"], "--shard in-9.tar: Job grey has no such shard"),
        (["--shard", "in-1.tar", "--index", "0"], "both say which index"),
    ):
        assert (refused := kubetpl("logs", "grey", *words)).code == 2 and why in refused.err


def test_the_index_of_a_shard_is_found_for_any_number_of_slices(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    spec = shards(tmp_path / "in", 5)
    for slices in (1, 2, 3, 5):
        name = f"s{slices}"
        cluster.apply(manifest(kubetpl, name, "true", spec, tmp_path / name, "--slices", str(slices)))
        found = [kubetpl("logs", name, "--shard", f"in-{number}.tar").out.partition("]")[0] for number in range(5)]
        assert found == [f"[{index}" for index in (i for i in range(slices) for _ in take_slice(5, i, slices))]


def test_a_folder_of_records_that_fails_is_said_once(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    spec = shards(tmp_path / "in", 4)
    for number in range(3):
        text = manifest(kubetpl, f"many-{number}", "true", spec, tmp_path / "gone" / "out")
        cluster.apply(text.replace(f"tarkit.dev/run: many-{number}", "tarkit.dev/run: many"))
    said = kubetpl("status", "many")
    assert said.out.count("done records cannot be read") == 1, said
