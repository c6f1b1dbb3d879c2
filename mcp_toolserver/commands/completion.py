"""`completion`: prints the script with which a shell completes the command line."""

import argparse
from collections.abc import Mapping, Sequence

import shtab

from mcp_toolserver.command_line import command_parser
from mcp_toolserver.commands.setup.clients import CLIENTS
from mcp_toolserver.pipeline.registry import Registry, discover
from mcp_toolserver.tool_spec import Profile


def completion(shell: str) -> int:
    """Print the script for one of `settings.SHELLS`; the exit status is 0.

    The script contains all values, so a completion starts no program.
    """
    registry = Registry(discover())
    tools = sorted(registry.entries)
    values: Mapping[str, Sequence[str]] = {
        "client": tuple(CLIENTS),
        "tool": tools,
        "tools": tools,
        "exclude_tools": tools,
        "toolsets": (*(profile.name.lower() for profile in Profile), *registry.toolsets),
    }

    def adapt(argument: argparse.Action, choices: Sequence[str]) -> None:
        argument.choices = choices or values.get(argument.dest)
        path = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}.get(str(argument.metavar))
        if path is not None:
            # shtab reads this attribute, which argparse does not declare.
            setattr(argument, "complete", path)  # noqa: B010

    print(shtab.complete(command_parser(adapt), shell))
    return 0
