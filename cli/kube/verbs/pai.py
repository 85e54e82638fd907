"""``kubetpl pai``: the same run over shards as a job of OpenPAI."""

from __future__ import annotations

import dataclasses

import click

from tarkit.errors import EXIT_OK, UsageError, printable
from tarkit.names.redaction import exposure

from ...shared.program import say, standard_options, write_stdout

_EPILOG = """\b
Example:
  kubetpl pai -n jpg2ppm -I registry.example/etl:1 -c 'convert sample.jpg sample.ppm; rm sample.jpg' \\
      --shards 'hdfs://nn:9000/imagenet/train-{0000..0147}.tar' -O hdfs://nn:9000/out > job.yaml
"""


@click.command("pai", epilog=_EPILOG)
@click.argument("words", metavar="[-- TARPROC OPTIONS]", nargs=-1, type=click.UNPROCESSED)
@click.option("-n", "--name", required=True, help="Name of the job: letters, digits, - and _.")
@click.option(
    "-I", "--image", required=True, help="Container image with bash, tarproc, and the programs of the command."
)
@click.option("-c", "--command", "program", metavar="CMD", help="Command that tarproc runs for each sample.")
@click.option("--shards", multiple=True, required=True, metavar="SPEC", help="Input shards, in quotes; repeatable.")
@click.option("-O", "--outdir", required=True, metavar="URL", help="Folder for the output shards.")
@click.option(
    "--tasks",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="Most tasks; a list of kubetpl indexed --list-url has one for each of its slices.  [default: 128]",
)
@click.option("--cpu", type=click.IntRange(1, 4096), default=1, show_default=True, help="CPU cores of a task.")
@click.option(
    "--memory", type=click.IntRange(100), default=4096, show_default=True, metavar="MIB", help="Memory of a task."
)
@click.option("--shm", type=click.IntRange(0), default=512, show_default=True, metavar="MIB", help="Size of /dev/shm.")
@click.option(
    "--retries",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="Retries of a task; with protocol 1, of the job.",
)
@click.option(
    "--virtual-cluster", default="default", show_default=True, metavar="NAME", help="Virtual cluster of the job."
)
@click.option(
    "--protocol",
    type=click.Choice(["1", "2"]),
    default="2",
    show_default=True,
    help="Version of the protocol; 1 is JSON, for OpenPAI up to 0.17.",
)
@standard_options
def command(
    words: tuple[str, ...], name: str, image: str, program: str | None, shards: tuple[str, ...], outdir: str,
    tasks: int | None, cpu: int, memory: int, shm: int, retries: int, virtual_cluster: str, protocol: str,
    verbose: bool,
) -> int:  # fmt: skip
    """Print a run of tarproc over shards as a job of OpenPAI, with a task for each slice of them.

    tarkit pai submit submits it to a cluster. Shards that are done are skipped, so a job that is
    retried, or submitted again under a new name, processes only the missing shards.
    """
    from tarkit.k8s.generators.indexed import tarproc_options
    from tarkit.openpai.fanout import Resources, fan_out, job_text, task_plan

    given = {"slice": "--tasks", "list_sha256": "--shards", "outdir": "-O"}
    work = tarproc_options(words, given | ({} if program is None else {"command": "-c"}))
    if program is not None:
        work = dataclasses.replace(work, command=program)
    if not (work.command or work.script or work.function or work.filter):
        raise UsageError("name the command: -c CMD, or after -- tarproc's options")
    for option, url in (*(("--shards", each) for each in shards), ("-O", outdir)):
        if wrong := exposure(option, url):
            say("kubetpl pai", f"warning: {printable(wrong)}")
    plan = task_plan(shards, tasks, outdir)
    work = dataclasses.replace(work, inputs=tuple(plan.specs), outdir=outdir, list_sha256=plan.list_sha256)
    if work.parallel is None:
        work = dataclasses.replace(work, parallel=cpu)
    job = fan_out(
        work, name, image, plan.slices, Resources(cpu, memory, shm), protocol=int(protocol), retries=retries,
        virtual_cluster=virtual_cluster,
    )  # fmt: skip
    write_stdout(job_text(job, int(protocol)).encode())
    return EXIT_OK
