"""text-generation-launcher's arguments by version: known, checked, written and read."""

from __future__ import annotations

from tgi_bench.plan.launcher_args.check import check
from tgi_bench.plan.launcher_args.command_line import (
    LauncherSettings,
    command_line,
    parse_command_line,
)
from tgi_bench.plan.launcher_args.debug import args_message, debug_form
from tgi_bench.plan.launcher_args.table import (
    ArgumentSpec,
    Choice,
    Kind,
    SettingValue,
    arguments_of,
)
from tgi_bench.plan.launcher_args.tags import Tag, built_from, tags_saying
from tgi_bench.plan.launcher_args.version import (
    NEWEST,
    OLDEST,
    Version,
    is_known,
    parse_version,
    tag_of,
    unknown_behaviour,
    version_of_image,
)

__all__ = [
    "NEWEST",
    "OLDEST",
    "ArgumentSpec",
    "Choice",
    "Kind",
    "LauncherSettings",
    "SettingValue",
    "Tag",
    "Version",
    "args_message",
    "arguments_of",
    "built_from",
    "check",
    "command_line",
    "debug_form",
    "is_known",
    "parse_command_line",
    "parse_version",
    "tag_of",
    "tags_saying",
    "unknown_behaviour",
    "version_of_image",
]
