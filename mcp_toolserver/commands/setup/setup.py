"""`setup`: adds this server to an MCP client, or removes it.

It shows the change, asks, writes it, starts the server as the client will, and says what to do next.
"""

import difflib
import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mcp_toolserver.command_line import Invocation
from mcp_toolserver.commands.setup import server, wrapping
from mcp_toolserver.commands.setup.clients import ANY, CLIENTS, TOKEN, URLS, Client, command_of, is_ours
from mcp_toolserver.commands.setup.files import NOT_CONFIRMED, ConfigFile, Plan, is_confirmed, remove_backup
from mcp_toolserver.commands.setup.places import Places, privacy_notes
from mcp_toolserver.errors import SettingsError

_WIDTH = 200
"""Characters shown of each line: some clients write a whole file into one line."""


def setup(request: Invocation, environ: Mapping[str, str]) -> int:
    """Run the command. Raises: SettingsError: the request or a file is invalid; nothing was changed."""
    places = Places.of_windows(environ) if request.windows else Places.of(environ)
    if request.list:
        return _show_all(places, request.name)
    client = ANY if request.print_entry else CLIENTS.get(request.client or "")
    if client is None:
        raise SettingsError(f"unknown client {request.client!r}; choose from {', '.join(CLIENTS)}")
    if request.windows:
        if not client.on_windows:
            raise SettingsError(f"setup does not configure {client.title} on Windows; leave --windows out")
        # It has no folder that a server in WSL could work in without a name.
        client = replace(client, root=None, project=None)
    plan = Plan(client=client, scope="project" if request.scope == "project" else "user", places=places)
    if request.wrap or request.wrap_all:
        return wrapping.wrap(plan, request)
    if request.unwrap is not None:
        return wrapping.unwrap(plan, request)
    return _remove(plan, request) if request.remove else _add(plan, request)


def _add(plan: Plan, request: Invocation) -> int:
    client, places = plan.client, plan.places
    entry = server.entry(plan, request, server.server_command(places.environ, sys.argv[0]))
    if request.print_entry:
        print(json.dumps({"mcpServers": {request.name: entry}}, indent=2))
        return 0
    plan.add(request.name, entry)
    for note in privacy_notes(client.title, request.settings.root, places.home):
        print(note)
    if request.confine and not client.confine:
        raise SettingsError(
            f"setup knows no setting that confines {client.title}: {client.keeps}. Leave --confine out"
        )
    if request.confine:
        plan.confine()
    ended = _apply(plan, request)
    if ended is not None:
        return ended
    if request.confine:
        print(f"Turned off tools of {client.title}. What is left: {client.keeps}.")
    elif client.confine:
        print(
            f"The own tools of {client.title} stay active and bypass this server; --confine turns them off."
        )
    else:
        print(f"{client.title}: {client.keeps}.")
    return _finish(plan, request)


def _remove(plan: Plan, request: Invocation) -> int:
    written = plan.written()
    # Without an entry, the user may have made the same settings.
    lifts = request.confine or (all(written) and plan.entry(request.name) is not None)
    plan.remove(request.name)
    if lifts:
        plan.lift()
    ended = _apply(plan, request)
    if ended is not None:
        return ended
    for file in plan.files.values():
        remove_backup(file)
    if any(written) and not lifts:
        print(f"Settings as of --confine stay. To undo them: setup {plan.client.name} --remove --confine")
    print(f"{request.name} is not configured in {plan.client.title}. Restart it.")
    return 0


def _apply(plan: Plan, request: Invocation) -> int | None:
    """Show the changes and write them if they are confirmed; the exit status if that is all."""
    changed = [file for file in plan.files.values() if file.text != file.text_before]
    for file in changed:
        file.check_writable()
    for file in changed:
        print(_shown(file))
    if not changed:
        print(f"{plan.servers.path} stays as it is.")
    if request.print:
        return 0
    if changed and not is_confirmed(yes=request.yes):
        return NOT_CONFIRMED
    for file in changed:
        backed_up = file.is_first and not request.remove and file.content is not None
        file.write(backed_up=backed_up)
        print(f"Wrote {file.path}" + (f"; backup: {file.backup_path}" if backed_up else ""))
    return None


def _shown(file: ConfigFile) -> str:
    """The change as a diff without context: other lines of the file may hold keys."""
    before, after, name = file.text_before.splitlines(), file.text.splitlines(), str(file.path)
    lines = difflib.unified_diff(before, after, name, name, lineterm="", n=0)
    link = [f"{file.link} is a link to this file:"] if file.link else []
    cut = (line if len(line) <= _WIDTH else f"{line[:_WIDTH]}… (cut)" for line in lines)
    return "\n".join((*link, *cut))


def _finish(plan: Plan, request: Invocation) -> int:
    client = plan.client
    written = plan.entry(request.name)
    command = command_of(written)[len(plan.places.launcher) :] if isinstance(written, dict) else ()
    if command:
        try:
            tools = server.listed_tools(command, client.root, plan.places.environ)
        except SettingsError as error:
            print(f"mcp-toolserver setup: {error}", file=sys.stderr)
            return NOT_CONFIRMED
        print(f"Started {shlex.join(command)}")
        print(f"It lists {len(tools)} tools in mode {server.mode_of(request).flag}.")
    else:
        print(f"Set the variable {TOKEN} to the token of the server where {client.title} starts.")
    for line in client.next:
        print(f"Next: {line}")
    return 0


def _show_all(places: Places, name: str) -> int:
    """Print the clients, and how this server is configured in each; the exit status is 0."""
    table = Table("client", "title", "installed", "configured", "mode", "root", box=None, pad_edge=False)
    for client in CLIENTS.values():
        if places.wsl and not client.on_windows:
            continue
        installed = "yes" if places.is_installed(client) else "no"
        for row in _rows(client, places, name) or [("no", "", "")]:
            table.add_row(*map(escape, (client.name, client.title, installed, *row)))
    console = Console()
    # Piped output is for programs and tests: nothing of it is cut.
    if not console.is_terminal:
        console = Console(width=1000)
    console.print(table)
    if console.is_terminal:
        console.print(
            "\nTo add this server: mcp-toolserver setup CLIENT (its flags: setup --help)", highlight=False
        )
    return 0


def _rows(client: Client, places: Places, name: str) -> list[tuple[str, str, str]]:
    """In each scope of the client that has the server: the scope, the mode, and the roots or the address."""
    rows: list[tuple[str, str, str]] = []
    for scope in ("user", "project"):
        if scope == "project" and (places.wsl or not client.project):
            continue
        try:
            found = Plan(client=client, scope=scope, places=places).entry(name)
        except SettingsError as error:
            rows.append((f"{scope}: {error}", "", ""))
            continue
        if isinstance(found, dict) and is_ours(found):
            pairs = list(pairwise(command_of(found)))
            mode, roots = (
                " ".join(value for word, value in pairs if word == flag)
                for flag in ("--permission-mode", "--root")
            )
            urls = (found.get(key) for key in URLS)
            rows.append((scope, mode, next((url for url in urls if isinstance(url, str)), roots)))
    return rows
