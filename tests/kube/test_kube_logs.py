"""kubetpl logs: which pods, and which lines."""

from __future__ import annotations

from collections.abc import Callable

from kubecluster import Cluster, Said
from kubejobs import indexed, job


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
        (["held"], "held: there are no pods"),
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
