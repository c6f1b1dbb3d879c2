"""Create, change, move or delete several files with one patch: a unified diff (git format included) or the
`*** Begin Patch` format. If one file fails, none is changed. Hunks are located by their lines; inexact
matches are reported. Returns a line per file, with the id that undoes its change.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from mcp_toolserver import tool as t
from mcp_toolserver.text.patch.model import Patch
from mcp_toolserver.text.undo_note import undo_help

if TYPE_CHECKING:
    from mcp_toolserver.text.patch.plan import Outcome, Plan


def _parsed(value: object) -> object:
    from mcp_toolserver.text.patch.formats import parse

    return parse(value) if isinstance(value, str) else value


class ApplyPatch(t.Args):
    patch: Annotated[
        t.InstanceOf[Patch], t.BeforeValidator(_parsed), t.WithJsonSchema({"type": "string"}), t.PathsMark()
    ] = t.Field(description="Full text of the patch; paths are relative to the first root")


async def run(args: ApplyPatch, rt: t.Runtime) -> t.Output:
    from mcp_toolserver.text.edit.unified_diff import ECHOED, cut_middle
    from mcp_toolserver.text.patch.plan import plan

    plans: list[Plan] = []

    def change(contents: t.Contents) -> Sequence[t.FileChange]:
        plans.append(plan(args.patch, contents))
        return plans[-1][0]

    paths = tuple(map(t.CanonicalPath, args.patch.paths))
    written = await rt.fs.update_all(paths, change)
    changes, outcomes = plans[-1]
    kept = [change.path for change in changes if change.content is not None]
    digests = {path: written[path].sha256 for path in kept}
    count = len({outcome.path for outcome in outcomes if outcome.path in written})
    patched = f"Patched {count} file{'s' * (count != 1)}."
    headline = patched if count else "Nothing changed: the files are so already."
    summary = (headline, *_lines(outcomes, written))
    # Shown where a hunk did not match exactly.
    diffs = cut_middle("".join(outcome.diff for outcome in outcomes), ECHOED)
    return t.Output("\n".join((*summary, diffs)).rstrip("\n"), sha256=digests)


def _lines(outcomes: "Sequence[Outcome]", written: Mapping[t.CanonicalPath, t.Written]) -> Iterator[str]:
    yield from undo_help(one.previous for one in written.values())
    for outcome in outcomes:
        yield f"- {outcome.text}{_about(outcome, written)}"
        yield from (f"  - {note}" for note in outcome.notes)


def _about(outcome: "Outcome", written: Mapping[t.CanonicalPath, t.Written]) -> str:
    new, old = written.get(outcome.path), written.get(t.CanonicalPath(outcome.section.path))
    notes: list[str] = []
    if outcome.section.action != "delete":
        notes.append("unchanged" if new is None else f"{len(new.after)} bytes")
    if new is not None and new.links > 1 and notes:
        notes.append(f"{new.links} hard links: the other names keep the old content")
    if old is not None and old.previous is not None:
        notes.append(_undo(outcome, old.previous))
    return f" ({', '.join(notes)})" if notes else ""


def _undo(outcome: "Outcome", previous: t.Previous) -> str:
    if previous.why:
        return f"not kept for undo: {previous.why}"
    place = f" at {outcome.section.path}" if outcome.path != outcome.section.path else ""
    return f'restore "{previous.handle}"{place}'


TOOL = t.ToolSpec(
    name="apply_patch",
    title="Apply patch",
    needs=frozenset({t.Capability.FS_WRITE}),
    args=ApplyPatch,
    run=run,
    kind="edit",
    destructive=True,
    aliases=(t.Alias("apply_patch", renames={"input": "patch", "patchText": "patch", "diff": "patch"}),),
    profile=t.Profile.DEFAULT,
)
