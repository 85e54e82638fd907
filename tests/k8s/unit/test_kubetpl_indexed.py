"""Many Jobs in a stream, and one Job over many shards."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from pathlib import Path

import pytest
import yaml
from kubetplrun import MAIN, SPEC, alone, at, env_of, kubetpl, one, refused, rendered

from tarkit.k8s.generators.indexed import INDEXED
from tarkit.k8s.podfields import substitute
from tarkit.k8s.settings import Request, Settings
from tarkit.k8s.templates import read_template, template_path
from tarkit.k8s.yamltext import dump_documents
from tarkit.mapping.shellrules import pod_words
from tarkit.runs.work import Work

OUT = "s3://b/out"
PATTERN = "s3://b/a-{00..19}.tar"
BASE = ("indexed", "-n", "x", "-c", "convert a b", "-I", "i:1", "--shards", PATTERN, "-O", OUT)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


# jobs --over


def test_a_job_for_each_item() -> None:
    words = ["-n", "job{i}", "-c", "echo {i} {n} {j} ${HOME} {}", "-e", "I={i}-{n}", "-p", "j=k"]
    found = rendered("jobs", *words, "--over", "{08..11}")
    assert [each["metadata"]["name"] for each in found] == ["job08", "job09", "job10", "job11"]
    assert [at(each, f"{MAIN} args 0") for each in found] == [
        f"echo {i} {n} k ${{HOME}} {{}}" for n, i in enumerate(["08", "09", "10", "11"])
    ]
    assert [env_of(each)["I"] for each in found] == ["08-0", "09-1", "10-2", "11-3"]
    assert {each["metadata"]["labels"]["tarkit.dev/run"] for each in found} == {"job"}
    assert {at(each, "spec template metadata labels tarkit.dev/run") for each in found} == {"job"}
    assert {each["metadata"]["labels"]["app"] for each in found} == {"job"}
    # Numbers have as many digits as the last.
    found = rendered("jobs", "--over", "{0..10}")
    assert [each["metadata"]["name"] for each in found] == [f"mytask-{number:02d}" for number in range(11)]


def test_items_of_a_list_are_not_looked_at_again(folder: Path) -> None:
    (folder / "items").write_text("a{n}\n# no\n\n$(HOME)\n'\"\ns3://b/{0..1}.tar\n")
    found = rendered("jobs", "-n", "j{n}", "-c", "{i} {p}", "-p", "p={i}", "--over", "@items")
    texts = [substitute(at(each, f"{MAIN} args 0"), {"HOME": "/scratch"}) for each in found]
    assert texts == [f"{item} {{i}}" for item in ("a{n}", "$(HOME)", "'\"", "s3://b/0.tar", "s3://b/1.tar")]
    outcome = kubetpl("jobs", "--over", "@missing")
    assert (outcome.code, outcome.out) == (66, "")


def test_jobs_of_the_same_name_are_refused() -> None:
    assert "a and b would both be called x" in refused("jobs", "-n", "x", "--over", "{a,b}")
    assert rendered("jobs", "-n", "x", "--over", "a")
    assert "--over" in refused("jobs", "-n", "x")


def test_a_loop_in_the_command_keeps_its_variable() -> None:
    command = "for i in a b; do echo ${i} ${n} {i}-{n} $i; done"
    (job,) = rendered("jobs", "-n", "j{i}", "-c", command, "-e", "X=${i}{i}", "--over", "{0000..0000}")
    assert at(job, f"{MAIN} args 0") == "for i in a b; do echo ${i} ${n} 0000-0 $i; done"
    assert env_of(job)["X"] == "${i}0000"


# indexed


def test_the_job_of_a_pattern() -> None:
    job = one(*BASE)
    assert job["metadata"]["labels"].items() >= {
        "app": "x", "app.kubernetes.io/name": "x", "app.kubernetes.io/managed-by": "kubetpl", "tarkit.dev/run": "x",
    }.items()  # fmt: skip
    assert at(job, "spec template metadata labels tarkit.dev/run") == "x"
    annotations = job["metadata"]["annotations"]
    assert annotations == {
        "tarkit.dev/shards": "20", "tarkit.dev/slices": "20", "tarkit.dev/outdir": OUT,
        "tarkit.dev/inputs": json.dumps([PATTERN]),
    }  # fmt: skip
    spec = job["spec"]
    assert {key: spec[key] for key in ("completionMode", "completions", "parallelism", "backoffLimitPerIndex",
                                       "maxFailedIndexes", "podReplacementPolicy", "ttlSecondsAfterFinished")} == {
        "completionMode": "Indexed", "completions": 20, "parallelism": 20, "backoffLimitPerIndex": 3,
        "maxFailedIndexes": 1, "podReplacementPolicy": "Failed", "ttlSecondsAfterFinished": 604800,
    }  # fmt: skip
    rules = spec["podFailurePolicy"]["rules"]
    assert [(rule["action"], rule.get("onExitCodes", {}).get("values")) for rule in rules] == [
        ("Ignore", None), ("FailJob", [2, 64, 78, 126, 127]), ("FailIndex", [3, 65, 66]),
    ]  # fmt: skip
    container = at(job, MAIN)
    assert container["name"] == "main"
    assert container["command"] == ["tarproc"]
    assert container["args"] == [
        "--slice", "20", "-O", OUT, "-p", "$(TARKIT_CPUS)", "-c", "convert a b", "--", PATTERN,
    ]  # fmt: skip
    assert env_of(job) == {
        "TMPDIR": "/scratch", "HOME": "/scratch", "TARKIT_SLICES": "20", "TARKIT_RUN": "x", "TARKIT_OUT": OUT,
    }  # fmt: skip
    # As a server stores it: else kubectl apply --server-side reports a conflict.
    references = [each["valueFrom"] for each in container["env"] if "valueFrom" in each]
    assert [list(inner) for each in references for inner in each.values()] == [
        ["apiVersion", "fieldPath"], ["resource", "divisor"], ["apiVersion", "fieldPath"],
    ]  # fmt: skip
    assert rules[0]["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert "hostname" not in at(job, SPEC)
    spread = at(job, f"{SPEC} topologySpreadConstraints 0 labelSelector matchLabels")
    assert spread.items() <= at(job, "spec template metadata labels").items()


def test_the_labels_of_the_spread_follow_the_app() -> None:
    job = one(*BASE, "-a", "Other App")
    spread = at(job, f"{SPEC} topologySpreadConstraints 0 labelSelector matchLabels")
    assert spread.items() <= at(job, "spec template metadata labels").items()
    assert spread["app.kubernetes.io/name"].startswith("other-app")


def test_more_options_for_tarproc() -> None:
    job = one(*BASE, "--", "--errors", "skip", "--timeout", "9")
    assert at(job, f"{MAIN} args") == [
        "--slice", "20", "-O", OUT, "-p", "$(TARKIT_CPUS)", "-c", "convert a b", "--timeout", "9", "--errors", "skip",
        "--", PATTERN,
    ]  # fmt: skip
    words = tuple(word for word in BASE if word not in ("-c", "convert a b"))
    job = one(*words, "--", "--map", "m.py:f", "-p", "2")
    assert at(job, f"{MAIN} args") == ["--slice", "20", "-O", OUT, "-p", "2", "--map", "m.py:f", "--", PATTERN]
    for given in (["--parallel", "2"], ["--parallel=2"], ["-p2"], ["-p1"]):
        assert "$(TARKIT_CPUS)" not in at(one(*BASE, "--", *given), f"{MAIN} args")
    for given in (["-mq"], ["--batch", "2"]):
        assert at(one(*BASE, "--", *given), f"{MAIN} args 5") == "$(TARKIT_CPUS)", given


def test_without_cpus_tarproc_decides_itself() -> None:
    job = one(*BASE, "-C", "-1")
    assert at(job, f"{MAIN} args") == ["--slice", "20", "-O", OUT, "-c", "convert a b", "--", PATTERN]
    assert "TARKIT_CPUS" not in {each["name"] for each in at(job, f"{MAIN} env")}


def test_what_looks_like_a_reference_is_escaped() -> None:
    job = one(*BASE, "-c", "echo $(TARKIT_CPUS) $(TARKIT_OUT) $$ $(JOB_COMPLETION_INDEX) $(date)")
    text = at(job, f"{MAIN} args 7")
    assert text == "echo $$(TARKIT_CPUS) $$(TARKIT_OUT) $$$ $$(JOB_COMPLETION_INDEX) $(date)"
    words = [word.replace("s3://b/out", "s3://b/$(HOME)$$") for word in BASE]
    job = one(*words)
    assert at(job, f"{MAIN} args 3") == "s3://b/$$(HOME)$$$"
    assert substitute(env_of(job)["TARKIT_OUT"], {"HOME": "x"}) == "s3://b/$(HOME)$$"
    assert job["metadata"]["annotations"]["tarkit.dev/outdir"] == "s3://b/$(HOME)$$"


def test_flags_of_the_shell_and_a_filter_reach_tarproc() -> None:
    for flags in ("", "-x -e"):
        arguments = at(one(*BASE, "--shell-flags", flags), f"{MAIN} args")
        assert Work.from_args(arguments).shell_flags == flags
    words = tuple(word for word in BASE if word not in ("-c", "convert a b"))
    arguments = at(one(*words, "--", "--filter", "grep -qx 1 sample.cls"), f"{MAIN} args")
    assert Work.from_args(arguments).filter == "grep -qx 1 sample.cls"
    assert "--filter takes the place of -c" in refused(*BASE, "--", "--filter", "true")


def test_raw() -> None:
    command = "a |\n\n b $$ {x}"
    job = one("indexed", "-n", "x", "-c", command, "--shards", PATTERN, "--raw")
    assert at(job, f"{MAIN} args") == ["a |\n\n b $$$ {x}"]
    assert at(job, f"{MAIN} command")[:4] == ["/bin/bash", "-euo", "pipefail", "-c"]
    assert [substitute(word, {}) for word in at(job, f"{MAIN} command")[3:]] == pod_words(command, "/bin/bash")
    assert "tarkit.dev/outdir" not in job["metadata"]["annotations"]
    assert "TARKIT_OUT" not in env_of(job)
    assert "has no effect" in refused(*BASE, "--raw", "--", "--errors", "skip")
    assert "name the command" in refused("indexed", "-n", "x", "--shards", PATTERN, "--raw")


def drop(flag: str) -> list[str]:
    at_ = BASE.index(flag)
    return [*BASE[:at_], *BASE[at_ + 2 :]]


def test_what_is_missing_is_named() -> None:
    for flag, said in (
        ("-c", "name the command: --command CMD, or after --"), ("-I", "name an image in which tarproc"),
        ("--shards", "name the input shards: --shards"), ("-O", "name where the output shards go: --outdir"),
    ):  # fmt: skip
        assert refused(*drop(flag)).startswith(said)


def test_parallelism_and_slices() -> None:
    for words, parallelism, completions in (
        ([], 20, 20), (["-j", "3"], 3, 20), (["-j", "300"], 20, 20), (["--slices", "4"], 4, 4),
        (["--slices", "400"], 20, 20), (["--shards", "s3://b/{000..999}.tar"], 128, 1020),
    ):  # fmt: skip
        spec = one(*BASE, *words)["spec"]
        assert (spec["parallelism"], spec["completions"]) == (parallelism, completions)


def test_numbers_that_cannot_be() -> None:
    for words in (["-j", "0"], ["-j", "-1"], ["--slices", "0"], ["--slices", "100001"]):
        assert {"-j": "--parallelism"}.get(words[0], words[0]) in refused(*BASE, *words)


def test_how_many_may_fail() -> None:
    """A share of a few slices is one at least; but none is none."""
    for text, slices, expected in (
        ("29%", 100, 29), ("5%", 5, 1), ("0%", 20, 0), ("2.5%", 400, 10), ("100%", 20, 20), ("3", 20, 3),
        ("300", 20, 20), ("50%", 100_000, 50_000),
    ):  # fmt: skip
        words = [*drop("--shards"), "--shards", f"s3://b/{{1..{slices}}}.tar", "--slices", str(slices)]
        assert one(*words, "--max-failed", text)["spec"]["maxFailedIndexes"] == expected
    for text in ("x", "-1", "101%", "1.5", "%", "", "5 %", "1e3", "٣"):
        assert refused(*BASE, "--max-failed", text).startswith(f"--max-failed {text}")


# Lists.


def listed(folder: Path, lines: list[str]) -> list[str]:
    (folder / "list").write_text("".join(f"{line}\n" for line in lines))
    return [*drop("--shards"), "--shards", "@list"]


NAMES = [f"s3://b/{word}.tar" for word in ("x", "b", "a", "y")]


def test_a_list_goes_into_a_config_map(folder: Path) -> None:
    words = listed(folder, NAMES)
    config_map, job = rendered(*words, "-N", "team")
    assert (config_map["kind"], job["kind"]) == ("ConfigMap", "Job")
    name = config_map["metadata"]["name"]
    assert name.startswith("x-shards-")
    assert config_map["metadata"]["namespace"] == "team"
    assert config_map["metadata"]["labels"]["tarkit.dev/run"] == "x"
    assert config_map["immutable"] is True
    assert {"name": "shards", "configMap": {"name": name}} in at(job, f"{SPEC} volumes")
    assert {"name": "shards", "mountPath": "/etc/tarkit", "readOnly": True} in at(job, f"{MAIN} volumeMounts")
    assert at(job, f"{MAIN} args")[-2:] == ["--", "@/etc/tarkit/shards.gz"]
    assert job["metadata"]["annotations"]["tarkit.dev/list"] == name
    assert job["metadata"]["annotations"]["tarkit.dev/inputs"] == '["@/etc/tarkit/shards.gz"]'
    (key,) = config_map["binaryData"]
    assert key == "shards.gz"
    assert gzip.decompress(base64.b64decode(config_map["binaryData"][key])).decode().splitlines() == NAMES
    assert rendered(*words, "-N", "team") == [config_map, job]
    # Another list is another object: it is immutable.
    assert rendered(*listed(folder, NAMES[1:]))[0]["metadata"]["name"] != name


def test_a_config_map_of_ones_own_beside_that_of_the_list(folder: Path) -> None:
    _, job = rendered(*listed(folder, NAMES), "--config-map", "shards", "--secret", "s")
    mounts = {each["mountPath"]: each["name"] for each in at(job, f"{MAIN} volumeMounts")}
    assert set(mounts) == {"/scratch", "/files", "/etc/tarkit", "/secrets/s"}
    assert len(set(mounts.values())) == 4


def test_several_documents_of_a_template(folder: Path) -> None:
    """What others refer to by its name keeps it; and an image of a template will do."""
    text = (Path(__file__).resolve().parents[3] / "k8s_templates" / "indexed.yaml").read_text()
    text = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: own}}\ndata: {{a: b}}\n---\n{text}"
    (folder / "t.yaml").write_text(text.replace("ubuntu:24.04", "mine:1"))
    words = [word for word in listed(folder, NAMES) if word not in ("-I", "i:1")]
    found = rendered(*words, "--template", "t.yaml", "--set", "spec.suspend=true")
    assert [each["kind"] for each in found] == ["ConfigMap", "ConfigMap", "Job"]
    assert [each["metadata"]["name"] for each in found][::2] == ["own", "x"]
    # --set is about the Job, not its list.
    assert (at(found[2], f"{MAIN} image"), ["spec" in each for each in found]) == ("mine:1", [False, False, True])


def test_set_cannot_leave_slices_undone() -> None:
    for value in ("2", "null", "21"):
        assert "cut into 20 slices" in refused(*BASE, "--set", f"spec.completions={value}")
    assert one(*BASE, "--set", "spec.completions=20") == one(*BASE)


def test_a_list_at_a_url_is_pinned_by_its_names(folder: Path) -> None:
    (folder / "theirs").write_text("# theirs\n" + "".join(f"{name}\n" for name in NAMES))
    (job,) = rendered(*drop("--shards"), "--shards", f"@file://{folder}/theirs", warns="must stay as it is")
    args = at(job, f"{MAIN} args")
    names = "".join(f"{name}\n" for name in NAMES).encode()
    assert args[args.index("--list-sha256") + 1] == hashlib.sha256(names).hexdigest()
    # A ConfigMap can be deleted, and made anew under its name.
    args = at(rendered(*listed(folder, NAMES))[-1], f"{MAIN} args")
    assert args[args.index("--list-sha256") + 1] == hashlib.sha256(names).hexdigest()
    # A pattern can not change.
    assert "--list-sha256" not in at(one(*BASE), f"{MAIN} args")


def test_paths_of_this_machine_are_refused(folder: Path) -> None:
    (folder / "a.tar").write_bytes(b"")
    for text in ("a.tar", "./{0..3}.tar", "*.tar", "-", "pipe:cat x", "@-"):
        found = refused(*drop("--shards"), "--shards", text)
        assert any(word in found for word in ("of this machine", "a pod has no", "no shards"))
    assert at(one(*drop("--shards"), "--shards", "/data/{0..3}.tar"), f"{MAIN} args")[-1] == "/data/{0..3}.tar"
    assert "outdir" in refused(*BASE[:-1], "./out")


def test_here_paths_and_images_do_not_matter(folder: Path) -> None:
    """As ``kubetpl local`` asks."""
    (folder / "a.tar").write_bytes(bytes(1024))
    made = Settings(name="x", command="true", shards=[str(folder / "a.tar")], outdir="out")
    request = Request(made, read_template(template_path("indexed")), here=True)
    text = dump_documents(INDEXED.documents(request))
    assert yaml.safe_load(text)["spec"]["completions"] == 1


def test_a_template_without_a_job(folder: Path) -> None:
    (folder / "t.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: m, image: i}]}\n"
    )
    assert "no Job in it" in refused(*BASE, "--template", "t.yaml")
    (folder / "t.yaml").write_text("apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\n")
    assert "no container" in refused(*BASE, "--template", "t.yaml")


def test_a_template_of_ones_own_becomes_indexed(folder: Path) -> None:
    (folder / "t.yaml").write_text(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\nspec: {template: {spec: {restartPolicy: Never, "
        "containers: [{name: mine, image: 'i:1', resources: {requests: {memory: 1Gi}, limits: {memory: 1Gi}}}]}}}\n"
    )
    job = one(*BASE, "--template", "t.yaml", "--retries", "2")
    assert job["spec"]["completionMode"] == "Indexed"
    assert job["spec"]["backoffLimitPerIndex"] == 2
    assert at(job, f"{MAIN} command") == ["tarproc"]
    assert one(*BASE, "--template", "t.yaml")["spec"]["completions"] == 20


CLAIM = ("--set", "spec.template.spec.volumes=[{name: d, persistentVolumeClaim: {claimName: d}}]",
         "--set", "spec.template.spec.containers[main].volumeMounts=[{name: d, mountPath: /data}]")  # fmt: skip


@pytest.mark.parametrize(
    ("outdir", "more", "says"),
    [
        ("/data/out", (), "warning: Job x: the output '/data/out' is in no volume"),
        ("/scratch/out", ("--raw",), "warning: Job x: the output '/scratch/out' is in the volume scratch"),
        ("/scratch/out", (), "Job x: the output '/scratch/out' is in the volume scratch"),
        ("s3://b/out", (), ""), ("/data/out", CLAIM, ""), ("s3://b/out", ("--raw",), ""),
    ],
)  # fmt: skip
def test_an_output_that_is_lost_with_the_pod(outdir: str, more: tuple[str, ...], says: str) -> None:
    said = kubetpl(*BASE[:-1], outdir, *more)
    assert (said.code, bool(said.out)) == ((2, False) if says.startswith("Job") else (0, True)), said.err
    assert said.err.startswith(f"kubetpl: {says}") if says else said.err == ""


def test_outputs_are_not_written_by_http() -> None:
    for outdir in ("https://u:secret@h/out", "HTTP://h/out"):
        found = refused(*BASE[:-1], outdir)
        assert found.startswith("--outdir ") and "cannot be written by http" in found and "secret" not in found
    # A command of the user's own may do so.
    assert one(*BASE[:-1], "http://h/out", "--raw")["metadata"]["annotations"]["tarkit.dev/outdir"] == "http://h/out"


def test_bad_options_after_the_dashes_point_to_tarproc() -> None:
    for words in (("--no-such",), ("--errors", "sometimes"), ("--timeout",), ("-Z",), ("-p=2",), ("--batch", "0")):
        found = refused(*BASE, "--", *words)
        assert found.startswith("after --: ") and "tarproc --help" in found
