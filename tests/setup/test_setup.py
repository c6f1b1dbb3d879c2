"""`setup` as a user meets it: through the command line, with a home folder of its own."""

import contextlib
import difflib
import json
import os
import re
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel import yaml

from mcp_toolserver.commands.setup import server
from mcp_toolserver.commands.setup.clients import CLIENTS, TOKEN, Client, command_of
from mcp_toolserver.commands.setup.files import BACKUP
from mcp_toolserver.commands.setup.places import Places, contains, privacy_notes
from mcp_toolserver.commands.setup.server import server_command
from mcp_toolserver.errors import SettingsError
from tests import ROOT
from tests.setup.client_setup import BY_FORM, setup, setup_line, with_servers
from tests.support.process_layer import on_terminal, ran
from tests.support.workshop import program

ALL = pytest.mark.parametrize(
    "client",
    [
        pytest.param(client, id=client.name, marks=[] if client in BY_FORM.values() else pytest.mark.long)
        for client in CLIENTS.values()
    ],
)
CONFINED = pytest.mark.parametrize(
    "client", [client for client in CLIENTS.values() if client.confine], ids=lambda client: client.name
)

HTTP = ("--transport", "http", "--url", "http://a/mcp")
"""Of an entry that `setup` writes without the start of a server, which takes longer than all the rest."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def home(tmp_path: Path, project: Path) -> Path:
    """A home folder next to the project in which the command runs."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests start the server that is configured."""
    monkeypatch.setattr(server, "listed_tools", lambda *_: ("a tool",) * 30)


def configured(*arguments: str, home: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """What the command prints when it succeeds."""
    done = setup(*arguments, home=home, **environ)
    assert done.returncode == 0, done.stderr
    return done


def refusal(*arguments: str, home: Path) -> str:
    """What the command says when it refuses, which changes nothing."""
    before = files_in(home.parent)
    refused = setup(*arguments, home=home)
    assert (refused.returncode, refused.stdout) == (2, ""), arguments
    assert refused.stderr.startswith("mcp-toolserver: ")
    assert files_in(home.parent) == before
    return refused.stderr


def config_of(client: Client, home: Path) -> Path:
    return Places.of({"HOME": str(home)}).file(client, "user")


def roots_for(client: Client, project: Path) -> list[str]:
    return setup_line(client, str(project))[1:]


def parsed(file: Path) -> Any:
    text = file.read_text(encoding="utf-8-sig")
    if file.suffix == ".toml":
        return tomllib.loads(text)
    if file.suffix == ".yaml":
        return yaml.YAML(typ="safe").load(text)
    return json.loads(re.sub(r"// .*|/\*.*?\*/", "", re.sub(r",(\s*[}\]])", r"\1", text)))


def entry_of(client: Client, home: Path) -> Any:
    return parsed(config_of(client, home))[client.path[0]].get("toolserver")


def existing(client: Client, home: Path) -> tuple[Path, str]:
    """The client's file with comments and another server."""
    file = config_of(client, home)
    file.parent.mkdir(parents=True, exist_ok=True)
    text = with_servers(client, file)
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)
    return file, text


def files_in(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and ".local/state" not in str(path)
    }


@pytest.mark.parametrize(
    "name",
    ["claude-code", *(pytest.param(name, marks=pytest.mark.long) for name in ("codex", "goose", "vscode"))],
)
def test_setup_on_an_empty_home_configures_a_server_that_starts_and_remove_leaves_nothing(
    name: str, home: Path, project: Path
) -> None:
    """In each of the formats of files, and with a root that the client names; a mode changes no more."""
    client = CLIENTS[name]
    configured(name, *roots_for(client, project), "--yes", home=home)
    before, command = files_in(home), command_of(entry_of(client, home))
    write = [name, *roots_for(client, project), "--permission-mode", "workspace-write"]
    file = config_of(client, home)
    mine = file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        mine = mine.replace('"type": "stdio",', '"env": {"A": "b"}, // mine\n      "type": "stdio",')
        file.write_text(mine, encoding="utf-8")
    configured(*write, "--yes", home=home)
    assert command_of(entry_of(client, home)) == (*command[:2], "workspace-write", *command[3:])
    # Only the mode is changed, and what the user added stays.
    assert file.read_text(encoding="utf-8") == mine.replace("read-only", "workspace-write")
    assert files_in(home) == before
    configured(name, "--remove", "--yes", home=home)
    assert files_in(home) == set()


@ALL
@pytest.mark.usefixtures("untried")
def test_a_server_that_starts_is_added_to_a_file_that_keeps_every_other_byte(
    client: Client, home: Path, project: Path
) -> None:
    file, before = existing(client, home)
    if file.suffix in (".toml", ".yaml") or client.on_windows:
        file.write_bytes(f"\ufeff{before}".replace("\n", "\r\n").encode())
    original, before = file.read_bytes(), file.read_text(encoding="utf-8")
    write = [client.name, *roots_for(client, project), "--permission-mode", "workspace-write"]
    printed = configured(*write, "--print", home=home)
    assert file.read_text(encoding="utf-8") == before
    added = configured(*write, "--yes", home=home)
    assert re.search(r"It lists \d\d tools in mode workspace-write", added.stdout)
    assert all(f"Next: {line}" in added.stdout for line in client.next)
    command = command_of(entry_of(client, home))
    assert Path(command[0]).is_absolute()
    root = client.root or str(project)
    assert command[1:] == ("--permission-mode", "workspace-write", "--root", root)
    added_lines = file.read_text(encoding="utf-8").splitlines()
    diff = list(difflib.ndiff(before.splitlines(), added_lines))
    assert [line for line in diff if line.startswith("- ")] == []
    assert file.read_bytes().count(b"\r\n") == (len(added_lines) if b"\r\n" in original else 0)
    for line in (line for line in diff if line.startswith("+ ")):
        assert f"+{line[2:]}" in printed.stdout.splitlines()
    backup = file.with_name(file.name + BACKUP)
    assert backup.read_bytes() == original
    assert [stat.S_IMODE(one.stat().st_mode) for one in (file, backup)] == [0o600, 0o600]
    assert "stays as it is" in setup(*write, "--print", home=home).stdout
    assert setup(client.name, "--remove", "--yes", home=home).returncode == 0
    assert file.read_bytes() == original
    assert files_in(home) == {str(file.relative_to(home))}


@CONFINED
def test_confine_is_written_once_and_lifted_with_remove(client: Client, home: Path) -> None:
    file, before = existing(client, home)
    added = configured(client.name, *HTTP, "--confine", "--yes", home=home)
    assert client.keeps in added.stdout
    for path, expected in client.confine:
        value = parsed(Places.of({"HOME": str(home)}).file(client, "user", client.confine_user))
        for key in path:
            value = value[key]
        assert value == expected
    assert "stays as it is" in setup(client.name, *HTTP, "--confine", "--print", home=home).stdout
    configured(client.name, "--remove", "--yes", home=home)
    assert parsed(file) == (tomllib.loads(before) if file.suffix == ".toml" else parsed(file))
    if file.suffix == ".json":
        assert file.read_text(encoding="utf-8") == before
        assert files_in(home) == {str(file.relative_to(home))}


@CONFINED
def test_remove_undoes_all_and_again_it_does_no_harm(client: Client, home: Path) -> None:
    configured(client.name, *HTTP, "--confine", "--yes", home=home)
    for more in (("--confine",), (), ("--confine",)):
        again = setup(client.name, "--remove", *more, "--yes", home=home)
        assert (again.returncode, again.stderr) == (0, "")
        assert "is not configured in" in again.stdout
        assert files_in(home) == set()


def test_remove_keeps_what_the_user_had_before_or_changed_since(home: Path) -> None:
    file = home / ".claude/settings.json"
    file.parent.mkdir(parents=True)
    own = {"permissions": {"deny": ["Bash", "Read(secrets/**)"]}}
    file.write_text(json.dumps(own), encoding="utf-8")
    configured("claude-code", *HTTP, "--yes", home=home)
    left = setup("claude-code", "--remove", "--yes", home=home)
    assert "Settings as of --confine stay" in left.stdout
    configured("claude-code", *HTTP, "--confine", "--yes", home=home)
    configured("claude-code", "--remove", "--yes", home=home)
    assert parsed(file) == own
    codex = home / ".codex/config.toml"
    codex.parent.mkdir()
    codex.write_text('sandbox_mode = "workspace-write"\n', encoding="utf-8")
    configured("codex", *HTTP, "--confine", "--yes", home=home)
    configured("codex", "--remove", "--yes", home=home)
    assert parsed(codex) == {"sandbox_mode": "workspace-write"}


def test_a_client_that_cannot_be_confined_says_so_and_nothing_is_written(home: Path, project: Path) -> None:
    for client in CLIENTS.values():
        if not client.confine:
            line = setup_line(client, str(project))
            assert client.keeps in refusal(*line, "--confine", "--yes", home=home)


@pytest.mark.usefixtures("untried")
def test_further_flags_are_configured_with_absolute_paths(home: Path, project: Path) -> None:
    (home.parent / "config.toml").write_text("", encoding="utf-8")
    (home.parent / "other").mkdir()
    line = "cursor --root . --root ../other --toolsets files,git --network none --raw-output --yes"
    flags = [*line.split(), "--config", "../config.toml"]
    configured(*flags, home=home, MCP_TOOLSERVER_GIT="writable")
    other, config = home.parent / "other", home.parent / "config.toml"
    assert entry_of(CLIENTS["cursor"], home)["args"] == [
        *("--permission-mode", "read-only", "--root", str(project), "--root", str(other)),
        *("--config", str(config), "--toolsets", "files,git", "--network", "none", "--raw-output"),
    ]


@pytest.mark.usefixtures("untried")
def test_a_project_gets_its_own_configuration(home: Path, project: Path) -> None:
    configured("cursor", "--scope", "project", "--yes", home=home)
    written = json.loads((project / ".cursor/mcp.json").read_text(encoding="utf-8"))
    assert written["mcpServers"]["toolserver"]["args"][-2:] == ["--root", str(project)]
    assert files_in(home) == set()
    shown = setup("--list", home=home).stdout
    assert re.search(rf"^cursor .* project +read-only +{re.escape(str(project))}", shown, re.MULTILINE)


def test_the_entry_for_a_client_that_setup_does_not_know_is_printed(home: Path, project: Path) -> None:
    printed = configured("--print-entry", "--root", ".", "--name", "mine", home=home).stdout
    assert json.loads(printed)["mcpServers"]["mine"]["args"][-2:] == ["--root", str(project)]
    assert json.loads(configured("--print-entry", *HTTP, home=home).stdout)["mcpServers"]["toolserver"]["url"]
    assert files_in(home) == set()
    assert setup("--print-entry", home=home).returncode == 2


HEADERS = {
    "kiro": f"Bearer ${{{TOKEN}}}",
    "crush": f"$(echo Bearer ${TOKEN})",
    "claude-code": f"Bearer ${{{TOKEN}}}",
    "vscode": f"Bearer ${{env:{TOKEN}}}",
    "opencode": f"Bearer {{env:{TOKEN}}}",
    "codex": TOKEN,
}
"""By client, how its file refers to the variable."""


@pytest.mark.usefixtures("untried")
def test_a_server_over_http_is_configured_with_the_name_of_the_variable_of_its_token(home: Path) -> None:
    url = "http://127.0.0.1:8765/mcp"
    for name, reference in HEADERS.items():
        configured(name, "--transport", "http", "--url", url, "--yes", home=home)
        entry = entry_of(CLIENTS[name], home)
        assert entry["url"] == url
        given = (entry.get("bearer_token_env_var"), entry.get("headers", {}).get("Authorization"))
        assert reference in given
    configured("codex", "--yes", home=home)
    assert "url" not in entry_of(CLIENTS["codex"], home)
    # A variable of the client moves its files.
    before, moved = files_in(home), home.parent / "moved"
    configured("claude-code", *HTTP, "--confine", "--yes", home=home, CLAUDE_CONFIG_DIR=str(moved))
    assert files_in(home) == before
    assert files_in(moved) == {".claude.json", "settings.json"}


def test_without_a_yes_nothing_is_written_and_a_server_that_does_not_start_is_reported(home: Path) -> None:
    shown = setup("claude-code", home=home)
    assert shown.returncode == 1
    assert '+      "command": ' in shown.stdout
    assert "--yes" in shown.stderr
    assert files_in(home) == set()
    wrong = setup("claude-code", "--tools", "no_such_tool", "--yes", home=home)
    assert wrong.returncode == 1
    assert "as configured: " in wrong.stderr
    assert "no_such_tool" in wrong.stderr


def test_a_broken_or_read_only_file_is_left_untouched_with_a_message_that_names_it(
    home: Path, project: Path
) -> None:
    for client in BY_FORM.values():
        file, before = existing(client, home)
        broken = before + "\n}}\n"
        place = f"{file}, line {len(broken.splitlines())}, column "
        for text, mode, says in ((broken, 0o600, place), (before, 0o400, f"{file} is read-only")):
            file.chmod(0o600)
            file.write_text(text, encoding="utf-8")
            file.chmod(mode)
            assert says in refusal(*setup_line(client, str(project)), "--yes", home=home)
            assert file.read_text(encoding="utf-8") == text
            assert list(file.parent.glob(f"{file.name}*")) == [file]


def test_files_that_are_no_text_are_left_untouched(home: Path) -> None:
    file = home / ".claude.json"
    file.write_bytes(b'{\n"a": "\xff"}')
    assert "line 2: the text is not UTF-8" in refusal("claude-code", "--yes", home=home)
    file.unlink()
    file.mkdir()
    assert "not a regular file" in refusal("claude-code", "--yes", home=home)
    file.rmdir()
    with file.open("wb") as large:
        large.truncate(2**25)
    assert "larger than" in refusal("claude-code", "--yes", home=home)


def test_a_link_is_followed_and_stays_a_link(home: Path) -> None:
    (home / "dotfiles").mkdir()
    target = home / "dotfiles/claude.json"
    target.write_text("{}\n", encoding="utf-8")
    (home / ".claude.json").symlink_to("dotfiles/claude.json")
    done = configured("claude-code", *HTTP, "--yes", home=home)
    assert f"{home}/.claude.json is a link" in done.stdout
    assert (home / ".claude.json").is_symlink()
    assert "toolserver" in json.loads(target.read_text(encoding="utf-8"))["mcpServers"]


def test_a_link_of_a_project_that_leads_out_of_it_is_not_followed(home: Path, project: Path) -> None:
    target = home / ".other.json"
    target.write_text("{}", encoding="utf-8")
    (project / ".mcp.json").symlink_to(target)
    assert "outside" in refusal("claude-code", "--scope", "project", "--yes", home=home)
    assert target.read_text(encoding="utf-8") == "{}"


def test_another_server_of_the_same_name_is_neither_replaced_nor_removed(home: Path) -> None:
    file = home / ".claude.json"
    before = '{"mcpServers": {"toolserver": {"command": "theirs"}}}'
    file.write_text(before, encoding="utf-8")
    for arguments in ([], ["--remove"]):
        assert "--name" in refusal("claude-code", *arguments, "--yes", home=home)
    assert file.read_text(encoding="utf-8") == before
    assert setup("claude-code", *HTTP, "--name", "mine", "--yes", home=home).returncode == 0
    assert json.loads(file.read_text(encoding="utf-8"))["mcpServers"].keys() == {"toolserver", "mine"}


WRONG: tuple[tuple[str, ...], ...] = (
    ("claude-code", "emacs"),
    ("--root", "cursor"),
    ("home folder", "cursor", "--root", "~"),
    ("absent is not a folder", "cursor", "--root", "../absent"),
    ("--scope user", "windsurf", "--root", ".", "--scope", "project"),
    ("--name", "claude-code", "--name", "a b"),
    ("read-only", "claude-code", "--permission-mode", "all"),
    ("--url", "claude-code", "--transport", "http"),
    ("http://", "claude-code", "--transport", "http", "--url", "a"),
    ("--root", "claude-code", *HTTP, "--root", "."),
)
"""Of requests, what the refusal says, and the arguments."""


def test_a_wrong_request_ends_with_status_2_and_changes_nothing(home: Path) -> None:
    for says, *arguments in WRONG:
        assert says in refusal(*arguments, "--yes", home=home), arguments


def test_a_root_in_which_tools_could_change_the_configuration_or_the_program_is_rejected(home: Path) -> None:
    (home / ".cursor").mkdir()
    write = ["--permission-mode", "workspace-write", "--yes"]
    programs = Path(sys.executable).parent
    for root, says in ((home / ".cursor", "mcp.json is in a root"), (programs, "the program")):
        assert says in refusal("cursor", "--root", str(root), *write, home=home)


@pytest.mark.usefixtures("untried")
def test_the_list_shows_what_is_installed_and_configured_and_names_broken_files(home: Path) -> None:
    (home / ".codeium/windsurf").mkdir(parents=True)
    (home / ".codeium/windsurf/mcp_config.json").write_text("{", encoding="utf-8")
    assert setup("gemini", "--yes", home=home).returncode == 0
    listed = setup("--list", home=home)
    assert (listed.returncode, listed.stderr) == (0, "")
    rows = {line.split()[0]: line for line in listed.stdout.splitlines()}
    assert rows.keys() - {"client"} == CLIENTS.keys()
    assert re.search(r"yes +user +read-only +\.$", rows["gemini"].rstrip())
    assert "line 1, column 2" in rows["windsurf"]
    assert re.search(r" no +no$", rows["zed"].rstrip())


@pytest.mark.parametrize(
    ("answer", "written"),
    [pytest.param("y", True, id="yes"), pytest.param("", False, id="enter", marks=pytest.mark.long)],
)
def test_on_a_terminal_the_change_is_written_after_a_yes(answer: str, written: bool, home: Path) -> None:
    # Python asks on standard error.
    process, outer = on_terminal("setup", "claude-code", home=home, errors_apart=False)
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(outer, 4096)
    os.write(outer, f"{answer}\n".encode())
    with contextlib.suppress(OSError):
        while os.read(outer, 4096):
            pass
    process.wait(timeout=60)
    os.close(outer)
    assert process.returncode == (0 if written else 1)
    assert (home / ".claude.json").exists() == written


TEMPORARY = {
    ".cache/uv/archive-v0/x": ("uv", "tool", "run", "--python"),
    ".cache/pipx/x": ("pipx", "run", "--spec"),
    "Library/Caches/pipx/0123456789abcde": ("pipx", "run", "--spec"),
}
"""By environment, the program that made it, and how it runs what it installs; the last is of macOS."""


def test_in_a_temporary_environment_the_program_that_made_it_is_configured(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, (prefix, (made_by, *words)) in enumerate(TEMPORARY.items()):
        monkeypatch.setattr(sys, "prefix", str(home / prefix))
        with pytest.raises(SettingsError, match=made_by):
            server_command({"PATH": "relative"}, "mcp-toolserver")
        runner = program(home / f"bin{number}", made_by, "")
        command = server_command({"PATH": str(Path(runner).parent)}, "mcp-toolserver")
        assert command[: 1 + len(words)] == (runner, *words)
        assert command[-1].replace("_", "-") == "mcp-toolserver"
    # That of pipx install is permanent.
    monkeypatch.setattr(sys, "prefix", "/Users/ada/Library/Application Support/pipx/venvs/mcp-toolserver")
    assert os.path.isabs(server_command({}, "mcp-toolserver")[0])
    assert "run" not in server_command({}, "mcp-toolserver")


@pytest.mark.parametrize(
    ("interpreter", "link", "named"),
    [
        pytest.param("lib/python3.11", "bin/python3", "bin/python3", id="on the PATH"),
        pytest.param("lib/python3.11", "elsewhere/python3", "lib/python3.11", id="not on the PATH"),
        pytest.param("uv/python/cpython-3.12-linux/bin/python", "bin/python3", None, id="installed by uv"),
    ],
)
def test_uvx_gets_the_python_that_it_finds_on_the_path_only(
    interpreter: str, link: str, named: str | None, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = program((home / interpreter).parent, Path(interpreter).name, "")
    program(home / "bin", "uv", "")
    (home / link).parent.mkdir(exist_ok=True)
    (home / link).symlink_to(python)
    temporary = home / ".cache/uv/archive-v0/x"
    (temporary / "bin").mkdir(parents=True)
    (temporary / "bin/python3").symlink_to(python)
    (temporary / "pyvenv.cfg").touch()
    monkeypatch.setattr(sys, "prefix", str(temporary))
    monkeypatch.setattr(sys, "executable", python)
    command = server_command({"PATH": f"{temporary}/bin:{home}/bin"}, "mcp-toolserver")
    flags = command[3 : command.index("--from")]
    assert flags == (("--python", str(home / named)) if named else ())


def test_a_link_to_the_program_is_configured_and_not_its_target(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade, also one by Homebrew, leaves the link in place."""
    script = Path(program(home / "Cellar/mcp-toolserver/0.1.0/libexec/bin", "mcp-toolserver", ""))
    monkeypatch.setattr(sys, "prefix", str(script.parent.parent))
    monkeypatch.setattr(sys, "executable", str(script.with_name("python")))
    link = home / ".local/bin/mcp-toolserver"
    link.parent.mkdir(parents=True)
    link.symlink_to(script)
    assert server_command({}, str(link)) == (str(link),)
    assert server_command({}, "/elsewhere/__main__.py") == (str(script),)
    script.unlink()
    assert server_command({}, "x")[1:] == ("-P", "-m", "mcp_toolserver")


# --- macOS, simulated on Linux by the name of the platform -----------------------------------------------


@pytest.fixture
def mac_home(tmp_path: Path) -> Path:
    folder = tmp_path / "Users/ada"
    for name in ("Desktop", "Documents", "Downloads", "Library/Application Support", "Library/Caches"):
        (folder / name).mkdir(parents=True)
    return folder


def run(*command: str, home: Path) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(home), "PYTHONPATH": str(ROOT)}
    return ran(command, cwd=home, env=environ)


ASKS = {
    "{home}/Documents/work": True,
    "{home}/Desktop": True,
    "{home}/link": True,
    "/Volumes/Stick/work": True,
    "{home}/work": False,
    "{home}/Documents-old": False,
    ".": False,
}
"""By root, whether macOS asks the user; `link` leads to Downloads, and `.` is the client's folder."""


def test_the_user_is_told_what_macos_asks(mac_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Documents/work", "Documents-old", "work"):
        (mac_home / name).mkdir()
    (mac_home / "link").symlink_to("Downloads")
    monkeypatch.chdir(mac_home / "work")

    def told(root: str) -> bool:
        return bool(list(privacy_notes("Cursor", (root.format(home=mac_home),), mac_home)))

    assert not any(map(told, ASKS))
    monkeypatch.setattr(sys, "platform", "darwin")
    assert {root: told(root) for root in ASKS} == ASKS


@pytest.mark.skipif(sys.platform != "linux", reason="unshare is a program of Linux")
def test_a_folder_is_known_by_what_it_is_and_not_by_its_name(mac_home: Path, tmp_path: Path) -> None:
    """On most volumes of macOS, `/users/ADA` is `/Users/ada`. Here a mount gives a folder a second name."""
    (tmp_path / "USERS").mkdir()
    (mac_home / "work").mkdir()
    unshare = ("unshare", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")), "--mount")
    setup = (sys.executable, "-m", "mcp_toolserver", "setup", "cursor", "--print", "--root")
    script = f'mount --bind "{mac_home.parent}" "{tmp_path}/USERS" && exec "$@"'
    done = run(*unshare, "sh", "-c", script, "sh", *setup, str(tmp_path / "USERS"), home=mac_home)
    assert done.returncode == 2, done.stderr
    assert "contains your home folder" in done.stderr
    assert contains(str(mac_home), str(mac_home / "work"))
    assert not contains(str(mac_home / "work"), str(mac_home))
    assert not contains(str(mac_home / "missing"), str(mac_home / "missing/x"))
