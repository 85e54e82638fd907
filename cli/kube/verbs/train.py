"""``kubetpl train``: print an elastic training job, with the arguments of ``elasticdl train``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import click

from tarkit.errors import EXIT_OK, UsageError, printable
from tarkit.k8s.settings import PAIRS, TABLE
from tarkit.names.redaction import exposure

from ...shared.program import Seconds, say, standard_options, write_stdout
from ...shared.sections import LongHelp
from ..clusteroptions import not_empty

_EPILOG = """\b
Examples:
  kubetpl train --job_name iris --image_name example.com/iris:1 --num_workers 4 \\
      --job_command 'python train.py' --volume claim_name=data,mount_path=/data | kubectl apply -f -
  kubetpl local train --job_name iris --image_name none --num_workers 2 --job_command 'python train.py' \\
      --framework torch --training_data 'shard-{000000..000002}.tar'
"""

_ROLES = ("worker", "ps", "chief", "evaluator")

# Arguments of elasticdl that have nothing to set here, and what to use. A name may stand for all
# that begin so.
_IN_COMMAND = "it is the trainer's: put it into --job_command"
_REFUSED = {
    **dict.fromkeys(
        ("minibatch_size", "max_step", "validation_data", "evaluation_steps", "model_def", "model_params", "feed",
         "loss", "optimizer", "callbacks", "eval_metrics_fn", "checkpoint_dir", "checkpoint_steps",
         "keep_checkpoint_max", "checkpoint_dir_for_init", "output", "use_async", "grads_to_wait", "get_model_steps",
         "lr_staleness_modulation", "sync_version_tolerance", "log_loss_steps", "log_level"),
        _IN_COMMAND,
    ),
    "num_minibatches_per_task": "--records_per_shard is its product with the size of a batch",
    "populate_env_names": "name the variables: --envs",
    "cluster_spec": "change the printed manifest",
    "cluster_spec_json": "change the printed manifest",
    "aux_params": "--relaunch_on_worker_failure 0 disables relaunches",
    "log_file_path": "kubetpl logs has the logs",
    "task_fault_tolerance": "it is always on",
    "relaunch_timeout_worker": "a silent worker loses its shards by the lease of the service",
    "need_task_manager": "the service is always there",
    "need_pod_manager": "Kubernetes itself replaces pods",
    "need_elasticdl_job_service": "nothing runs in its place",
    "ps_is_critical": "a parameter server is always replaced",
    "critical_worker_index": "no worker is critical",
    "ps_relaunch_max_num": "--relaunch_on_worker_failure",
    "launch_worker_after_ps_running": "pods wait for one another by themselves",
    "enable_automate_memory": "set --worker_resource_limit",
    "yaml": "it is printed to standard output",
}  # fmt: skip

_TRUE, _FALSE = ("true", "yes", "t", "y", "1"), ("false", "no", "f", "n", "0")


class _TrainCommand(LongHelp):
    """A command that parses options as argparse does: with - or _, and by a unique prefix."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = [*(str(each.name) for each in self.params if isinstance(each, click.Option)), *_REFUSED]
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [*(_in_full(word, known) for word in args[:end]), *args[end:]])


def _in_full(word: str, known: Sequence[str]) -> str:
    """Return an abbreviated option by its full name.

    An unknown option is returned as it was typed, for the error message.
    """
    if not word.startswith("--"):
        return word
    typed, mark, value = word[2:].partition("=")
    typed = typed.replace("-", "_")
    found = [typed] if typed in known else sorted(each for each in known if typed and each.startswith(typed))
    if len(found) > 1:
        raise UsageError(f"--{printable(typed)} may be {', '.join(f'--{each}' for each in found)}; write it out")
    if found and found[0] in _REFUSED:
        raise UsageError(f"--{found[0]} has no effect here: {_REFUSED[found[0]]}")
    return f"--{found[0]}{mark}{value}" if found else word


def _resource_options(command: Any) -> Any:
    for role in (*reversed(_ROLES), "master"):  # the last one comes first in the help
        about = "the shard service" if role == "master" else f"a pod of kind {role}"
        default = "cpu=0.1,memory=1024Mi" if role == "master" else "cpu=1,memory=4096Mi"
        for kind, value, text in (
            ("limit", "", f"Resource limits of {about}.  [default: its requests]"),
            ("request", default, f"Resource requests of {about}."),
        ):
            name = f"{role}_resource_{kind}"
            option = click.option(
                f"--{name}", name, default=value, show_default=bool(value), metavar="NAME=N,…", help=text
            )
            command = option(command)
        command = click.option(
            f"--{role}_pod_priority",
            f"{role}_pod_priority",
            default="",
            metavar="CLASS",
            help=f"Priority class of {about}.",
        )(command)
    return command


def _placement_options(command: Any) -> Any:
    for each in (TABLE[name] for name in ("priority_class", "node_selector", "queue", "ttl", "deadline")):
        option = click.option(
            f"--{each.name}", each.name, metavar=each.metavar, help=each.help, multiple=each.kind == PAIRS
        )
        command = option(command)
    return command


@click.command("train", cls=_TrainCommand, epilog=_EPILOG)
@click.option(
    "--job_name",
    required=True,
    metavar="NAME",
    callback=not_empty,
    help="Name of the job; its pods are NAME-worker-0, ….",
)
@click.option(
    "--image_name",
    required=True,
    metavar="IMAGE",
    callback=not_empty,
    help="Image of the shard service and of the sidecars of all pods; it contains tarkit.",
)
@click.option(
    "--worker_image",
    default="",
    metavar="IMAGE",
    help="Image of the trainers; it needs no more than a shell.  [default: --image_name]",
)
@click.option(
    "--ps_image", default="", metavar="IMAGE", help="Image of the parameter servers.  [default: --worker_image]"
)
@click.option(
    "--job_command",
    required=True,
    metavar="CMD",
    callback=not_empty,
    help="Command line that all pods but the shard service run, in bash (sh if the image has none).",
)
@click.option(
    "--model_zoo",
    default="",
    metavar="DIR",
    help="Model zoo, as for tarkit zoo init; commands start in the folder above it.",
)
@click.option(
    "--framework",
    type=click.Choice(["tensorflow", "torch"]),
    help="Framework: torch sets torchrun's variables, tensorflow TF_CONFIG.  [default: neither]",
)
@click.option(
    "--num_workers", type=click.IntRange(1), default=2, show_default=True, metavar="N", help="Number of workers."
)
@click.option(
    "--max_workers",
    type=click.IntRange(1),
    metavar="N",
    help="Number of workers in TF_CONFIG.  [default: --num_workers]",
)
@click.option(
    "--num_ps_pods",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Number of parameter servers; also --num_ps.",
)
@click.option(
    "--num_evaluators", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Number of evaluators."
)
@click.option(
    "--need_tf_config", type=click.Choice([*_TRUE, *_FALSE], False), default="false", is_flag=False, flag_value="true",
    metavar="BOOL", callback=lambda _context, _option, value: value in _TRUE,
    help="Give all pods a TF_CONFIG, as --framework tensorflow does.",
)  # fmt: skip
@click.option(
    "--distribution_strategy", default="ParameterServerStrategy", show_default=True,
    type=click.Choice(["", "Local", "ParameterServerStrategy", "AllreduceStrategy", "CustomStrategy"]),
    help="Distribution strategy; ParameterServerStrategy with TF_CONFIG adds a chief.",
)  # fmt: skip
@click.option(
    "--training_data", metavar="SPEC", help="Data to serve; without it, the trainers declare their data sets."
)
@click.option(
    "--records_per_shard",
    type=click.IntRange(1, 2**31 - 1),
    metavar="N",
    help="Number of records in a task of --training_data.  [default: 1024]",
)
@click.option(
    "--num_epochs",
    type=click.IntRange(1, 2**31 - 1),
    metavar="N",
    help="Number of epochs of --training_data.  [default: 1]",
)
@click.option(
    "--shuffle",
    type=click.Choice(["shards", "records"]),
    help="Order of --training_data: shuffle its shards, or its records.",
)
@click.option(
    "--custom_data_reader", metavar="MODULE:FUNCTION", help="Function that makes the reader of --training_data."
)
@click.option("--data_reader_params", metavar="NAME=VALUE;…", help="Arguments of that function.")
@click.option(
    "--volume",
    default="",
    metavar="TEXT",
    help="Volumes to mount: claim_name=NAME,mount_path=/PATH or host_path=/PATH,mount_path=/PATH; separated by ;.",
)
@click.option(
    "--state_claim",
    default="",
    metavar="NAME",
    help="PersistentVolumeClaim for the service's state.  [default: a new one of 1Gi, in the output]",
)
@click.option("--envs", default="", metavar="K=V,…", help="Environment variables of all pods.")
@click.option(
    "--image_pull_policy",
    type=click.Choice(["Always", "IfNotPresent", "Never"]),
    metavar="POLICY",
    help="Pull policy of all images: Always, IfNotPresent or Never.",
)
@click.option(
    "--restart_policy",
    type=click.Choice(["Never", "OnFailure"]),
    default="Never",
    show_default=True,
    help="Restart policy of the trainers' pods; OnFailure restarts the container in place.",
)
@click.option(
    "--relaunch_on_worker_failure",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    metavar="N",
    help="Number of retries of each failed trainer's pod, with --restart_policy Never.",
)
@click.option(
    "--lease_ceiling", type=Seconds(min_open=True), metavar="SECONDS",
    help="Longest time until the records of a lost or hanging worker are reassigned.  "
    "[default: that of tarkit serve]",
)  # fmt: skip
@click.option(
    "--desertion", type=Seconds(min_open=True), metavar="SECONDS",
    help="Fail when no trainer has sent a heartbeat for this time and records are left.  [default: 900]",
)  # fmt: skip
@click.option(
    "--end_grace", type=click.IntRange(0, 86_400), default=60, show_default=True, metavar="SECONDS",
    help="Time that the other pods keep running after the last record, so that the chief can write the model.",
)  # fmt: skip
@click.option("--namespace", default="", metavar="NAME", help="Namespace of all objects.")
@click.option(
    "--security", type=click.Choice(["restricted", "none"]), default="none", show_default=True,
    help="Pod security standard to meet. With restricted, all pods run as user 65532.",
)  # fmt: skip
@_placement_options
@_resource_options
@standard_options
def command(verbose: bool, **options: Any) -> int:
    """Print an elastic training job: a shard service, and workers that come and go.

    The arguments are those of elasticdl train; an argument that has no effect here is an error that
    names what to use. The service hands out ranges of records; its state is on a claim, so that it
    resumes after it was killed. Workers find it by DLROVER_MASTER_ADDR; kubetpl scale NAME-worker
    -j 8 changes their number while they run. Parameter servers and evaluators end --end_grace
    seconds after the last record is done. The pods have no access to the API.
    """
    from tarkit.elasticdl.trainarguments import train_job
    from tarkit.k8s.yamltext import dump_documents

    documents = train_job(options).documents()
    if wrong := exposure("--training_data", options["training_data"] or ""):
        say("kubetpl", f"warning: {printable(wrong)}")
    write_stdout(dump_documents(documents).encode())
    return EXIT_OK


def train_documents(words: list[str]) -> list[dict[str, Any]]:
    """Return the manifests that the arguments ask for, to run on this machine."""
    from tarkit.elasticdl.trainarguments import train_job

    with command.make_context("kubetpl train", words) as context:
        return train_job(context.params).documents(here=os.getcwd())
