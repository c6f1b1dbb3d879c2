"""`setup --list`: the clients, and how this server is configured in each."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mcp_toolserver.commands.setup.clients import CLIENTS, Client, Scope, command_of, is_ours
from mcp_toolserver.commands.setup.places import Places
from mcp_toolserver.commands.setup.plan import Plan
from mcp_toolserver.errors import SettingsError

_SCOPES: tuple[Scope, ...] = ("user", "project")


def show(places: Places, name: str) -> int:
    """Print the table of clients; the exit status is 0."""
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
    for scope in _SCOPES if client.project and not places.wsl else _SCOPES[:1]:
        try:
            found = Plan(client=client, scope=scope, places=places).entry(name)
        except SettingsError as error:
            rows.append((f"{scope}: {error}", "", ""))
            continue
        if isinstance(found, dict) and is_ours(found):
            mode, roots = (_values(command_of(found), flag) for flag in ("--permission-mode", "--root"))
            urls = (found.get(key) for key in ("url", "httpUrl", "serverUrl"))
            rows.append((scope, mode, next((url for url in urls if isinstance(url, str)), roots)))
    return rows


def _values(command: Sequence[str], flag: str) -> str:
    """What follows each `flag` of a command, as setup writes it."""
    return " ".join(command[at + 1] for at, word in enumerate(command[:-1]) if word == flag)
