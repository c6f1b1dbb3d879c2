"""The command line: its commands and flags, their help, and what was given."""

import argparse
import re
import textwrap
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NoReturn

from mcp_toolserver import __version__
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.settings import FILES, GROUPS, OPTIONS, PREFIX, TABLES, Settings, Value

Action = Literal[
    "serve",
    "setup",
    "wrap",
    "upstream",
    "tools",
    "call",
    "policy",
    "doctor",
    "log",
    "approvals",
    "token",
    "cron",
    "history",
    "demo",
    "completion",
]

ACTIONS: Mapping[Action, str] = {
    "serve": "serve MCP (the default)",
    "setup": "add this server to an MCP client, with the flags given, or remove it",
    "wrap": "confine another MCP server, and serve its tools over stdio",
    "upstream": "approve what such a server changed in its tools, fetch its package, or log in",
    "tools": "list the tools that these flags offer",
    "call": "run one tool and print its result",
    "policy": "explain the decision on a call, or test decisions against a file of cases",
    "doctor": "test what is enforced on this machine, and say what is missing",
    "log": "print the audit log, or verify that nobody changed it",
    "approvals": "show the calls that wait for your approval, and answer them",
    "token": "add, rotate, list or revoke the users in a file of tokens",
    "cron": "run the schedules of a workspace without a client, or list them",
    "history": "list the backups of git histories, or restore one",
    "demo": "show a client that uses a read-only server on a folder",
    "completion": "print a script that completes commands, flags and values in a shell",
}

SHELLS = ("bash", "zsh", "fish")
"""Those that `completion` knows."""

FORMATS = ("table", "json", "mcp", "anthropic", "openai", "acp")


class Invocation(argparse.Namespace):
    """A parsed command line: the settings, and the arguments of its command."""

    action: Action = "serve"
    settings: Settings
    given: frozenset[str]
    """Names of the settings that were given as flags: `setup` and `token` are about these."""
    configured: Mapping[str, Value]
    """`token`: the settings, by attribute, that the environment and the config file have."""
    config: str | None = None
    """The config file, if it was given as a flag."""
    tool: str = ""
    arguments: str = "{}"
    """As JSON."""
    json: bool = False
    format: str = "table"
    follow: bool = False
    verify: bool = False
    last: int = 50
    """Lines that `log` prints first; 0 for all."""
    session: str = ""
    verdict: str = ""
    shell: str = ""
    client: str | None = None
    """None with `list` and `print_entry` only."""
    name: str = "toolserver"
    scope: str = "user"
    """`user` or `project`: the configuration of this user, or of the project in the current folder."""
    url: str | None = None
    windows: bool = False
    """From WSL, configure the client of Windows."""
    confine: bool = False
    wrap: tuple[str, ...] = ()
    """Servers that the client has, to be put behind `wrap`."""
    wrap_all: bool = False
    unwrap: tuple[str, ...] | None = None
    """Those to be put back; empty for all."""
    remove: bool = False
    print_entry: bool = False
    """Print the entry for a client that setup does not know."""
    print: bool = False
    yes: bool = False
    list: bool = False
    command: tuple[str, ...] = ()
    """The command of the server that `wrap` starts or `upstream` prepares."""
    env: tuple[str, ...] = ()
    """Variables of ours that it gets."""
    server: str = ""
    """Its name for `wrap` and `upstream`; empty if it was not given."""
    what: str = ""
    """What `policy`, `token`, `cron`, `history`, `upstream` or `approvals` does."""
    approval: str = ""
    """The id of a request or an answer of `approvals`."""
    for_session: bool = False
    pattern: str = ""
    """The rule that `approvals approve` remembers, until `until`."""
    until: str = "8h"
    token_name: str = ""
    expires: str = ""
    backup: str = ""
    """The id of the backup that `history` restores."""
    report: str = ""
    """The file that `doctor` writes; empty to print."""
    verbose: bool = False
    hosts: bool = False
    """Whether `doctor` prints the hosts of package managers instead."""
    check_model: bool = False
    """Whether `doctor` asks the model of agents for an answer instead."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SettingsError(f"{message} (see {self.prog} --help)")


PROGRAM = "mcp-toolserver"

_SHOWN: Mapping[Action, Container[str]] = {
    "serve": frozenset(option.name for option in OPTIONS) | {"config"},
    "setup": ("permission-mode", "root", "toolsets", "transport"),
    "wrap": ("permission-mode", "root", "network", "allow-domain", "git", "state-dir", "config"),
    "upstream": ("upstreams", "network", "allow-domain", "state-dir", "config"),
    "tools": ("permission-mode", "toolsets", "tools", "exclude-tools", "config"),
    "call": ("permission-mode", "root", "dry-run", "config"),
    "policy": ("permission-mode", "root", "config"),
    "doctor": ("permission-mode", "root", "config"),
    "log": ("state-dir",),
    "approvals": ("state-dir", "config"),
    "token": ("tokens", "permission-mode", "root", "calls-per-minute", "max-calls", "config"),
    "cron": ("permission-mode", "root", "tokens", "state-dir", "config"),
    "history": ("root", "state-dir"),
    "demo": ("root",),
    "completion": (),
}
"""The settings in the help of each command. Every command accepts all of them, so that the flags of a server
can be copied."""


_USAGES: Mapping[Action, str] = {
    "serve": "%(prog)s [FLAG ...]",
    "wrap": "%(prog)s [FLAG ...] -- COMMAND [ARG ...]",
    "upstream": "%(prog)s WHAT [NAME] [FLAG ...] [-- COMMAND [ARG ...]]",
}

_EPILOGS: Mapping[Action, str] = {
    **dict.fromkeys(
        ("wrap", "tools", "call", "policy", "doctor", "cron"),
        f"It also takes the other flags of the server; see {PROGRAM} --help.",
    ),
    "token": "The flags of `token add` are for the user: a mode, roots and limits within\n"
    "those of the server. Without --root, all roots of the server are meant.",
    "completion": f"""\
Write the script to the file from which the shell loads it:
  bash  ~/.local/share/bash-completion/completions/{PROGRAM}
  zsh   _{PROGRAM} in a folder of $fpath
  fish  ~/.config/fish/completions/{PROGRAM}.fish""",
    "setup": "Without --root, the tools work in the folder that is open in the client, if the\n"
    "client tells it. The other flags of the server are configured as given; see\n"
    f"{PROGRAM} --help.",
}


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps what is in brackets in one piece: defaults and variables."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        # No line ends at a no-break space.
        joined = re.sub(r"\[[^]]*\]", lambda fact: fact[0].replace(" ", "\xa0"), text)
        wrapped = (textwrap.wrap(part, width, break_on_hyphens=False) for part in joined.split("\n"))
        return [line.replace("\xa0", " ") for lines in wrapped for line in lines]


class _ProgramParser(_Parser):
    """Of the program: its help ends with the keys of the config file."""

    def format_help(self) -> str:
        formatter = self._get_formatter()
        for title, options in (
            (
                "Keys of the config file alone, which docs/configuration.md explains",
                [option for option in OPTIONS if not option.flag],
            ),
            ("Keys of its table [agent], which docs/agent-model.md explains", TABLES["agent"]),
            ("Lists of its table [rules], which docs/policy.md explains", TABLES["rules"]),
        ):
            formatter.start_section(title)
            in_order = (option for group in GROUPS for option in options if option.group is group)
            formatter.add_arguments(
                argparse.Action([], dest=option.key, help=option.help) for option in in_order
            )
            formatter.end_section()
        return f"{super().format_help()}\n{formatter.format_help()}"


def _add_settings(
    parser: argparse.ArgumentParser, shown: Container[str], adapt: "Adapt", *, several: bool
) -> None:
    """Add the flags of the settings; `several` values may follow one that is repeatable."""
    # A flag that is absent sets nothing.
    parser.argument_default = argparse.SUPPRESS
    for group in GROUPS:
        section = parser.add_argument_group(group.title)
        for option in (option for option in OPTIONS if option.flag and option.group is group):
            text = option.help.replace("%", "%%") if option.name in shown else argparse.SUPPRESS
            if option.switch:
                section.add_argument(f"--{option.name}", help=text, action="store_true")
                continue
            added = section.add_argument(
                f"--{option.name}",
                metavar=option.metavar,
                help=text,
                action=("extend" if several else "append") if option.repeatable else "store",
                nargs="+" if option.repeatable and several else None,
            )
            adapt(added, option.choices)
        if group is FILES:
            text = f"TOML file with settings and rules\n[default: none] [env: {PREFIX}CONFIG]"
            text = text if "config" in shown else argparse.SUPPRESS
            adapt(section.add_argument("--config", metavar="FILE", help=text), ())


Adapt = Callable[[argparse.Action, Sequence[str]], object]
"""Gets each argument that takes a value, and the values if they are a fixed set."""


def command_parser(adapt: Adapt = lambda _, __: None) -> argparse.ArgumentParser:
    """Build the parser of the command line; `adapt` may change its arguments."""
    parser = _ProgramParser(
        prog=PROGRAM,
        usage="%(prog)s [COMMAND] [FLAG ...]",
        formatter_class=_Formatter,
        description="A coding agent's tools over MCP, with a permission mode that the server\n"
        f"enforces. Start with `{PROGRAM} setup CLIENT`, which adds this server to\n"
        "an MCP client. Without a COMMAND it serves.",
        allow_abbrev=False,
        add_help=False,
    )
    actions = parser.add_subparsers(
        dest="action", metavar="COMMAND", title="Commands", prog=PROGRAM, parser_class=_Parser
    )
    # No command is parsed with these: they are here to be shown by --help.
    _add_settings(parser, _SHOWN["serve"], adapt, several=True)
    general = parser.add_argument_group("General")
    general.add_argument("-h", "--help", action="help", help="show this help")
    general.add_argument(
        "--version", action="version", version=f"%(prog)s {__version__}", help="show the version"
    )
    parsers: dict[Action, argparse.ArgumentParser] = {
        name: actions.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            usage=_USAGES.get(name),
            epilog=_EPILOGS.get(name),
            formatter_class=_Formatter,
            allow_abbrev=False,
        )
        for name, text in ACTIONS.items()
    }
    for name, of in parsers.items():
        # What follows a repeatable flag of these may be their own arguments.
        _add_settings(of, _SHOWN[name], adapt, several=name not in ("call", "policy", "setup", "token"))
    parsers["tools"].add_argument("--format", choices=FORMATS, help="how to print\n[default: table]")
    tool = parsers["call"].add_argument("tool", metavar="NAME", help="a tool, under any of its names")
    adapt(tool, ())
    parsers["call"].add_argument(
        "arguments", metavar="JSON", nargs="?", help="its arguments as a JSON object\n[default: {}]"
    )
    parsers["policy"].add_argument(
        "what", choices=("explain", "test"), help="explain a call, or test the cases of a file"
    )
    of_policy = parsers["policy"].add_argument(
        "tool", metavar="TOOL|CASES", help="a tool, under any of its names; or a file of cases"
    )
    adapt(of_policy, ())
    parsers["policy"].add_argument("arguments", metavar="JSON", nargs="?", help="explain: the arguments")
    parsers["completion"].add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))
    parsers["log"].add_argument("--follow", action="store_true", help="keep printing new calls until Ctrl-C")
    for name, text in (
        ("--tool", "only calls of this tool"),
        ("--session", "only calls of clients whose name begins so"),
        ("--verdict", "only calls whose verdict begins so, such as refused"),
    ):
        parsers["log"].add_argument(name, metavar="NAME", help=text)
    parsers["log"].add_argument(
        "--last", type=int, metavar="N", help="most calls to print, 0 for all\n[default: 50]"
    )
    parsers["log"].add_argument(
        "--verify", action="store_true", help="verify the audit log instead of printing it"
    )
    adapt(_add_setup_arguments(parsers["setup"]), ())
    token = parsers["token"]
    token.add_argument(
        "what", choices=("add", "rotate", "list", "revoke"), help="what to do with the file of --tokens"
    )
    token.add_argument("token_name", metavar="NAME", nargs="?", help="who gets or loses the token")
    token.add_argument("--expires", metavar="WHEN", help="12h, 90d, 4w, or a date and time with a zone")
    wrap, upstream = parsers["wrap"], parsers["upstream"]
    text = "name of the server in rules, pins and messages [default: derived from COMMAND]"
    wrap.add_argument("--name", dest="server", metavar="NAME", help=text)
    wrap.add_argument("--env", action="append", metavar="NAME", help="variable to pass on; repeatable")
    upstream.add_argument(
        "what",
        metavar="WHAT",
        choices=("list", "diff", "approve", "prepare", "login", "logout"),
        help="list, diff or approve the definitions that wait; prepare: fetch the package of a COMMAND such "
        "as npx; login, logout: at a server with a url",
    )
    upstream.add_argument(
        "server", metavar="NAME", nargs="?", help="the server, by its name in `wrap` or the file"
    )
    _add_approvals_arguments(parsers["approvals"])
    parsers["cron"].add_argument("what", choices=("run", "list"), help="what to do with the schedules")
    parsers["history"].add_argument("what", choices=("list", "restore"), help="what to do with the backups")
    parsers["history"].add_argument("backup", metavar="ID", nargs="?", help="the backup to restore")
    parsers["doctor"].add_argument(
        "--check-model", action="store_true", help="only ask the models of agents, to prove key and model"
    )
    doctor = parsers["doctor"].add_mutually_exclusive_group()
    report = doctor.add_argument(
        "--report",
        metavar="FILE",
        help="write a new file to attach to an issue, without your names, paths and secrets",
    )
    adapt(report, ())
    doctor.add_argument("--verbose", action="store_true", help="print every test and every finding")
    doctor.add_argument(
        "--hosts", action="store_true", help="print the hosts of your package managers, as flags to copy"
    )
    upstream.add_argument("--yes", action="store_true", help="approve without asking")
    for printing in (parsers["call"], doctor, parsers["log"], parsers["cron"]):
        printing.add_argument("--json", action="store_true", help="print everything as JSON")
    return parser


def _add_approvals_arguments(parser: argparse.ArgumentParser) -> None:
    choices = ("list", "approve", "deny", "revoke", "watch")
    parser.add_argument("what", choices=choices, nargs="?", default="list", help="what to do [default: list]")
    parser.add_argument("approval", metavar="ID", nargs="?", help="a request or an answer; `list` shows them")
    lasting = parser.add_mutually_exclusive_group()
    lasting.add_argument(
        "--session", dest="for_session", action="store_true", help="approve this call for the whole session"
    )
    lasting.add_argument(
        "--pattern", metavar="RULE", help="also approve calls that an allow rule would cover"
    )
    parser.add_argument("--until", metavar="WHEN", help="the end of --pattern, as for `token` [default: 8h]")


def _add_setup_arguments(parser: argparse.ArgumentParser) -> argparse.Action:
    """Add the arguments of `setup`; returns that for the client."""
    parser.add_argument(
        "--name", metavar="NAME", help="name of the server in the client [default: toolserver]"
    )
    parser.add_argument(
        "--scope",
        choices=("user", "project"),
        help="configure the client for this user, or for the project in the current folder [default: user]",
    )
    for flag, nargs, text in (
        ("wrap", "+", "instead, put these servers that CLIENT has behind `wrap`"),
        ("unwrap", "*", "take these servers, or all, out of `wrap` again"),
    ):
        parser.add_argument(f"--{flag}", metavar="NAME", nargs=nargs, action="extend", help=text)
    text = "with --wrap: variable to pass on, besides those of the entry; repeatable"
    parser.add_argument("--env", action="append", metavar="NAME", help=text)
    parser.add_argument("--url", metavar="URL", help="with --transport http: address of a running server")
    for switch, text in (
        ("windows", "in WSL: configure the client of Windows"),
        ("confine", "also turn off the client's own tools, which bypass this server"),
        ("wrap-all", "instead, put all servers that CLIENT has behind `wrap`"),
        ("remove", "remove the server; with --confine, also turn the client's own tools on again"),
        ("print", "show the change and write nothing"),
        ("print-entry", "without CLIENT: print the `mcpServers` entry for any other"),
        ("yes", "write without asking"),
        ("list", "show all clients, and how this server is configured in each"),
    ):
        parser.add_argument(f"--{switch}", action="store_true", help=text)
    return parser.add_argument("client", metavar="CLIENT", nargs="?", help="the MCP client; --list shows all")


def parse(argv: Sequence[str]) -> Invocation:
    """Parse the arguments of the program; the result has no settings yet. Raises as `invocation.load`."""
    words, command = list(argv), ()
    if words[:1] in (["wrap"], ["upstream"]) and "--" in words:
        at = words.index("--")
        words, command = words[:at], tuple(words[at + 1 :])
    parsed, unknown = command_parser().parse_known_args(_with_action(words), namespace=Invocation())
    parsed.command = command
    if unknown:
        raise SettingsError(_unknown_argument(unknown[0], parsed.action))
    return parsed


def _with_action(argv: Sequence[str]) -> list[str]:
    """Insert `serve` if no command is named."""
    if argv[:1] and not argv[0].startswith("-") and argv[0] not in ACTIONS:
        raise SettingsError(
            f"unknown command {argv[0]!r}; choose from {', '.join(ACTIONS)} (see {PROGRAM} --help)"
        )
    # argparse would take a command after a value for another root folder.
    for before, word in pairwise(argv if argv[:1] not in (["call"], ["policy"]) else ()):
        if word in ACTIONS and not before.startswith("-"):
            raise SettingsError(f"put {word} first: {PROGRAM} {word} ...; a folder of that name is ./{word}")
    named = argv[:1] and (argv[0] in ACTIONS or argv[0] in ("-h", "--help", "--version"))
    return list(argv) if named else ["serve", *argv]


def _unknown_argument(word: str, action: Action) -> str:
    """The message about an argument that no parser takes, with the flag that it may stand for."""
    # Only mistakes need this import.
    from difflib import get_close_matches

    given = word.partition("=")[0]
    flags = [f"--{option.name}" for option in OPTIONS if option.flag]
    similar = [flag for flag in flags if len(given) > 3 and given.strip("-") in flag]
    similar = get_close_matches(given, flags, n=1) or similar[:1]
    meant = f"; did you mean {similar[0]}?" if similar and word.startswith("-") else ""
    of = "" if action == "serve" else f"{action} "
    return f"unknown argument {given!r}{meant} (see {PROGRAM} {of}--help)"
