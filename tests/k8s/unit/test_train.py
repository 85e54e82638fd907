"""Elastic training jobs: what their manifests are, and that they run, with kills,
on this machine.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubetplrun import VERSIONS, Outcome, kubernetes_validate, kubetpl

from tarkit.elasticdl.trainarguments import amounts_of, variables, volumes_of
from tarkit.errors import UsageError
from tarkit.k8s.local.policy import JobLedger, LocalJob
from tarkit.k8s.podfields import substitute
from tarkit.service.client import ShardClient

COMMON = ("--job_name", "iris", "--image_name", "example.com/tarkit:1", "--job_command", "python train.py $X")
# As seed texts of ElasticDL print it, but for names.
SEED = [
    "--image_name=elasticdl:1.0.0", "--worker_image=elasticdl:iris_estimator", "--ps_image=elasticdl:iris_estimator",
    "--job_command=python -m model_zoo.iris.dnn_estimator", "--master_resource_request=cpu=0.2,memory=1024Mi",
    "--master_resource_limit=cpu=1,memory=2048Mi", "--num_ps=1", "--ps_resource_request=cpu=0.2,memory=1024Mi",
    "--ps_resource_limit=cpu=1,memory=2048Mi", "--num_workers=1", "--worker_resource_request=cpu=0.3,memory=1024Mi",
    "--worker_resource_limit=cpu=1,memory=2048Mi", "--chief_resource_request=cpu=0.3,memory=1024Mi",
    "--chief_resource_limit=cpu=1,memory=2048Mi", "--num_evaluator=1",
    "--evaluator_resource_request=cpu=0.3,memory=1024Mi", "--evaluator_resource_limit=cpu=1,memory=2048Mi",
    "--job_name=test-iris-estimator", "--image_pull_policy=Never", "--distribution_strategy=ParameterServerStrategy",
    "--need_tf_config=true", "--volume=host_path=/data/iris,mount_path=/data",
]  # fmt: skip


def documents(*words: str) -> list[dict[str, Any]]:
    done = kubetpl("train", *words)
    assert done.code == 0, done.err
    return list(yaml.safe_load_all(done.out))


def job(found: list[dict[str, Any]], role: str) -> dict[str, Any]:
    (one,) = [each for each in found if each["kind"] == "Job" and each["metadata"]["labels"]["role"] == role]
    return one


def container(found: list[dict[str, Any]], role: str) -> dict[str, Any]:
    return dict(job(found, role)["spec"]["template"]["spec"]["containers"][0])


def env(found: list[dict[str, Any]], role: str) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in container(found, role)["env"]}


def refusal(*words: str) -> str:
    done = kubetpl("train", *words)
    assert (done.code, done.out) == (2, "")
    return done.err


def test_the_command_of_the_tutorial_is_taken_as_it_is_printed() -> None:
    found = documents(*SEED)
    kinds = [f"{each['kind']} {each['metadata']['name']}" for each in found]
    assert kinds == [
        "Service test-iris-estimator-shards", "Service test-iris-estimator",
        "PersistentVolumeClaim test-iris-estimator-state", "NetworkPolicy test-iris-estimator-shards",
        *(f"Job test-iris-estimator-{role}" for role in ("shards", "ps", "chief", "worker", "evaluator")),
    ]  # fmt: skip
    for document in found:
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)
    worker, service = container(found, "worker"), container(found, "shards")
    assert (worker["image"], service["image"]) == ("elasticdl:iris_estimator", "elasticdl:1.0.0")
    assert worker["resources"] == {
        "requests": {"cpu": "300m", "memory": "1Gi"},
        "limits": {"cpu": "1", "memory": "2Gi"},
    }
    assert {each["mountPath"] for each in worker["volumeMounts"]} == {"/data", "/state"}
    assert worker["imagePullPolicy"] == "Never"


def test_tf_config_is_that_of_each_pod() -> None:
    found = documents(*COMMON, "--num_ps", "2", "--num_workers", "2", "--num_evaluators", "1", "--need_tf_config")
    for role, index in (("ps", 0), ("chief", 0), ("worker", 1), ("evaluator", 0)):
        config = json.loads(env(found, role)["TF_CONFIG"].replace("$(TARKIT_INDEX)", str(index)))
        assert config["task"] == {"type": role, "index": index}
        assert config["cluster"] == {
            "ps": ["iris-ps-0.iris:2222", "iris-ps-1.iris:2223"],
            "chief": ["iris-chief-0.iris:3300"],
            "worker": ["iris-worker-0.iris:3333", "iris-worker-1.iris:3334"],
        }
        assert job(found, role)["spec"]["template"]["spec"]["subdomain"] == "iris"


def test_torchrun_s_variables() -> None:
    found = documents(*COMMON, "--framework", "torch", "--num_workers", "3")
    assert [each["metadata"]["name"] for each in found if each["kind"] == "Job"] == ["iris-shards", "iris-worker"]
    values = env(found, "worker")
    assert (values["MASTER_ADDR"], values["WORLD_SIZE"], values["RANK"]) == (
        "iris-worker-0.iris",
        "3",
        "$(TARKIT_INDEX)",
    )
    assert values["DLROVER_MASTER_ADDR"] == "iris-shards:50001"
    assert "TF_CONFIG" not in values


def test_the_pods_have_no_access_to_the_api() -> None:
    found = documents(*COMMON, "--num_ps", "1")
    pods = [each["spec"]["template"]["spec"] for each in found if each["kind"] == "Job"]
    assert [pod["automountServiceAccountToken"] for pod in pods] == [False] * 3
    assert not {each["kind"] for each in found} & {"Role", "RoleBinding", "ServiceAccount"}


def test_a_run_here_points_to_the_help_of_train() -> None:
    assert "(try 'kubetpl train --help')" in kubetpl("local", "train").err


def test_pods_that_wait_for_one_another_are_not_run_in_turn() -> None:
    done = kubetpl("local", "-j", "2", "train", *COMMON)
    assert done.code == 2 and "the 3 pods wait for one another" in done.err


def test_the_longest_lease_is_that_of_the_service() -> None:
    found = documents(*COMMON, "--lease_ceiling", "90")
    assert container(found, "shards")["command"][-2:] == ["--lease-ceiling", "90"]


def test_data_is_served_or_declared_by_the_trainers() -> None:
    found = documents(*COMMON, "--training_data", "/d/a-{0..9}.tar", "--num_epochs", "3")
    assert container(found, "shards")["command"][-4:] == ["--data", "/d/a-{0..9}.tar", "--epochs", "3"]
    declared = container(documents(*COMMON, "--training_data="), "shards")["command"]
    assert declared[-4:-1] == ["--state", "/state/iris.state", "--trainers"]


def test_the_run_of_the_service_is_the_uid_of_its_job() -> None:
    """A job that is applied again, on a claim whose data sets have ended, would train nothing."""
    found = container(documents(*COMMON), "shards")
    assert found["command"][:4] == ["tarkit", "serve", "--run", "$(TARKIT_RUN)"]
    field = {"apiVersion": "v1", "fieldPath": "metadata.labels['batch.kubernetes.io/controller-uid']"}
    assert {"name": "TARKIT_RUN", "valueFrom": {"fieldRef": field}} in found["env"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--minibatch_size", "64"], "--minibatch_size has no effect here: it is the trainer's"),
        (["--num"], "may be"),
        (["--job_nme", "x"], "No such option"),
        (["--need_tf_config=maybe"], "'maybe' is not one of"),
        (["--need_tf_config="], "'' is not one of"),
        (["--job_command", ""], "must not be empty"),
        (["--envs", "A=1,A=2"], "A comes twice"),
        (["--envs", "TF_CONFIG=1", "--need_tf_config"], "--envs: TF_CONFIG is set by kubetpl train itself"),
        (["--envs", "RANK=1", "--framework", "torch"], "--envs: RANK is set by kubetpl train itself"),
        (["--volume", "claim_name=c,mount_path=/a,type=Directory"], "type goes with host_path"),
        (["--volume", "claim_name=c,mount_path=/a/../state"], "not / or /state, without .."),
        (["--volume", "claim_name=c,mount_path=//"], "not / or /state"),
        (["--volume", "host_path=a,mount_path=/a"], "host_path is an absolute path on the nodes"),
        (["--volume", "mount_path=/a"], "write either claim_name"),
        (["--num_epochs", "3"], "goes with --training_data"),
        (["--training_data", "/d", "--data_reader_params", "a=1"], "goes with --custom_data_reader"),
        (["--need_tf_config", "--framework", "torch"], "leave one out"),
        (["--max_workers", "1"], "is less than --num_workers"),
        (["--max_workers", "5000", "--need_tf_config"], "TF_CONFIG has 148993 bytes"),
        (["--max_workers", "9" * 18, "--need_tf_config"], "TF_CONFIG has 4"),
        (["--worker_pod_priority", "1e-1"], "one priority class"),
        (["--job_name", "x" * 60], "leave room for the pods"),
        (["--job_name", "A_b"], "--job_name"),
        (["--state_claim", "A\nB"], "--state_claim: 'A\\nB' may have"),
        (["--worker_resource_request", "amd.com/gpu=x"], "write it as 1"),
        (["--ps_resource_request", "cpu=x"], "--ps_resource_request: cpu=x is not an amount"),
        (["--worker_resource_request", "memory=1"], "--worker_resource_request: memory=1 is not an amount"),
        (["--restart_policy", "Always"], "'Always' is not one of"),
        (["--node-selector", "x"], "node-selector (--node-selector) is NAME=VALUE; got 'x'"),
        (["--ttl", "x"], "--ttl x: write a time such as 90s"),
        (["--lease_ceiling", "nan"], "'--lease_ceiling': 'nan' is not a time"),
    ],
)
def test_what_has_no_effect_is_refused_with_what_to_use(words: list[str], message: str) -> None:
    found = refusal(*COMMON, *words)
    assert message in found and found.count("\n") == 1


@pytest.mark.parametrize(
    "text", ["a\nb: c\n- d", "'\"$(x) $$(y) $(WORKER_ID) {{x}} %s \\", "---\n...\n# x", "\x85\u2028\ufeff\x1b"]
)
def test_a_command_is_a_word_whatever_it_has_in_it(text: str) -> None:
    found = documents(*COMMON[:-2], "--job_command", text)
    assert substitute(container(found, "worker")["command"][-1], env(found, "worker")) == text


def test_words_of_the_template_stay_in_what_the_user_gives() -> None:
    words = [
        "--job_command",
        "mytask worker",
        "--envs",
        "A=mytask worker",
        "--num_ps=1",
        "--image_name",
        "mytask/worker",
    ]
    found = documents(*COMMON[:2], *words)
    for role in ("ps", "worker"):
        main = container(found, role)
        assert ("mytask worker" in main["command"], env(found, role)["A"]) == (True, "mytask worker")
        assert main["image"] == "mytask/worker"
    assert job(documents("--job_name", "worker", *COMMON[2:], "--num_ps=1"), "ps")["metadata"]["name"] == "worker-ps"


def test_resources() -> None:
    assert amounts_of(" cpu = 0.3 ,memory=1024Mi,disk=1Gi,gpu=2,amd.com/gpu=1,nvidia.com/mig-1g.5gb=2", "--x") == {
        "cpu": "300m", "memory": "1Gi", "ephemeral-storage": "1Gi", "nvidia.com/gpu": "2", "amd.com/gpu": "1",
        "nvidia.com/mig-1g.5gb": "2",
    }  # fmt: skip
    assert amounts_of("memory=0.1Gi,disk=12E", "--x") == {"memory": "107374183", "ephemeral-storage": "12E"}
    found = documents(*COMMON, "--worker_resource_request", "cpu=1,gpu=1", "--worker_resource_limit", "cpu=2")
    # A device is a limit, too.
    assert container(found, "worker")["resources"]["limits"] == {"cpu": "2", "nvidia.com/gpu": "1"}


@pytest.mark.parametrize(
    "text", ["", "cpu", "cpu=1,cpu=2", "disk=1Gi,ephemeral-storage=1Gi", "memory=1", "gpu=0.5", "a=1"]
)
def test_resources_that_cannot_be(text: str) -> None:
    with pytest.raises(UsageError):
        amounts_of(text, "--x")


def test_truths_are_those_of_elasticdl_in_any_case() -> None:
    for words, wanted in (
        (["--need_tf_config"], True), (["--need_tf_conf", "Y"], True), (["--need_tf_config=no"], False), ([], False),
    ):  # fmt: skip
        assert ("TF_CONFIG" in env(documents(*words, *COMMON), "worker")) is wanted


# All arguments of elasticdl train 1.0.0, beside those of the tutorial.
OTHERS = re.findall(
    r"\w+",
    """namespace restart_policy master_pod_priority worker_pod_priority ps_pod_priority chief_pod_priority
evaluator_pod_priority envs populate_env_names cluster_spec cluster_spec_json yaml aux_params log_file_path log_level
minibatch_size num_minibatches_per_task num_epochs max_step training_data validation_data evaluation_steps model_zoo
model_def feed loss optimizer callbacks eval_metrics_fn custom_data_reader data_reader_params checkpoint_dir
checkpoint_steps keep_checkpoint_max checkpoint_dir_for_init output use_async grads_to_wait get_model_steps
lr_staleness_modulation sync_version_tolerance log_loss_steps need_task_manager need_pod_manager
need_elasticdl_job_service task_fault_tolerance relaunch_timeout_worker relaunch_on_worker_failure ps_is_critical
critical_worker_index ps_relaunch_max_num launch_worker_after_ps_running enable_automate_memory num_ps_pods
num_evaluators""",
)


def test_every_other_argument_of_elasticdl_is_known() -> None:
    from tarkit.cli.kube.verbs.train import _REFUSED, command

    taken = {each.name for each in command.params}
    assert [name for name in OTHERS if (name in taken) == (name in _REFUSED)] == []
    assert all(_REFUSED.values())


@pytest.mark.parametrize(
    ("words", "most"),
    [
        ((), 54),
        (("--max_workers", "11"), 53),
        (("--num_evaluators=1", "--num_workers=1000"), 51),
        (("--num_ps=1",), 54),
    ],
)
def test_the_longest_name_that_fits_is_taken(words: tuple[str, ...], most: int) -> None:
    """Of the pods' host names, ``NAME-worker-1``, each of which is a DNS label."""
    named = [*COMMON, *words, "--job_name"]
    for each in documents(*named, "x" * most):
        spec = each["spec"]
        assert len(f"{each['metadata']['name']}-{spec['completions'] - 1}" if "completions" in spec else "") <= 63
    assert f"{most} leave room" in refusal(*named, "x" * (most + 1))


def test_volumes_are_declared_once_and_mounted_many_times() -> None:
    text = "claim_name=c,mount_path=/a; claim_name=c,mount_path=/b,sub_path=x;host_path=/d,mount_path=/e"
    assert volumes_of(text) == (
        [
            {"name": "volume-0", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "volume-1", "hostPath": {"path": "/d"}},
        ],
        [
            {"name": "volume-0", "mountPath": "/a"},
            {"name": "volume-0", "mountPath": "/b", "subPath": "x"},
            {"name": "volume-1", "mountPath": "/e"},
        ],
    )
    assert volumes_of("") == ([], [])


def test_variables_may_have_commas_in_them() -> None:
    assert variables("A=1,B=x,y,C=") == {"A": "1", "B": "x,y", "C": ""}
    for text in ("A", "1=2"):
        with pytest.raises(UsageError):
            variables(text)


def test_an_elastic_job_that_is_resized() -> None:
    spec = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 1}
    ledger = JobLedger(LocalJob({"spec": {**spec, "template": {"spec": {"containers": [{}]}}}}), 2)
    assert [ledger.take(0), ledger.take(0), ledger.take(0)] == [0, 1, None]
    ledger.resize(4)
    assert [ledger.take(0), ledger.take(0), ledger.take(0)] == [2, 3, None]
    ledger.finish(3, "p", 0, 1)
    ledger.finish(2, "p", 9, 1)
    ledger.resize(1)
    assert (ledger.wanted, ledger.done, ledger.running) == (1, set(), {0, 1})
    # Made larger again before its pod has ended, an index begins anew when it has: else two pods
    # would have it.
    ledger.resize(3)
    assert [ledger.take(9), ledger.take(9)] == [2, None]
    ledger.stop(1)
    assert ledger.take(9) == 1
    ledger.resize(1)
    for index in (1, 2):
        ledger.stop(index)
    ledger.finish(0, "p", 0, 2)
    assert ledger.outcome is not None
    assert (ledger.outcome.type, ledger.take(9)) == ("Complete", None)


def test_workers_wait_for_the_service_longer_than_a_job_does_before_it_replaces_its_pod() -> None:
    """The Job controller doubles its delay with each lost pod, evicted ones too, up to
    10 minutes.
    """
    assert inspect.signature(ShardClient).parameters["patience"].default > 10 * 60 + 60


def test_scaling_what_does_not_run(tmp_path: Path) -> None:
    for number, reason in (("2", "no run of kubetpl local"), ("100000000", "takes 100000 at most"), ("0", "be paused")):
        done: Outcome = kubetpl("scale", "job-worker", "-j", number, "--state", str(tmp_path))
        assert (done.code, reason in done.err) == (2, True)


def test_trainers_run_in_an_image_that_has_a_shell_alone_and_tarkit_runs_beside_them() -> None:
    """That of the tutorial has neither tarkit nor a Python that it runs on."""
    found = documents(*SEED)
    for role in ("ps", "chief", "worker", "evaluator"):
        pod, main = job(found, role)["spec"]["template"]["spec"], container(found, role)
        assert (main["image"], main["command"][:2]) == ("elasticdl:iris_estimator", ["/bin/sh", "-c"])
        assert not {"tarkit", "python3"} & set(re.findall(r"\w+", " ".join(main["command"][2:3])))
        (watch,) = pod["initContainers"]
        assert (watch["image"], watch["restartPolicy"]) == ("elasticdl:1.0.0", "Always")
        assert watch["command"][-4:-2] == ["test-iris-estimator-shards:50001", f"{role}-$(TARKIT_INDEX)"]
    # It waits at its end for all pods, and knows which of them take no records.
    words = " ".join(container(found, "shards")["command"])
    named = {(option, each) for option, each in re.findall(r"(--\w+) (\w+=\d+)", words)}
    assert named == {
        ("--watchers", "ps=1"), ("--watchers", "evaluator=1"), ("--trainers", "chief=1"), ("--trainers", "worker=1"),
    }  # fmt: skip


def test_a_restricted_pod_s_sidecar_is_restricted_too() -> None:
    pod = job(documents(*COMMON, "--security", "restricted"), "worker")["spec"]["template"]["spec"]
    for each in (*pod["initContainers"], *pod["containers"]):
        assert each["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_all_jobs_of_a_training_job_are_placed_alike_and_end_in_time() -> None:
    found = documents(
        *COMMON, "--num_ps=1", "--ttl=7d", "--deadline", "2h", "--queue", "etl", "--node-selector", "a=b",
        "--node_selector", "c=d", "--priority-class", "low", "--worker_pod_priority", "high",
    )  # fmt: skip
    for role in ("shards", "ps", "worker"):
        one = job(found, role)
        assert one["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "etl"
        assert (one["spec"]["activeDeadlineSeconds"], one["spec"]["ttlSecondsAfterFinished"]) == (7200, 604800)
        pod = one["spec"]["template"]["spec"]
        assert pod["nodeSelector"] == {"a": "b", "c": "d"}
        assert pod["priorityClassName"] == ("high" if role == "worker" else "low")
        # Kueue counts what each container asks for.
        assert all(each["resources"]["requests"] for each in (*pod.get("initContainers", ()), *pod["containers"]))


def test_a_service_whose_trainers_have_all_failed_ends_and_the_run_is_failed() -> None:
    """With 1, of which its Job does not start it again.

    It ends itself, since no pod has access to the API.
    """
    service = job(documents(*COMMON), "shards")
    words = service["spec"]["template"]["spec"]["containers"][0]["command"]
    assert float(words[words.index("--desertion") + 1]) > 10 * 60  # a Job's longest wait before it replaces a pod
    # The last one counts.
    assert container(documents(*COMMON, "--desertion=14400"), "shards")["command"][-2:] == ["--desertion", "14400"]
    rules = service["spec"]["podFailurePolicy"]["rules"]
    assert {each["action"] for each in rules if 1 in each.get("onExitCodes", {}).get("values", ())} == {"FailJob"}
