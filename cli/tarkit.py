"""``tarkit``: list, create, convert and copy tar shards; one verb for each task."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import click

from .shared.program import run_program, version_option
from .shared.sections import VerbGroup

NAME = "tarkit"
VERBS = {
    "Make shards": {
        "create": "Make shards of files, class folders or tables, or of a plan's sources.",
        "split": "Cut shards into a numbered series of shards.",
        "cat": "Join shards into one.",
        "select": "Copy the samples that meet conditions, with some of their fields.",
        "sample": "Draw samples at random, each with the same probability, and keep their order.",
        "mix": "Mix data sets by weights, each in its own order; no sample comes twice.",
        "pick": "Fetch samples by their keys, in the order of the shards.",
        "salvage": "Copy the whole samples of damaged shards, and report what was lost.",
    },
    "All samples at once": {
        "shuffle": "Write all samples in a random order: all orders have the same probability.",
        "sort": "Write all samples in the order of a value; equal ones stay in input order.",
        "join": "Join two data sets by key: one sample of both for each key.",
        "reduce": "Make one sample of each group of samples, by a command or a Python function.",
        "dedup": "Leave out the samples whose content an earlier sample has.",
    },
    "Look into shards": {
        "show": "List the samples of shards, or the records of files of other formats, with their sizes.",
        "count": "Count samples, and bytes of content by field.",
        "stats": "Summarize fields, sizes, classes, pictures, JSON, texts and sound, or compare two data sets.",
        "check": "Report what is wrong with shards: one line for each finding, with its shard, key and offset.",
        "diff": "List the samples by which two data sets differ, by key and content.",
        "index": "Write an index beside each shard: NAME.idx for NAME.tar.",
        "explain": "Show the key and field of names, and why names are skipped.",
    },
    "Other formats": {
        "convert": "Convert tar shards to record files, back, or between formats of record files.",
        "export": "Export samples to a folder of files, a table, or a data set of another library.",
        "recordio-gen": "Make RecordIO files of tf.train.Examples.",
    },
    "Runs and training": {
        "status": "Show which shards of a tarproc -O OUTDIR are done, missing, stale or failed.",
        "serve": "Hand out ranges of records to trainers whose workers come and go.",
        "audit": "Check that a training used each sample exactly once an epoch, from the records in DIR.",
        "feed-test": "Measure how fast a machine reads a data set, without a model, and what limits it.",
    },
    "Files, locally and in stores": {
        "ls": "List folders, locally or in a store, by name; names of folders end with a slash.",
        "get": "Copy files and folders from a store to the local disk.",
        "put": "Copy local files and folders to a store, or to another place on the disk.",
        "rm": "Remove files, locally or in a store.",
    },
    "Images and OpenPAI": {
        "zoo": "Put a model zoo, a folder of trainers, into an image for kubetpl train.",
        "pai": "Check, convert and submit jobs of OpenPAI: job JSON (version 1) and job YAML (protocol 2).",
    },
    "First steps": {
        "demo": "Make three small shards to try commands on.",
        "help": "Print the help of a verb, or name the verb for an older program.",
        "completion": "Print a shell script that completes command lines of tarproc, tarkit and kubetpl.",
    },
}
"""Heading -> its verbs, each with the first sentence of its help."""


class _Verbs(VerbGroup):
    verbs = VERBS

    def load(self, name: str) -> click.Command:
        command: click.Command = importlib.import_module(f".verbs.{name.replace('-', '_')}", __package__).command
        return command


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@version_option
def tarkit() -> None:
    """Look at tar shards of training data, make them, and reshape them.

    To run a command over every sample, see tarproc.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program, and return its exit code."""
    return run_program(tarkit, NAME, argv)


if __name__ == "__main__":
    raise SystemExit(main())
