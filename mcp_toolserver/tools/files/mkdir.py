"""Make a folder, with those above it that are missing. It is no error if it is there. write_file makes the
folders of its file by itself.
"""

from mcp_toolserver.tool import (
    Alias,
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
    path: WorkspacePath = Field(description="Folder")


async def run(args: Mkdir, rt: Runtime) -> Output:
    is_new = await rt.fs.make_folder(args.path)
    return Output(f"Created {args.path}/." if is_new else f"{args.path}/ was there already.")


TOOL = ToolSpec(
    name="mkdir",
    description=__doc__ or "",
    permission=Permission.WORKSPACE_WRITE,
    needs=frozenset({Capability.FS_WRITE}),
    args=Mkdir,
    run=run,
    kind="edit",
    subjects=lambda args: (args.path,),
    idempotent=True,
    aliases=(Alias("mkdir", renames={"file_path": "path"}),),
)
