"""The names that other servers and agents give to arguments, and ours for the same."""

import re
from collections.abc import Collection

_GROUPS: tuple[frozenset[str], ...] = tuple(
    frozenset(names.split())
    for names in (
        "path file_path filepath file filename file_name target_file absolute_path notebook_path",
        "path repo_path repository_path dir_path relative_workspace_path target_notebook",
        "path path1 file1 file_path_1",
        "other_path path2 file2 file_path_2",
        "cell_number cell_idx cell_index",
        "edit_mode edit_type",
        "new_source new_code",
        "code input",
        "commit revision",
        "run_in_background is_background background",
        "old_string old_text old_str",
        "new_string new_text new_str",
        "content contents text file_text",
        "command cmd script",
        "pattern regex query search_pattern",
        "pattern glob",
        "glob include file_pattern include_pattern",
        "cwd workdir working_directory working_dir directory",
        "timeout timeout_ms",
        "max_depth depth",
        "head_limit limit max_count max_results count",
        "limit length head",
        "-i ignore_case case_insensitive",
        "-n line_numbers show_line_numbers",
        "-A after_context",
        "-B before_context",
        "-C context context_lines",
        "task_id id handle bash_id shell_id",
    )
)
"""Names that mean the same. Where a tool has one of a group, the others stand for it; a tool that has two of
them keeps them apart."""


def own_name(given: str, names: Collection[str], sent: Collection[str]) -> str:
    """Our name for the argument `given`: itself if it is one of `names` or nothing else is meant.

    `sent` are all names of the call: what was sent under its own name has no second one.
    """
    if given in names:
        return given
    snake = snake_case(given)
    candidates = {name for group in _GROUPS if snake in group for name in group if name in names}
    if snake in names:
        candidates = {snake}
    free = candidates - set(sent)
    return free.pop() if len(candidates) == 1 and free else given


def snake_case(name: str) -> str:
    """`filePath` → `file_path`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
