"""The Jobs of a verb with stages: what each pod runs, and the JobSet of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from containercommands import HARD
from kubetplrun import MAIN, SPEC, alone, at, documents, env_of, kubetpl, printed, refused, rendered, valid
from tarkit.cli.kube.generator import generator_command
from tarkit.cli.verbs.shuffle import command as shuffle

from tarkit.errors import UsageError
from tarkit.k8s.generators.exchange import SHUFFLE
from tarkit.k8s.jobsets import with_jobs_of_sets
from tarkit.k8s.podfields import substitute
from tarkit.k8s.settings import EXCHANGES, GENERATORS, Request, Settings, VerbCall
from tarkit.k8s.templates import read_template, template_path

OUT = "s3://b/out"
PATTERN = "s3://b/a-{00..19}.tar"
BASE = ("shuffle", "-n", "x", "-I", "i:1", PATTERN, "-O", OUT)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


def words_of(job: dict[str, Any]) -> list[str]:
    """The arguments of the container, as a kubelet gives them to it."""
    assert at(job, f"{MAIN} command") == ["tarkit"]
    env = env_of(job) | {"TARKIT_CPUS": "2"}
    return [substitute(each, env) for each in at(job, f"{MAIN} args")]


def parsed(job: dict[str, Any]) -> dict[str, Any]:
    """The values that the verb itself finds in the arguments of the container, by their flags."""
    verb, *rest = words_of(job)
    assert verb == "shuffle"
    return by_flag(rest)


def by_flag(words: list[str]) -> dict[str, Any]:
    """Flag, or name of an argument -> value."""
    with shuffle.make_context("shuffle", words, obj=[False], help_option_names=["-h", "--help"]) as context:
        return {max(each.opts, key=len): context.params.get(str(each.name)) for each in shuffle.params}


def test_a_job_for_each_stage() -> None:
    scatter, gather = rendered(*BASE, "--shards", "4", "--seed", "7", "--slices", "5")
    assert [each["metadata"]["name"] for each in (scatter, gather)] == ["x-scatter", "x-gather"]
    for job, stage, slices in ((scatter, "scatter", "5"), (gather, "gather", "4")):
        assert words_of(job) == [
            "shuffle", "--stage", stage, "--slice", slices, "--wait", "3600", "-p", "2", "-O", OUT, "--shards=4",
            "--seed=7", "--", PATTERN,
        ]  # fmt: skip
        spec = job["spec"]
        assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", *[int(slices)] * 2)
        # A gather needs all run files.
        assert (spec["backoffLimitPerIndex"], spec["maxFailedIndexes"]) == (3, 0 if stage == "scatter" else 1)
        assert [rule["action"] for rule in spec["podFailurePolicy"]["rules"]] == ["Ignore", "FailJob", "FailIndex"]
        assert "suspend" not in spec
        assert job["metadata"]["labels"]["tarkit.dev/run"] == "x"
        assert at(job, "spec template metadata labels tarkit.dev/run") == "x"
        assert (env_of(job)["TARKIT_SLICES"], env_of(job)["TARKIT_RUN"]) == (slices, f"x-{stage}")
    notes = [each["metadata"]["annotations"] for each in (scatter, gather)]
    assert [each["tarkit.dev/outdir"] for each in notes] == [f"{OUT}/_exchange", OUT]
    assert [each.get("tarkit.dev/next-stage") for each in notes] == ["gather", None]


@pytest.mark.parametrize(
    ("more", "slices"),
    [
        ((), (20, 20)), (("--shards", "3"), (20, 3)), (("--slices", "2", "--shards", "9"), (2, 2)),
        (("--slices", "4", "--gather-slices", "7"), (4, 7)), (("s3://b/{0000..4999}.tar",), (1000, 1000)),
        (("--slices", "3000", "s3://b/{0000..4999}.tar"), (3000, 3000)), (("--slices", "99"), (20, 20)),
    ],
)  # fmt: skip
def test_the_numbers_of_slices(more: tuple[str, ...], slices: tuple[int, int]) -> None:
    jobs = documents(printed(*BASE, *more))
    assert tuple(each["spec"]["completions"] for each in jobs) == slices
    assert tuple(parsed(each)["--slice"] for each in jobs) == tuple(map(str, slices))


def test_the_same_as_a_jobset() -> None:
    jobs = rendered(*BASE, "-N", "team", "--shards", "4")
    (made,) = documents(printed(*BASE, "-N", "team", "--shards", "4", "--jobset"))
    assert (made["apiVersion"], made["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert {key: made["metadata"][key] for key in ("name", "namespace")} == {"name": "x", "namespace": "team"}
    spec = made["spec"]
    assert spec["failurePolicy"] == {"maxRestarts": 0}
    assert [(each["name"], each["replicas"], each.get("dependsOn")) for each in spec["replicatedJobs"]] == [
        ("scatter", 1, None), ("gather", 1, [{"name": "scatter", "status": "Complete"}]),
    ]  # fmt: skip
    # The controller would make a Job again that its own time to live has removed.
    assert spec["ttlSecondsAfterFinished"] == jobs[0]["spec"].pop("ttlSecondsAfterFinished")
    del jobs[1]["spec"]["ttlSecondsAfterFinished"]
    children = with_jobs_of_sets([made])
    assert [each["metadata"]["name"] for each in children] == ["x-scatter-0", "x-gather-0"]
    for child, job in zip(children, jobs, strict=True):
        valid(child)
        assert child["spec"] == job["spec"]
        assert {key: child["metadata"][key] for key in ("labels", "annotations")} == {
            key: job["metadata"][key] for key in ("labels", "annotations")
        }


def test_fields_of_the_jobset_are_known_to_the_client_of_kubeflow() -> None:
    models = pytest.importorskip("kubeflow_trainer_api.models", reason="NO MODELS TO JUDGE JOBSETS BY")
    (made,) = documents(printed(*BASE, "--queue", "etl"))
    for document in (made, *read_template(template_path("jobset"))):
        found = models.JobsetV1alpha2JobSet.from_dict(document).to_dict()
        # It drops what it does not know.
        for key in ("failurePolicy", "network", "ttlSecondsAfterFinished"):
            assert found["spec"][key] == document["spec"][key]
        for entry, own in zip(found["spec"]["replicatedJobs"], document["spec"]["replicatedJobs"], strict=True):
            assert {key: entry.get(key) for key in own if key != "template"} == {
                key: value for key, value in own.items() if key != "template"
            }


def test_a_queue_is_about_the_jobset_alone() -> None:
    text = printed(*BASE, "--queue", "etl")
    (made,) = documents(text)
    assert made["kind"] == "JobSet"
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "etl"
    assert text.count("kueue.x-k8s.io") == 1
    assert "suspend" not in text


def test_a_suspended_gather() -> None:
    scatter, gather = rendered(*BASE, "--suspend-gather")
    assert ("suspend" in scatter["spec"], gather["spec"]["suspend"]) == (False, True)
    for more in ("--jobset", "--queue=q"):
        assert "--suspend-gather has no effect in a JobSet" in refused(*BASE, "--suspend-gather", more)


def test_a_list_is_in_one_config_map_for_both(folder: Path) -> None:
    names = [f"s3://b/{word}.tar" for word in ("x", "b", "a")]
    (folder / "list").write_text("".join(f"{name}\n" for name in names))
    words = [word for word in BASE if word != PATTERN]
    config_map, *jobs = rendered(*words, "@list")
    assert config_map["metadata"]["name"].startswith("x-shards-")
    for job in jobs:
        assert words_of(job)[-2:] == ["--", "@/etc/tarkit/shards.gz"]
        assert {"name": "shards", "configMap": {"name": config_map["metadata"]["name"]}} in at(job, f"{SPEC} volumes")
    config_map, made = documents(printed(*words, "@list", "--jobset"))
    assert (config_map["kind"], made["kind"]) == ("ConfigMap", "JobSet")


@pytest.mark.parametrize("text", [*HARD, "-x", "--", "--wait=1", "$(TARKIT_CPUS)", "$(HOME)$$(TMPDIR)", "a=b"])
def test_values_reach_the_verb_byte_for_byte(text: str) -> None:
    if text.strip() != text or not text or set(text) & set("{}*?[]\n"):
        inputs = PATTERN
    else:
        inputs = f"s3://b/{text.replace('/', '')}.tar"
    words = [word for word in BASE if word != PATTERN]
    outcome = kubetpl(*words, f"--key-rule={text}", "--work", f"s3://b/{text}", "--", inputs)
    assert outcome.code == 0, outcome.err
    for job in documents(outcome.out):
        found = parsed(job)
        assert (found["--key-rule"], found["--work"], found["inputs"]) == (text, f"s3://b/{text}", (inputs,))


def example(option: click.Option) -> list[str]:
    """Words that give an option a value that is not its default."""
    flag = max(option.opts, key=len)
    if option.is_flag:
        return [option.secondary_opts[0]] if option.default is True else [flag]
    if isinstance(option.type, click.Choice):
        return [flag, [*map(str, option.type.choices)][-1]]
    return [flag, "s3://b/7" if flag == "--work" else "7"]


OF_KUBETPL = {"--wait", "--outdir", "--verbose", "--version"}
NOT_PASSED = {
    "--parallel", "--stage", "--slice", "--dry-run", "--force", "--json", "--quiet", "--allow-pipe", "--block",
    "--buffer",
}  # fmt: skip


@pytest.mark.parametrize("option", shuffle.params, ids=lambda each: str(each.name))
def test_every_option_of_the_verb_is_passed_on_or_not_one_of_kubetpl(option: click.Parameter) -> None:
    if not isinstance(option, click.Option):
        return
    words, flag = example(option), max(option.opts, key=len)
    if flag in NOT_PASSED:
        assert "o such option" in refused(*BASE, *words)
    elif flag not in OF_KUBETPL:
        expected = by_flag(["-O", OUT, *words, PATTERN])[flag]
        assert expected != by_flag(["-O", OUT, PATTERN])[flag]
        for job in documents(printed(*BASE, *words)):
            assert parsed(job)[flag] == expected


@pytest.mark.parametrize("verb", [each for each in EXCHANGES if each in GENERATORS])
def test_no_option_of_a_verb_is_one_of_a_manifest(verb: str) -> None:
    flags = [flag for each in generator_command(verb).params for flag in (*each.opts, *each.secondary_opts)]
    assert sorted(flags) == sorted(set(flags))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("-n", "x", "-I", "i", PATTERN), "name where the output shards go: --outdir"),
        (("-n", "x", "-I", "i", "-O", OUT), "name the input shards: 's3://"),
        (("-n", "x", PATTERN, "-O", OUT), "name an image in which tarkit is installed: --image"),
        ((*BASE[1:6], "-O", "out"), "--outdir out: a folder of this machine"),
        ((*BASE[1:6], "-O", "https://h/out"), "--outdir https://h/out: outputs cannot be written by http"),
        ((*BASE[1:], "--work", "w"), "--work w: a folder of this machine"),
        ((*BASE[1:], "--work", "http://u:secret@h/w"), "--work http://h/w: outputs cannot be written by http"),
        ((*BASE[1:], "--work", "/scratch/w"), "Job x-scatter: the output '/scratch/w' is in the volume scratch"),
        ((*BASE[1:6], "-O", "/scratch/o", "--work", OUT), "the output '/scratch/o' is in the volume scratch"),
        ((*BASE[1:], "a.tar"), "'a.tar' is in a folder of this machine"),
        ((*BASE[1:], "--gather-slices", "0"), "--gather-slices 0: at least one pod"),
        ((*BASE[1:], "--slices", "0"), "--slices 0: a Job can have"),
        ((*BASE[1:], "-j", "0"), "--parallelism 0: at least one pod"),
        ((*BASE[1:], "--wait", "soon"), "--wait soon: write a time"),
        ((*BASE[1:], "--shards", "many"), "Invalid value for '--shards'"),
        ((*BASE[1:], "-n", "x" * 53), "--name " + "x" * 53 + ": the names of the pods would be too long; write 52"),
        ((*BASE[1:], "-e", "TARKIT_INDEX=1"), "TARKIT_INDEX is a pod's slice"),
        ((*BASE[1:], "--set", "spec.completions=3"), "the shards are cut into 20 slices"),
    ],
)
def test_what_cannot_be(words: tuple[str, ...], says: str) -> None:
    found = refused("shuffle", *words)
    assert says in found and "secret" not in found


def test_settings_of_files_that_are_about_commands_do_not_matter(folder: Path) -> None:
    plain = printed(*BASE)
    (folder / "kubetpl.yaml").write_text(
        "shards: s3://else.tar\ncommand: x\nparam: {a: b}\nrestartpolicy: OnFailure\nhostname: h\nshell: /bin/sh\n"
    )
    assert printed(*BASE) == plain
    (folder / "kubetpl.yaml").write_text("outdir: s3://b/of-file\nwait: 2d\n")
    assert {(parsed(each)["--outdir"], parsed(each)["--wait"]) for each in documents(printed(*BASE[:6]))} == {
        ("s3://b/of-file", 172800.0)
    }


def made(verb: VerbCall, **settings: Any) -> list[dict[str, Any]]:
    request = Request(Settings(name="x", image="i:1", outdir=OUT, **settings), read_template(template_path("indexed")))
    request.verb = verb
    found = SHUFFLE.documents(request)
    for job in found:
        valid(job)
    assert SHUFFLE.wrap is not None
    return SHUFFLE.wrap(request, found)


def test_a_verb_of_three_stages() -> None:
    verb = VerbCall("dedup", ("--by=jpg",), (("s3://b/{0..8}.tar",),), "s3://b/w")
    jobs = made(verb, slices=3, gather_slices=2)
    assert [each["metadata"]["name"] for each in jobs] == ["x-scatter", "x-match", "x-gather"]
    assert [each["spec"]["completions"] for each in jobs] == [3, 2, 2]
    assert [words_of(each)[:5] for each in jobs] == [
        ["dedup", "--stage", stage, "--slice", slices]
        for stage, slices in (("scatter", "3"), ("match", "2"), ("gather", "2"))
    ]
    notes = [each["metadata"]["annotations"] for each in jobs]
    assert [each["tarkit.dev/outdir"] for each in notes] == ["s3://b/w", "s3://b/w", OUT]
    (jobset,) = made(verb, jobset=True)
    assert [each.get("dependsOn", [{}])[0].get("name") for each in jobset["spec"]["replicatedJobs"]] == [
        None, "scatter", "match",
    ]  # fmt: skip


def test_a_verb_of_two_sides(folder: Path) -> None:
    left, right = ("s3://b/l-{0..3}.tar",), ("s3://b/r.csv",)
    jobs = made(VerbCall("join", ("--key=id",), (left, right)))
    assert [each["spec"]["completions"] for each in jobs] == [5, 5]
    assert words_of(jobs[0])[-4:] == ["--key=id", *left, "--", *right]
    (folder / "list").write_text("s3://b/a.tar\ns3://b/c.tar\n")
    jobs = made(VerbCall("join", (), (("@list",), right)))
    assert words_of(jobs[0])[-4:] == ["s3://b/a.tar", "s3://b/c.tar", "--", *right]
    (folder / "list").write_text("".join(f"s3://b/{number}.tar\n" for number in range(1001)))
    with pytest.raises(UsageError, match="a side of 1001 names is too long"):
        made(VerbCall("join", (), (("@list",), right)))


def test_jobsets_of_others_that_would_run_otherwise_here() -> None:
    (jobset,) = read_template(template_path("jobset"))
    with pytest.raises(UsageError, match="JobSet mytask: dependsOn is done here only for the stages of kubetpl"):
        with_jobs_of_sets([jobset])
    del jobset["spec"]["replicatedJobs"][1]
    assert [each["metadata"]["name"] for each in with_jobs_of_sets([jobset])] == ["mytask-scatter-0"]
    jobset["spec"]["replicatedJobs"][0]["replicas"] = 2
    with pytest.raises(UsageError, match="replicas 2 are not done here"):
        with_jobs_of_sets([jobset])
    jobset["spec"]["successPolicy"] = {"operator": "Any"}
    with pytest.raises(UsageError, match="successPolicy is not done here"):
        with_jobs_of_sets([jobset])


def test_json_is_what_yaml_is() -> None:
    found = json.loads(printed(*BASE, "-o", "json"))
    assert found["items"] == documents(printed(*BASE))
