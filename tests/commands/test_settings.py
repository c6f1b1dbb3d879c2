"""Flags, environment and config file: who wins, and that nothing unknown passes."""

import json
import os
import pwd
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.command_line import ACTIONS, Invocation
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.invocation import load
from mcp_toolserver.settings import OPTIONS, TABLES, Settings
from tests import ROOT


def read(*argv: str, **environ: str) -> Invocation:
    return load(argv, environ)


def written(folder: Path, config: str) -> list[str]:
    """The flag that names a config file with this content."""
    path = folder / "config.toml"
    path.write_text(config, encoding="utf-8")
    return ["--config", str(path)]


@pytest.mark.requirement("DC-01", "DC-17")
def test_without_anything_it_serves_read_only_over_stdio() -> None:
    invocation = read()
    assert invocation.action == "serve"
    assert invocation.settings == Settings()
    assert invocation.settings.permission_mode is Permission.READ_ONLY


def test_a_flag_beats_a_variable_and_a_variable_beats_the_config_file(tmp_path: Path) -> None:
    config = 'port = 1\nhost = "127.0.0.3"\ntransport = "sse"'
    argv = ["--port", "3", *written(tmp_path, config)]
    found = load(argv, {"MCP_TOOLSERVER_PORT": "2", "MCP_TOOLSERVER_TRANSPORT": "http"}).settings
    assert (found.port, found.transport, found.host) == (3, "http", "127.0.0.3")


VALUES = {
    "git-author": "n <n@example.org>",
    "root": "/elsewhere",
    "writable-name": ".vscode",
    **dict.fromkeys(("port", "max-calls", "max-calls-per-client", "calls-per-minute"), "9"),
}
"""Of flags that neither take every text nor have a fixed set of values."""


def test_every_flag_has_an_environment_twin(tmp_path: Path) -> None:
    (policy := tmp_path / "policy").write_text('{"permissions": {}}', encoding="utf-8")
    values = {**VALUES, "policy": str(policy)}
    words, environ = list[str](), dict[str, str]()
    for option in OPTIONS:
        if option.flag:
            value = "true" if option.switch else values.get(option.name, (option.choices or ("x",))[-1])
            words += [f"--{option.name}", *([] if option.switch else [value])]
            environ[option.variable] = value
    assert read(*words).settings == read(**environ).settings


def test_only_a_protected_name_is_excepted_and_never_a_repository() -> None:
    names = read("--writable-name", ".Vscode", "--writable-name", "crush.json").settings.writable_name
    assert names == (".vscode", "crush.json")


def test_an_author_of_commits_has_a_name_and_an_address() -> None:
    assert read("--git-author", " Ada <a@b> ").settings.git_author == "Ada <a@b>"
    for author in ("n", "n@example.org", "<n@example.org>", "n <>", "n <a> <b>", "n\n <a@b>"):
        with pytest.raises(SettingsError, match=r"--git-author: .*'Name <email>'"):
            read("--git-author", author)


def test_roots_are_repeatable_and_commas_belong_to_a_path() -> None:
    assert read("--root", "/a,b", "--root", "/c").settings.root == ("/a,b", "/c")
    assert read(MCP_TOOLSERVER_ROOT="/a:/b").settings.root == ("/a", "/b")

    assert read("--root", "/a", "/b", "--port", "3").settings.root == ("/a", "/b")
    assert read("--root", "/a", "/b", "--root", "/c").settings.root == ("/a", "/b", "/c")
    assert read("doctor", "--root", "/a", "./log").settings.root == ("/a", "./log")


def test_what_follows_a_root_is_a_call_or_a_mistake_and_no_folder() -> None:
    call = read("call", "--root", "/a", "read_file", '{"path": "x"}')
    assert (call.tool, call.settings.root) == ("read_file", ("/a",))
    for argv in (["--root", "/a", "doctor"], ["serve", "--root", "/a", "/b", "tools"]):
        with pytest.raises(SettingsError, match=f"put {argv[-1]} first"):
            read(*argv)


def test_a_tilde_is_the_home_folder_wherever_a_path_is_given(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(
        'root = ["~/x", "~"]\nstate-dir = "~/s"\ntoken-file = "~/t"\n'
        'tool-files = ["~/f.py"]\nweb-search-keys = ["brave=~/k"]\n',
        encoding="utf-8",
    )
    home = str(tmp_path)
    # The file itself is named with one as well.
    found = load(["--config", "~/c.toml", "--root", "/r"], {"HOME": home}).settings
    assert found.config == str(config)
    assert (found.state_dir, found.token_file) == (f"{home}/s", f"{home}/t")
    assert (found.tool_files, found.web_search_keys) == ((f"{home}/f.py",), (f"brave={home}/k",))
    assert load(["--root", "~/x", "~"], {"HOME": "/h/"}).settings.root == ("/h/x", "/h")
    variables = {"HOME": "/h", "MCP_TOOLSERVER_ROOT": "~/x:~/y", "MCP_TOOLSERVER_STATE_DIR": "~/s"}
    found = load([], variables).settings
    assert (found.root, found.state_dir) == (("/h/x", "/h/y"), "/h/s")


def test_other_tildes_are_part_of_a_name_and_the_home_folder_is_absolute() -> None:
    """Without a variable, it is that of the user database."""
    assert read("--root", "~user/x", "./~", "/a/~/b").settings.root == ("~user/x", "./~", "/a/~/b")
    assert read("--root", "~/x").settings.root == (f"{pwd.getpwuid(os.getuid()).pw_dir}/x",)
    with pytest.raises(SettingsError, match="write the whole path"):
        read("--root", "~/x", HOME="somewhere")
    # What a flag overrides is not looked at.
    overridden = read("--token-file", "/t", HOME="somewhere", MCP_TOOLSERVER_TOKEN_FILE="~/x")
    assert overridden.settings.token_file == "/t"


HOSTS = ("tool_server", "Tools.Example.org", "localhost:9000", "192.0.2.7", "192.0.2.7:80", "[2001:db8::7]:1")


def test_a_host_is_allowed_by_flag_variable_and_config_file(tmp_path: Path) -> None:
    flags = [word for host in HOSTS for word in ("--allowed-host", host)]
    by_file = written(tmp_path, f"allowed-host = {json.dumps(HOSTS)}")
    for found in (read(*flags), read(MCP_TOOLSERVER_ALLOWED_HOST=",".join(HOSTS)), read(*by_file)):
        assert found.settings.allowed_host == tuple(map(str.lower, HOSTS))


def test_the_config_file_can_be_named_by_a_variable(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[rules]\ndeny = ["bash"]\nask = ["Write(docs/**)"]\nallow = []', encoding="utf-8")
    found = read(MCP_TOOLSERVER_CONFIG=str(path)).settings
    assert (found.deny, found.ask, found.allow) == (("bash",), ("Write(docs/**)",), ())


@pytest.mark.requirement("DC-06")
def test_what_is_unknown_or_wrong_stops_the_start(tmp_path: Path) -> None:
    for line in (Path(__file__).with_name("wrong_settings.txt")).read_text(encoding="utf-8").splitlines()[2:]:
        says, _, source = line.partition("|")
        words = shlex.split(source)
        environ = dict(word.split("=") for word in words if word.startswith("MCP_TOOLSERVER_"))
        if words[0] == "--config" and " = " in words[1]:
            words = written(tmp_path, words[1].replace("%", "\n"))
        with pytest.raises(SettingsError, match=re.escape(says.strip())):
            load([] if environ else words, environ)


def test_what_decides_over_the_tools_may_not_lie_inside_a_root(tmp_path: Path) -> None:
    inside = tmp_path / "sub" / "x"
    inside.parent.mkdir()
    inside.write_text("", encoding="utf-8")
    link = tmp_path / "link"
    link.symlink_to(inside)
    for place in ("--config", "--token-file", "--state-dir"):
        with pytest.raises(SettingsError, match="inside the root"):
            load(["--root", str(tmp_path), place, str(inside)], {})
        # Nor does a link hide it.
        with pytest.raises(SettingsError, match="inside the root"):
            load(["--root", str(inside.parent), place, str(link)], {})
        assert load(["--root", str(tmp_path / "other"), place, str(inside)], {}).action == "serve"


PAGE = "".join(
    (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("configuration", "agent-model")
)
Helped = Callable[..., str]


@pytest.fixture
def helped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Helped:
    """What `--help` prints on a terminal whose width no line exceeds."""
    monkeypatch.setenv("COLUMNS", "80")

    def shown(*argv: str) -> str:
        with pytest.raises(SystemExit) as end:
            load([*argv, "--help"], {})
        assert end.value.code == 0
        printed = capsys.readouterr().out
        assert max(map(len, printed.splitlines())) <= 80
        return printed

    return shown


def test_the_help_groups_every_flag_with_its_default_and_its_variable_and_names_every_key(
    helped: Helped,
) -> None:
    shown = helped()
    words = set(re.findall(r"--[\w-]+|[\w-]+", shown))
    keys = {option.key for option in (*OPTIONS, *TABLES["agent"], *TABLES["rules"]) if not option.flag}
    assert {"--config", "--version", *keys, *ACTIONS} <= words
    sections = {section.partition(":\n")[0]: section.partition(":\n")[2] for section in shown.split("\n\n")}
    for option in OPTIONS:
        if option.flag:
            entry = re.split(rf"^  --{option.name}\b", sections[option.group.title], flags=re.MULTILINE)[1]
            entry = re.split(r"^  --", entry, flags=re.MULTILINE)[0]
            assert f"[default: {option.shown_default}]" in entry
            assert f"[env: {option.variable}]" in entry
            assert all(choice in entry for choice in option.choices)


def test_the_help_of_a_command_shows_its_own_flags(helped: Helped) -> None:
    for action in ACTIONS:
        shown = helped(action)
        assert ("--max-calls" in shown) == (action in ("serve", "token"))
        assert ("--follow" in shown) == (action == "log")
        assert ("--confine" in shown) == (action == "setup")
        assert ("fish" in shown) == (action == "completion")


def test_the_readme_names_no_flag_that_the_help_does_not_have(helped: Helped) -> None:
    shown = helped() + "".join(map(helped, ACTIONS))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]+", readme))
    assert {"--root", "--permission-mode"} <= named
    # The other one is a flag of Claude Code.
    assert named - set(re.findall(r"--[\w-]+", shown)) <= {"--scope"}


def test_every_command_accepts_the_flags_of_a_server() -> None:
    own = {
        "setup": "zed",
        "call": "ls",
        "policy": "explain ls",
        "completion": "bash",
        "token": "list",
        "cron": "list",
        "history": "list",
        "upstream": "list",
    }
    for action in ACTIONS:
        words = own.get(action, "").split()
        assert load([action, *words, "--max-calls", "3"], {}).settings.max_calls == 3


def test_the_page_about_settings_names_every_flag_and_key_with_the_default_of_the_program() -> None:
    named = set(re.findall(r"(?<![\w-])-{2}[a-z][\w-]+", re.sub("`vllm [^`]*`", "", PAGE)))
    assert named - {"--help", "--check-model", "--verbose"} == {
        f"--{option.name}" for option in OPTIONS if option.flag
    } | {"--config"}
    keys = {option.key for option in (*OPTIONS, *TABLES["agent"], *TABLES["rules"])}
    assert [key for key in keys if key not in PAGE] == []
    assert set(re.findall(r"^([\w-]+) = ", PAGE, re.MULTILINE)) <= keys
    for row in re.findall(r"^\| ((?:`[\w-]+`(?:, )?)+) \|", PAGE, re.MULTILINE):
        assert set(re.findall(r"[\w-]+", row)) <= keys | {f"--{key}" for key in keys}, row
    rows = re.findall(r"^\| `(?:--)?([a-z-]+)` \| ([^|]+) \|", PAGE, flags=re.MULTILINE)
    defaults = {option.key: option.shown_default for option in (*OPTIONS, *TABLES["agent"])}
    assert len(rows) > 20
    assert {name: cell.strip("`") for name, cell in rows} == {name: defaults[name] for name, _ in rows}
