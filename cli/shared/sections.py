"""Help in sections: the heading of each option, and of each verb."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import click

from tarkit.errors import UsageError, printable

from .program import nearest

# The same name means the same in all programs. What is not here stands under the last heading.
_SECTIONS = {
    "Object": "name namespace label app job_name",
    "Workers, and what trains beside them": "job_command model_zoo framework num_workers max_workers num_ps_pods "
    "num_evaluators need_tf_config distribution_strategy relaunch_on_worker_failure lease_ceiling end_grace "
    "restart_policy",
    "Service": "listen state ready_file run until_ended drain http watched watcher watchers trainers",
    "Data sets": "data sized reader_type custom_reader params dataset_name records_per_shard epochs shuffle seed "
    "strict_epochs remainder training_data num_epochs custom_data_reader data_reader_params",
    "Leases": "lease_floor lease_ceiling lease_errors lease_losses most_dead desertion",
    "Security": "tls_key tls_certificate token_file insecure",
    "Stages": "work stage stage_slice wait suspend_gather jobset",
    "Join": "how on_conflict prefix",
    "Drawing and mixing": "sample_count fraction weights until prefixes draw_seed block buffer",
    "Conversion": "to source_format field example piece typed verify",
    "Selection": "perceptual missing match keys without_keys where drop_fields rename rekey",
    "Tables": "table key columns files delimiter quoting encoding",
    "Downloads": "url_tries url_per_host url_connections url_timeout url_max_bytes url_ignore_robots "
    "url_ignore_opt_out url_allow_private failed_rows",
    "Order, and parts": "shuffle_seed shares split_by by reverse to_map unlisted",
    "Input": "inputs files_from null classes classes_from plan directory skip_others on_same_extension shards over "
    "list_url slice list_sha256 count fields fieldmode key_rule on_duplicate_field on_repeated_key on_damage "
    "allow_pipe",
    "View": "text picture html thumbnail number source_format as_json",
    "Command": "command script interpreter function filter setup shell shell_flags env param raw batch timeout base "
    "multi subdirs separator working_dir",
    "Output": "output listing outdir force work_id include exclude add_log mtime format index manifest report "
    "quiet maxcount maxsize shard_count number_keys start trial dry_run as_json",
    "Failures": "errors max_errors require allow_empty retry_failed retries max_failed restartpolicy deadline ttl",
    "Speed": "parallel mem parallelism slices gather_slices",
    "Pod": "image_name worker_image ps_image image_pull_policy envs volume state_claim "
    "image image_pull_secret cpu memory gpu gpu_resource accelerator scratch port hostname subdomain",
    "Files, secrets and identity": "config_map config_map_path secret gac service_account security run_as",
    "Resources and priorities of each kind of pod": " ".join(
        f"{role}_{word}"
        for role in ("master", "worker", "ps", "chief", "evaluator")
        for word in ("resource_request", "resource_limit", "pod_priority")
    ),
    "Nodes and queues": "node_selector toleration queue priority_class",
    "Settings and templates": "config template assignments",
}
_OTHER = "Other"
HEADINGS = {name: heading for heading, names in _SECTIONS.items() for name in names.split()}
"""Name of an option -> its heading."""
_FEW = 24

Section = tuple[str, list[tuple[str, str]]]


def sections(command: click.Command, context: click.Context) -> list[Section]:
    """List the sections of a command's help: each heading with its options and their help.

    A command with few options has one section.
    """
    options = [each for each in command.get_params(context) if isinstance(each, click.Option)]
    shown = [(str(each.name), record) for each in options if (record := each.get_help_record(context)) is not None]
    if len(shown) <= _FEW:
        return [("Options", [record for _, record in shown])]
    found: dict[str, list[tuple[str, str]]] = {heading: [] for heading in (*_SECTIONS, _OTHER)}
    for name, record in shown:
        found[HEADINGS.get(name, _OTHER)].append(record)
    return [(heading, records) for heading, records in found.items() if records]


class LongHelp(click.Command):
    """A command with its options in sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, records in sections(self, ctx):
            with formatter.section(heading):
                formatter.write_dl(records)


class VerbGroup(click.Group):
    """A program whose help lists its verbs under headings.

    The file of a verb is loaded only if the verb is used.
    """

    verbs: ClassVar[Mapping[str, Mapping[str, str]]]
    """Heading -> its verbs, each with the first sentence of its help."""

    def load(self, name: str) -> click.Command:
        """Return the command of a verb."""
        raise NotImplementedError

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(name for names in self.verbs.values() for name in names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self.load(cmd_name) if cmd_name in self.list_commands(ctx) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise UsageError(f"no command {printable(args[0])!r}; {nearest(args[0], known)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.list_commands(ctx)))
        for heading, verbs in self.verbs.items():
            with formatter.section(heading):
                # The whole first sentence: cut in its middle, it is a riddle.
                formatter.write_dl([(f"{name:{width}}", summary) for name, summary in verbs.items()])
