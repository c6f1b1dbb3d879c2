"""A volume that ignores case and normal form in names, as those of macOS do.

No other spelling of a name avoids a rule, a protected name or a check: every spelling means the same file.
The volume is a file system of the tests, see `caseless_volume.py`; other suites run on it too.
"""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcp_toolserver.errors import Denied
from mcp_toolserver.runtime.files.volume import comparison_within, name_comparison, stored_name
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.files.workspace_files import ConfinedFiles
from mcp_toolserver.text.file_names import NameComparison
from tests import ROOT
from tests.macos import caseless_volume
from tests.support.live import Setup, connected, text

pytestmark = [pytest.mark.xdist_group("caseless"), pytest.mark.long]

DECOMPOSED, COMPOSED = "cafe\u0301", "caf\u00e9"

RULES = ("Read(secrets.env)", "Read(Private/**)", "Read(./caf\u00e9/*.txt)", "write_file(*.lock)")


def writing(root: Path, *deny: str) -> Setup:
    """A server that may write there, with all tools and these rules."""
    config = root.with_name("config.toml")
    config.write_text(f"[rules]\ndeny = {json.dumps(deny, ensure_ascii=False)}\n", encoding="utf-8")
    flags = ["--toolsets", "all", "--config", str(config)]
    return Setup(root=root, home=root.parent, mode="workspace-write", flags=flags)


@pytest.fixture(scope="module")
def volume() -> Generator[Path]:
    if why := caseless_volume.why_not():
        pytest.skip(why)
    with caseless_volume.mounted() as place:
        yield place


@pytest.fixture
def root(volume: Path, request: pytest.FixtureRequest) -> Path:
    folder = volume / str(abs(hash(request.node.name))) / "root"
    folder.mkdir(parents=True)
    return folder


@contextmanager
def descriptor(path: Path) -> Generator[int]:
    opened = os.open(path, os.O_RDONLY)
    try:
        yield opened
    finally:
        os.close(opened)


def test_it_is_found_out_how_a_folder_compares_names(root: Path, tmp_path: Path) -> None:
    with descriptor(root) as opened:
        assert name_comparison(opened) is NameComparison.CASELESS, "an empty folder shows nothing"
        (root / "a").touch()
        assert name_comparison(opened) is NameComparison.CASELESS
    for name in ("a", "A"):
        (tmp_path / name).touch()
    with descriptor(tmp_path) as opened:
        assert name_comparison(opened) is NameComparison.EXACT
    # A volume below a root counts for the root.
    with descriptor(Path("/srv")) as opened:
        assert comparison_within(opened, "/srv") is NameComparison.CASELESS


def test_every_spelling_is_one_path_and_a_link_leads_to_the_stored_one(root: Path) -> None:
    (root / "Sub" / COMPOSED).mkdir(parents=True)
    (root / "Sub" / COMPOSED / "Read.me").write_text("text", encoding="utf-8")
    workspace = Workspace([str(root)])
    for spelt in ("sub", "SUB"):
        for folder in (COMPOSED, DECOMPOSED, COMPOSED.upper()):
            for name in ("read.me", "READ.ME", "Re\u200dad.me"):
                found = workspace.canonical(f"{spelt}/{folder}/{name}")
                assert found == f"Sub/{COMPOSED}/Read.me"
                os.close(workspace.open_file(found))
    assert workspace.canonical("SUB/New/File") == "Sub/New/File"
    assert workspace.canonical("sub/../SUB/.") == "Sub"
    (root / "link").symlink_to("SUB")
    (root / "out").symlink_to("../OUTSIDE")
    (root.parent / "outside").write_text("outside", encoding="utf-8")
    assert workspace.canonical("LINK") == "Sub"
    with pytest.raises(Denied):
        workspace.canonical("OUT")


def test_a_root_is_known_by_its_other_names_and_nothing_beside_it(root: Path) -> None:
    (root / "a").touch()
    other = root.with_name("other")
    other.mkdir()
    workspace = Workspace([str(root)])
    assert workspace.canonical(f"{root.parent}/ROOT/A") == "a"
    assert workspace.canonical(f"{root.parent}/Root") == "."
    for path in (f"{root.parent}/ROOT/../OTHER/x", f"{root.parent}/OTHER/x", f"{root.parent}/ROOTS/a"):
        with pytest.raises(Denied):
            workspace.canonical(path)
    assert workspace.restricted_to([f"{root.parent}/ROOT"]).roots == (str(root),)


async def test_two_spellings_of_a_new_file_make_one_file(root: Path) -> None:
    workspace = Workspace([str(root)])
    files = ConfinedFiles(workspace, may_write=True)
    assert (await files.write(workspace.canonical("a.txt"), b"1")).created
    assert not (await files.write(workspace.canonical("A.TXT"), b"2")).created
    assert os.listdir(root) == ["a.txt"]
    assert (root / "a.txt").read_bytes() == b"2"
    # Calls at the same time wait for each other.
    locks = {workspace.write_target(workspace.canonical(name)).lock_name for name in ("new", "NEW", "nEw")}
    assert len(locks) == 1


async def test_a_rule_holds_for_every_spelling(root: Path) -> None:
    for folder in ("Private/deep", COMPOSED):
        (root / folder).mkdir(parents=True)
    for name in ("Secrets.env", "Private/deep/key", f"{COMPOSED}/a.txt", "open.txt"):
        (root / name).write_text(f"content of {name[0]}\n", encoding="utf-8")
    hidden = (
        *("secrets.env", "SECRETS.ENV", "Secrets.env", "secret\u017f.env", "sec\u200crets.env"),
        *("private/deep/key", "PRIVATE/DEEP/KEY", f"{DECOMPOSED}/A.TXT", f"{COMPOSED.upper()}/a.txt"),
    )
    async with connected(writing(root, *RULES)) as client:
        for path in hidden:
            said = text(await client.call_tool("read_file", {"path": path}))
            assert "content of" not in said, path
            assert "denied" in said or "hidden" in said or "not exist" in said, said
        for arguments in ({"pattern": "content"}, {"pattern": "content", "path": "."}):
            found = text(await client.call_tool("grep_search", arguments))
            assert "open.txt" in found
            assert "secrets" not in found.lower()
            assert "private" not in found.lower()
        listed = text(await client.call_tool("ls", {"path": "."}))
        assert "open.txt" in listed
        assert "ecrets" not in listed
        # A mount on one name of a file leaves its others, so no command runs.
        said = text(await client.call_tool("bash", {"command": "cat open.txt SECRETS.ENV"}))
        assert "content of" not in said
        assert "other spellings" in said
        for name in ("Secrets.ENV", "NEW/secrets.ENV", "a.LOCK"):
            said = text(await client.call_tool("write_file", {"path": name, "content": "planted"}))
            assert "denied" in said or "hidden" in said
    assert (root / "secrets.env").read_text(encoding="utf-8") == "content of S\n"
    assert not (root / "new").exists()
    assert not (root / "a.lock").exists()


async def test_commands_do_not_see_a_hidden_folder_by_any_name(root: Path) -> None:
    (root / "Private/deep").mkdir(parents=True)
    for name in ("Private/deep/key", "open.txt"):
        (root / name).write_text(f"content of {name[0]}\n", encoding="utf-8")
    spelt = ("Private/deep/key", "PRIVATE/DEEP/KEY", "private/Deep/key", "./pri\u200dvate/deep/key")
    async with connected(writing(root, "Read(private/**)")) as client:
        said = text(await client.call_tool("bash", {"command": f"cat open.txt {' '.join(spelt)}"}))
        assert "content of o" in said
        assert "content of P" not in said


def test_no_server_starts_where_commands_could_write_a_protected_file_by_another_name(root: Path) -> None:
    (root / ".mcp.json").write_text("before", encoding="utf-8")
    setup = writing(root)
    done = subprocess.run(
        setup.command,
        env=setup.environment,
        stdin=subprocess.DEVNULL,
        check=False,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert done.returncode != 0
    assert "other spellings" in done.stderr


async def test_protected_names_hold_for_every_spelling(root: Path) -> None:
    subprocess.run(["git", "-C", str(root), "init", "-q"], check=True, capture_output=True)
    before = (root / ".git/config").read_bytes()
    names = (
        *(".GIT/config", ".Git/Hooks/pre-commit", ".g\u0131t/config", ".gi\u200ct/config"),
        *(".g\u0130t/hooks/x", ".VSCODE/tasks.json", ".Mcp.JSON", "sub/.GIT/config"),
    )
    commands = ("echo evil >> .GIT/CONFIG", "echo evil > .git/HOOKS/x", "mkdir .VSCODE", "touch .MCP.json")
    async with connected(writing(root)) as client:
        for name in names:
            arguments = {"path": name, "content": "evil", "overwrite": True}
            assert "protected" in text(await client.call_tool("write_file", arguments)), name
        for command in commands:
            await client.call_tool("bash", {"command": command})
    assert (root / ".git/config").read_bytes() == before
    assert not (root / ".git/hooks/x").exists()
    assert not (root / ".vscode").exists()
    assert not (root / ".mcp.json").exists()


async def test_what_was_read_by_one_name_is_replaced_by_another_and_no_patch_makes_two_of_one(
    root: Path,
) -> None:
    long = "".join(f"line {number}\n" for number in range(50))
    (root / "Notes.txt").write_text(long, encoding="utf-8")
    patch = "*** Begin Patch\n*** Add File: a.txt\n+1\n*** Add File: A.TXT\n+2\n*** End Patch\n"
    async with connected(writing(root)) as client:
        refused = await client.call_tool("write_file", {"path": "NOTES.TXT", "content": "short\n"})
        assert refused.is_error
        assert (root / "Notes.txt").read_text(encoding="utf-8") == long
        assert not (await client.call_tool("read_file", {"path": "notes.txt"})).is_error
        written = await client.call_tool("write_file", {"path": "NOTES.txt", "content": "short\n"})
        assert not written.is_error
        assert (await client.call_tool("apply_patch", {"patch": patch})).is_error
    assert os.listdir(root) == ["Notes.txt"]


def test_a_name_that_is_gone_meanwhile_is_refused(root: Path) -> None:
    (root / "a").touch()
    with descriptor(root) as folder, descriptor(root / "A") as file:
        assert stored_name(folder, "A", file) == "a"
        (root / "a").unlink()
        (root / "b").touch()
        with pytest.raises(BlockingIOError):
            stored_name(folder, "A", file)


TOOLS = (
    *(("files", name) for name in ("read_file", "write_file", "folders")),
    ("search", "grep_search"),
)

SUITES = (
    *(
        "tests/escape/test_escape_paths.py",
        "tests/files/test_fs.py",
        "tests/policy/test_policy.py",
        "tests/policy/test_rules_served.py",
    ),
    # Not test_protected_served.py: its scene holds protected files, so no server starts there.
    *("tests/files/test_lookups.py", "tests/files/test_undo.py", "tests/sandbox/test_protected.py"),
    *(f"tests/{folder}/test_{tool}.py" for folder, tool in TOOLS),
)


@pytest.mark.long
def test_the_suites_on_paths_and_rules_pass_on_the_volume() -> None:
    if why := caseless_volume.why_not():
        pytest.skip(why)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--caseless", "-q", "-p", "no:cacheprovider", *SUITES],
        cwd=ROOT,
        check=False,
        capture_output=True,
        encoding="utf-8",
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout[-6000:]
