"""What the server tells every client about itself, in at most 1,500 characters."""

from collections.abc import Sequence

from mcp_toolserver.capabilities import Permission

_MODES = {
    Permission.READ_ONLY: "Files inside the roots can be read and searched; nothing can be changed and no "
    "command runs.",
    Permission.WORKSPACE_WRITE: "Files in the roots can be read, searched and changed; no command runs.",
    Permission.DANGER_FULL_ACCESS: "Files inside the roots can be read, searched and changed. Commands run "
    "with the full rights of the user who started this server.",
}


def instructions(mode: Permission, roots: Sequence[str]) -> str:
    """The mode, the roots and how to work with them."""
    named = "\n".join(f"- {root}" for root in roots[:8])
    more = f"\n- and {len(roots) - 8} more" if len(roots) > 8 else ""
    text = (
        f"Tools for working on files. Permission mode: {mode.flag}, fixed when the server started; nothing "
        f"in a call changes it. {_MODES[mode]}\n"
        f"Roots (relative paths start at the first):\n{named}{more}\n"
        "Look first with glob_search and grep_search, then read the lines you need with read_file. "
        "An error says what to change; a result that was cut says how to get the rest."
    )
    return text[:1500]
