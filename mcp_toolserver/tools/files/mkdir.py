"""Create a folder and its missing parents. Succeeds if the folder exists. write_file creates the folders that
it needs.
"""

from mcp_toolserver import tool as t


class Mkdir(t.Args):
    path: t.WorkspacePath = t.Field(description="Path of the folder, relative to the first root or absolute")


async def run(args: Mkdir, rt: t.Runtime) -> t.Output:
    is_new = await rt.fs.make_folder(args.path)
    return t.Output(f"Created {args.path}/." if is_new else f"{args.path}/ was there already.")


TOOL = t.ToolSpec(
    name="mkdir",
    title="Create folder",
    needs=frozenset({t.Capability.FS_WRITE}),
    args=Mkdir,
    run=run,
    kind="edit",
    idempotent=True,
)
