"""Builds the bundle for clients that install MCP servers from a file (MCPB), such as Claude Desktop.

`python packaging/build_bundle.py [FOLDER]` writes `mcp-toolserver-VERSION.mcpb` into the folder (`dist`).

The bundle holds the source and the list of dependencies. The client's uv installs these into a virtual
environment next to the source, without building a package. The same source gives the same bytes.
"""

import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import tomlkit

ROOT = Path(__file__).parents[1]

EXTRAS = ("documents",)
"""Included, because users of a bundle cannot install an extra."""


def contents() -> Iterator[tuple[str, bytes]]:
    """The name and content of each file of the bundle."""
    for name in ("manifest.json", "icon.png", "server.py"):
        yield name, (ROOT / "packaging" / name).read_bytes()
    yield "LICENSE", (ROOT / "LICENSE").read_bytes()
    yield "pyproject.toml", _project().encode()
    for path in sorted((ROOT / "mcp_toolserver").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(ROOT).as_posix(), path.read_bytes()


def _project() -> str:
    """The `pyproject.toml` of the bundle, with the dependencies of the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    listed = {
        "name": project["name"],
        "version": _version(),
        "requires-python": project["requires-python"],
        "dependencies": [*project["dependencies"], *(needed for extra in EXTRAS for needed in extras[extra])],
    }
    return tomlkit.dumps({"project": listed, "tool": {"uv": {"package": False}}})


def _version() -> str:
    return json.loads((ROOT / "packaging" / "manifest.json").read_text(encoding="utf-8"))["version"]


def build(folder: Path) -> Path:
    """Write the bundle into `folder` and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"mcp-toolserver-{_version()}.mcpb"
    with ZipFile(file, "w") as bundle:
        for name, content in contents():
            bundle.writestr(ZipInfo(name), content, compress_type=ZIP_DEFLATED)
    return file


if __name__ == "__main__":
    print(build(Path(sys.argv[1] if len(sys.argv) > 1 else "dist")))
