"""Agent files of the workspace, which may be hostile: what they define, and how the rest is skipped."""

import os
from pathlib import Path

import pytest

from mcp_toolserver.runtime.agents import agent_files
from mcp_toolserver.runtime.agents.agent_files import MAX_BYTES, custom_types
from mcp_toolserver.runtime.files.workspace import Workspace
from tests.agents.agents import Says, agents

GOOD = "---\nname: good\ndescription: does good\ntools: Read, Grep\nmodel: small\n---\nDo good.\n"


def folder(root: Path, name: str = ".claude/agents") -> Path:
    """The folder of agent files."""
    (root / name).mkdir(parents=True, exist_ok=True)
    return root / name


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def test_files_of_all_roots_define_types(tmp_path: Path, root: Path) -> None:
    (folder(root) / "a.md").write_text(GOOD, encoding="utf-8")
    (folder(root) / "notes.txt").write_text(GOOD, encoding="utf-8")
    (folder(root, ".agents/agents") / "b.md").write_text("---\nname: other\n---\nHelp.", encoding="utf-8")
    (folder(tmp_path / "second") / "c.md").write_text("---\nname: third\n---\nHelp.", encoding="utf-8")
    found = custom_types(Workspace([str(root), str(tmp_path / "second")]))
    assert [one.name for one in found.types] == ["other", "good", "third"]
    good = found.types[1]
    assert (good.description, good.tools, good.model) == ("does good", ("Read", "Grep"), "small")
    assert good.instructions == "Do good."
    assert found.skipped == ()


def test_a_workspace_without_agent_files_has_no_types(root: Path) -> None:
    assert custom_types(Workspace([str(root)])) == agent_files.CustomTypes((), ())


def _link(place: Path, at: Path) -> None:
    outside = place / "secret.md"
    outside.write_text(GOOD, encoding="utf-8")
    at.symlink_to(outside)


def written(at: Path, text: str) -> None:
    at.write_text(text, encoding="utf-8")


def _big(_: Path, at: Path) -> None:
    with at.open("wb") as file:
        file.write(GOOD.encode())
        file.truncate(100 << 20)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        pytest.param(_link, "inside", id="link out of the roots"),
        pytest.param(lambda _, at: os.mkfifo(at), "not a regular file", id="FIFO"),
        pytest.param(lambda _, at: at.mkdir(), "folder", id="folder"),
        pytest.param(lambda _, at: at.symlink_to("/dev/zero"), "inside", id="device"),
        pytest.param(_big, f"has more than {MAX_BYTES:,} bytes", id="100 MB"),
        pytest.param(lambda _, at: at.write_bytes(b"\xff\xfe"), "is not UTF-8", id="no text"),
        pytest.param(lambda _, at: written(at, "Help."), "has no `name`", id="no front matter"),
        pytest.param(lambda _, at: written(at, "---\nname: x\n---\n"), "no instructions", id="no body"),
        pytest.param(
            lambda _, at: written(at, "---\nname: x\na: &a [1]\nb: [*a, *a]\n---\nHelp."),
            "anchor",
            id="bomb of aliases",
        ),
        pytest.param(
            lambda _, at: written(at, f"---\nname: x\na: {'[' * 500}\n---\nHelp."),
            "front matter",
            id="deep",
        ),
        pytest.param(
            lambda _, at: written(at, '---\nname: "x\\e[2J"\n---\nHelp.'), "has no `name`", id="control"
        ),
        pytest.param(lambda _, at: written(at, "---\nname: ../x\n---\nHelp."), "`name`", id="traversal"),
        pytest.param(
            lambda _, at: written(at, "---\nname: explorer\n---\nWrite."),
            "that every workspace has",
            id="name of a built-in type",
        ),
        pytest.param(
            lambda _, at: written(at, "---\nname: x\ntools: 7\n---\nHelp."), "`tools`", id="tools: number"
        ),
        pytest.param(
            lambda _, at: written(at, "---\nname: x\ntools: [1]\n---\nHelp."), "`tools`", id="tools: list"
        ),
        pytest.param(
            lambda _, at: written(at, "---\nname: x\nmodel: [a]\n---\nHelp."), "`model`", id="model: list"
        ),
    ],
)
async def test_a_hostile_file_is_skipped_with_the_reason_and_the_others_are_used(
    tmp_path: Path, root: Path, make: object, why: str
) -> None:
    assert callable(make)
    make(tmp_path, folder(root) / "bad.md")
    (folder(root) / "good.md").write_text(GOOD, encoding="utf-8")
    found = custom_types(Workspace([str(root)]))
    assert [one.name for one in found.types] == ["good"]
    [skipped] = found.skipped
    assert "bad.md" in skipped
    assert why in skipped


def test_a_file_that_a_rule_hides_is_not_read(root: Path) -> None:
    (folder(root) / "bad.md").write_text(GOOD, encoding="utf-8")
    workspace = Workspace([str(root)], hides=lambda spellings: spellings[-1].endswith("bad.md"))
    found = custom_types(workspace)
    assert found.types == ()
    assert "hidden" in found.skipped[0]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        pytest.param(lambda root, out: (root / ".claude").symlink_to(out), "inside", id="link"),
        pytest.param(lambda root, _: written(root / ".claude", "x"), "", id="file"),
    ],
)
def test_a_folder_that_is_none_or_leads_out_is_not_read(
    tmp_path: Path, root: Path, make: object, why: str
) -> None:
    (folder(tmp_path / "out", "agents") / "a.md").write_text(GOOD, encoding="utf-8")
    assert callable(make)
    make(root, tmp_path / "out")
    found = custom_types(Workspace([str(root)]))
    assert found.types == ()
    assert all(why in one for one in found.skipped)


def test_the_first_of_two_files_with_a_name_counts(root: Path) -> None:
    for name in ("a", "b"):
        (folder(root) / f"{name}.md").write_text(GOOD.replace("Do good", name), encoding="utf-8")
    found = custom_types(Workspace([str(root)]))
    assert [one.instructions for one in found.types] == ["a."]
    assert "has the name good, which another file has" in found.skipped[0]


def test_the_files_of_a_folder_are_limited(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        text = GOOD.replace("name: good", f"name: good{number}")
        (folder(root) / f"{number}.md").write_text(text, encoding="utf-8")
    monkeypatch.setattr(agent_files, "MAX_FILES", 3)
    found = custom_types(Workspace([str(root)]))
    assert [one.name for one in found.types] == ["good0", "good1", "good2"]
    assert "more than 3 files" in found.skipped[0]
    monkeypatch.setattr(agent_files, "MAX_ENTRIES", 2)
    assert "more than 2 entries" in custom_types(Workspace([str(root)])).skipped[0]


async def test_an_unknown_type_names_the_files_that_were_skipped(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (folder(tmp_path / "root") / "good.md").write_text(GOOD, encoding="utf-8")
    (folder(tmp_path / "root") / "bad.md").write_text("Help.", encoding="utf-8")
    async with agents(tmp_path, {"go": [Says("Done.")]}, agent_models=("small=scripted",)) as at:
        refused = await at.agent("go", subagent_type="bad")
        assert refused.error == "invalid_input"
        assert "good (does good)" in refused.text
        assert "bad.md has no `name`" in refused.text
        assert (await at.agent("go", subagent_type="good")).text.startswith("Done.")
