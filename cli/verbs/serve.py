"""``tarkit serve``: run the shard service, or show the progress of a running one."""

from __future__ import annotations

from typing import Any

import click

from tarkit.errors import UsageError

from ..shared.completion import values_in
from ..shared.program import Seconds, reject_options, standard_options
from ..shared.sections import LongHelp
from ..shared.serviceprogress import ServiceProgress, watch_service
from ..shared.signals import Terminated

_EPILOG = """\b
Examples:
  tarkit serve --data 'shards-{000..147}.tar' --records-per-shard 512 --epochs 10 --shuffle shards
  tarkit serve --dataset iris=150 --records-per-shard 20 --http 8080
  tarkit serve --listen 127.0.0.1:50001
  tarkit serve --watch 127.0.0.1:50001

\b
Exit codes: 0 complete; 3 complete, but shards are dead: they are listed; 1 too many are dead, or no worker is left
(--desertion); 2 the state belongs to a different data set, or ended in a different run; 130, 143 stopped: the same
command resumes.
"""


def _sizes(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> list[tuple[str, int]]:
    """Parse the values of --dataset, --watchers and --trainers: a name and a number each."""
    found = []
    for value in values:
        name, _, size = value.rpartition("=")
        if not (name and size.isascii() and size.isdigit()):
            example = "iris=150" if parameter.name == "sized" else "worker=2"
            raise click.BadParameter(f"{value!r} is not {parameter.metavar}, such as {example}")
        found.append((name, int(size)))
    names = [name for name, _ in found]
    for name in names:
        if names.count(name) > 1:
            raise click.BadParameter(f"{name!r} is given {names.count(name)} times; give each a name of its own")
    return found


def _names(numbers: list[tuple[str, int]]) -> frozenset[str]:
    return frozenset(f"{name}-{index}" for name, number in numbers for index in range(number))


_SHAPE = ("records_per_shard", "epochs", "shuffle", "seed", "strict_epochs", "remainder", "dataset_name")
_WATCH = ("watched", "watcher", "tls_certificate", "token_file", "quiet", "verbose")


@click.command("serve", cls=LongHelp, epilog=_EPILOG)
@click.option(
    "--listen", default="127.0.0.1:50001", show_default=True, metavar="HOST:PORT",
    help="Address on which to listen; port 0 takes a free one.",
)  # fmt: skip
@click.option(
    "--state", default="tarkit-serve.state", show_default=True, metavar="FILE",
    help="File with the progress, from which the same command resumes; the word none keeps it in memory.",
)  # fmt: skip
@click.option(
    "--ready-file", default="", metavar="FILE", help="File with the address; it exists while workers can call."
)
@click.option(
    "--run", "run", default="", metavar="ID",
    help="Identity of the run, such as the UID of a Job; a state that ended in a different run is refused.",
)  # fmt: skip
@click.option("--until-ended", is_flag=True, help="End when all data sets that clients have declared have ended.")
@click.option(
    "--drain", type=Seconds(), default=30.0, show_default=True, metavar="SECONDS",
    help="Longest time to wait, at the end, until all known workers have learned of it.",
)  # fmt: skip
@click.option("--http", default="", metavar="[HOST:]PORT", help="A status page, /metrics for Prometheus, and /healthz.")
@click.option(
    "--watch", "watched", metavar="HOST:PORT", help="Show the progress of a running service; do not start one."
)
@click.option(
    "--as", "watcher", default="", metavar="NAME",
    help="With --watch: name of this watcher. At its end, the service waits up to --drain seconds until NAME knows.",
)  # fmt: skip
@click.option(
    "--watchers", multiple=True, callback=_sizes, metavar="NAME=N",
    help="At the end, wait up to --drain seconds for the watchers NAME-0 to NAME-(N-1); see --as.",
)  # fmt: skip
@click.option(
    "--trainers", multiple=True, callback=_sizes, metavar="NAME=N",
    help="Watchers, one beside each worker, to wait for like --watchers; while it watches, its worker is alive.",
)  # fmt: skip
@click.option(
    "--desertion", type=Seconds(min_open=True), metavar="SECONDS",
    help="Abort with 1 when no worker has sent a heartbeat for this time, after the first one.  [default: never]",
)  # fmt: skip
@click.option(
    "--data", "--training_data", "--training-data", "data", metavar="SPEC",
    help="Folder, shard spec or table to hand out, as tarkit.readers reads it.",
)  # fmt: skip
@click.option(
    "--dataset", "sized", multiple=True, callback=_sizes, metavar="NAME=SIZE",
    help="Data set NAME of SIZE records; repeatable.",
)  # fmt: skip
@click.option(
    "--reader-type", "--reader_type", metavar="TYPE", shell_complete=values_in("tarkit.readers.create", "READERS"),
    help="Reader of --data, such as CSV or Tar.",
)  # fmt: skip
@click.option(
    "--custom_data_reader", "--custom-data-reader", "custom_reader", metavar="MODULE:FUNCTION",
    help="Function that makes the reader of --data; also FILE.py:FUNCTION.",
)  # fmt: skip
@click.option(
    "--custom_data_reader_params", "--custom-data-reader-params", "--data_reader_params", "--data-reader-params",
    "params", default="", metavar="'NAME=VALUE; …'", help="Arguments of that function.",
)  # fmt: skip
@click.option("--name", "dataset_name", default="data", show_default=True, help="Name of the data set of --data.")
@click.option(
    "--records-per-shard", "--records_per_shard", type=click.IntRange(1), default=1024, show_default=True, metavar="N",
    help="Number of records in a shard, the range that a worker leases.",
)  # fmt: skip
@click.option(
    "--epochs", "--num_epochs", "--num-epochs", "epochs", type=click.IntRange(0), default=1, show_default=True,
    metavar="N", help="Number of epochs; 0 is without an end.",
)  # fmt: skip
@click.option(
    "--shuffle",
    type=click.Choice(["shards", "records"]),
    help="Use a new order of shards, or of records, in each epoch.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of these orders.")
@click.option("--strict-epochs", is_flag=True, help="Begin an epoch only when the previous one is complete.")
@click.option(
    "--remainder", type=click.Choice(["keep", "drop", "fill"]), default="keep", show_default=True,
    help="For a last shard with fewer records: keep it, drop it, or fill it with earlier records, which repeat.",
)  # fmt: skip
@click.option(
    "--lease-floor", type=Seconds(min_open=True), show_default="60, or the longest one if that is shorter",
    metavar="SECONDS", help="Shortest lease: a worker that is silent for longer loses its shards.",
)  # fmt: skip
@click.option(
    "--lease-ceiling", type=Seconds(min_open=True), default=3600.0, show_default=True, metavar="SECONDS",
    help="Longest lease: a live worker that fetches and reports no shard for longer loses its shards.",
)  # fmt: skip
@click.option(
    "--max-errors", "lease_errors", type=click.IntRange(1), default=3, show_default=True, metavar="N",
    help="Number of failures after which a shard is dead.",
)  # fmt: skip
@click.option(
    "--max-losses", "lease_losses", type=click.IntRange(1), default=10, show_default=True, metavar="N",
    help="Number of lost workers, with no record done between them, after which a shard is dead.",
)  # fmt: skip
@click.option(
    "--max-dead", "most_dead", type=click.IntRange(1), default=10_000, show_default=True, metavar="N",
    help="Number of dead shards after which a data set is aborted.",
)  # fmt: skip
@click.option("--tls-key", metavar="FILE", help="PEM of the private key.")
@click.option("--tls-certificate", metavar="FILE", help="PEM of the certificate chain.")
@click.option("--token-file", metavar="FILE", help="File whose first line is the bearer token that callers need.")
@click.option("--insecure", is_flag=True, help="Allow other machines to call without TLS or without a token.")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress lines.")
@standard_options
def command(
    listen: str, state: str, ready_file: str, run: str, until_ended: bool, drain: float, http: str, watched: str | None,
    watcher: str, watchers: list[tuple[str, int]], trainers: list[tuple[str, int]], desertion: float | None,
    data: str | None, sized: list[tuple[str, int]], reader_type: str | None, custom_reader: str | None, params: str,
    dataset_name: str, records_per_shard: int, epochs: int, shuffle: str | None, seed: int, strict_epochs: bool,
    remainder: str, lease_floor: float | None, lease_ceiling: float, lease_errors: int, lease_losses: int,
    most_dead: int, tls_key: str | None, tls_certificate: str | None, token_file: str | None, insecure: bool,
    quiet: bool, verbose: bool,
) -> int:  # fmt: skip
    """Hand out ranges of records to trainers whose workers come and go.

    Workers call through tarkit.service.client, or with ElasticDL's own client. The state file has
    the progress of all data sets: after any end, the same command resumes. Without --data and
    --dataset, clients declare their data sets, and the service runs until it is stopped, or with
    --until-ended until all of them have ended.
    """
    if watched is not None:
        options = [option.name or "" for option in click.get_current_context().command.params]
        reject_options(set(options) - {*_WATCH}, "is an option of a service; --watch starts none")
        return watch_service(watched, tls_certificate, token_file, watcher, quiet=quiet)
    reject_options(["watcher"], "goes with --watch")
    from tarkit.elasticdl.mastercalls import ElasticDLCalls
    from tarkit.service.connection import security_of_files
    from tarkit.service.dataset import DataSet
    from tarkit.service.leases import LeaseRules
    from tarkit.service.serve import ServeSettings, files_to_serve, serve
    from tarkit.service.server import MakeAnswers, ShardCalls

    from ..shared.eventloop import run_until_signal

    if sized and (data or custom_reader):
        raise UsageError("--dataset goes without --data and --custom_data_reader")
    if sized:
        reject_options(["dataset_name"], "goes with --data; the name is in --dataset NAME=SIZE")
    elif not (data or custom_reader):
        reject_options(_SHAPE, "goes with --data or --dataset; without one, clients declare their data sets")
    if (reader_type and not data) or (params and not custom_reader) or (reader_type and custom_reader):
        raise UsageError("--reader-type goes with --data alone, --custom_data_reader_params with --custom_data_reader")
    if lease_floor is None:
        lease_floor = min(LeaseRules.floor, lease_ceiling)
    settings = ServeSettings(
        listen, state, security_of_files(tls_key, tls_certificate, token_file), insecure,
        LeaseRules(lease_floor, lease_ceiling, errors=lease_errors, losses=lease_losses, dead=most_dead),
        drain, ready_file, http, until_ended, run,
        _names(watchers), _names(trainers), desertion,
    )  # fmt: skip
    shape: dict[str, Any] = {
        "epochs": epochs,
        "shuffle_shards": shuffle == "shards",
        "shuffle_records": shuffle == "records",
        "seed": seed,
        "remainder": "" if remainder == "keep" else remainder,
        "strict_epochs": strict_epochs,
    }
    datasets = [DataSet(name, size, records_per_shard, **shape) for name, size in sized]
    if data or custom_reader:
        files = files_to_serve(data or "", reader_type, custom_reader, params)
        datasets = [DataSet.of_files(dataset_name, files, records_per_shard, **shape)]
    # A protocol of other clients is one more of these.
    protocols: tuple[MakeAnswers, ...] = (ShardCalls, ElasticDLCalls)
    with ServiceProgress(settings.state, quiet=quiet) as progress:
        try:
            run_until_signal(serve(datasets, settings, progress, protocols))
        except Terminated:
            # Who ends a service that only answers so knows that no worker is left to ask.
            if not progress.is_over:
                raise
    return progress.code
