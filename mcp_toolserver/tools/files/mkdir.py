"""Create a folder and its missing parents. Succeeds if the folder exists. write_file creates the folders that
it needs.
"""

from mcp_toolserver.tool import (
    Args,
    Capability,
    Field,
    Output,
    Permission,
    Runtime,
    ToolSpec,
    WorkspacePath,
)


class Mkdir(Args):
    path: WorkspacePath = Field(description="Path of the folder, relative to the first root or absolute")


async def run(args: Mkdir, rt: Runtime) -> Output:
    is_new = await rt.fs.make_folder(args.path)
    return Output(f"Created {args.path}/." if is_new else f"{args.path}/ was there already.")


TOOL = ToolSpec(
    name="mkdir",
    title="Create folder",
    description=__doc__ or "",
    permission=Permission.WORKSPACE_WRITE,
    needs=frozenset({Capability.FS_WRITE}),
    args=Mkdir,
    run=run,
    kind="edit",
    subjects=lambda args: (args.path,),
    idempotent=True,
)
