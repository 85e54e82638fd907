"""``kubetpl``: process shards with Kubernetes Jobs."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import click

from .shared.program import run_program, version_option
from .shared.sections import VerbGroup

NAME = "kubetpl"
VERBS = {
    "Print manifests": {
        "job": "A Job that runs a shell command in one pod.",
        "pod": "A pod, without a Job that starts it again.",
        "jobs": "A Job for each item of --over, in one YAML stream; {i} is replaced by the item, {n} by its number.",
        "indexed": "One Job over many shards; each of its pods runs tarproc over one slice of them.",
        "shuffle": "Two Jobs that write all samples in a random order, as tarkit shuffle does: NAME-scatter, "
        "NAME-gather.",
        "sort": "Two Jobs that write all samples in the order of a value, as tarkit sort does: NAME-scatter, "
        "NAME-gather.",
        "join": "Two Jobs that join two data sets by key, as tarkit join does: NAME-scatter, NAME-gather.",
        "reduce": "Two Jobs that make one sample of each group of samples, as tarkit reduce does: NAME-scatter, "
        "NAME-gather.",
        "dedup": "Three Jobs that leave out repeated samples, as tarkit dedup does: NAME-scatter, NAME-match, "
        "NAME-gather.",
        "service": "A service by which the pods of an app are found.",
        "configmap": "A ConfigMap with the content of files: NAME FILE… or NAME KEY=FILE…",
        "train": "Print an elastic training job: a shard service, and workers that come and go.",
        "pai": "Print a run of tarproc over shards as a job of OpenPAI, with a task for each slice of them.",
    },
    "Run a manifest on this machine": {
        "local": "Run on this machine the manifest of -f FILE, or of a generator such as indexed -n x …."
    },
    "Jobs in a cluster": {
        "status": "Show the progress of Job NAME, why its pods failed, and why nothing runs.",
        "wait": "Wait until Job NAME is complete or has failed, and print the result in one line.",
        "logs": "Print the log of the last pod of each index of Job NAME; each line begins with [INDEX].",
        "retry": "Print the manifest of a Job for the shards that Job NAME has left undone; pipe it to kubectl.",
        "scale": "Set the number of pods of Job NAME that run at once.",
        "cancel": "Suspend Job NAME: stop its pods, and keep its finished indexes and all done records.",
    },
}
"""Heading -> its verbs, each with the first sentence of its help."""


class _Commands(VerbGroup):
    verbs = VERBS

    def load(self, name: str) -> click.Command:
        from tarkit.k8s.settings import GENERATORS

        if name in GENERATORS:
            from .kube.generator import generator_command

            return generator_command(name, VERBS["Print manifests"][name])
        command: click.Command = importlib.import_module(f".kube.verbs.{name}", __package__).command
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@version_option
def kubetpl() -> None:
    """Run commands over tar shards as Kubernetes Jobs: print manifests, report on shards."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program, and return its exit code."""
    return run_program(kubetpl, NAME, argv)


if __name__ == "__main__":
    raise SystemExit(main())
