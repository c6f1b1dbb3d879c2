"""Builds the Homebrew formula from the facts of the package.

`python packaging/build_formula.py` prints the formula for the newest source (`brew install --HEAD`), and with
the source distribution of a release as its argument that of the release, with address and checksum.

Homebrew wants a Python application in a virtual environment in `libexec`. Formulas of its own tap list every
dependency as a resource (https://docs.brew.sh/Python-for-Formula-Authors). This one is for a tap
of the project: pip installs the dependencies, as wheels, within the ranges of `pyproject.toml`.
"""

import hashlib
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]

PYTHON = "3.13"
"""A version that the package supports and that Homebrew has."""

FORMULA = """\
# Made by packaging/build_formula.py; do not edit.
# No version of this formula was ever installed with brew: the project has no Mac.
class McpToolserver < Formula
  include Language::Python::Virtualenv

  desc "{summary}"
  homepage "{homepage}"
{release}  license "{license}"
  head "{homepage}.git", branch: "main"

  depends_on "python@{python}"

  # Compiled wheels have too little room in their headers for the absolute names that brew writes into them
  # (pydantic/pydantic#13136).
  preserve_rpath

  def install
    virtualenv_create(libexec, "python{python}", system_site_packages: false, without_pip: false)
    system libexec/"bin/python", "-m", "pip", "install", "--no-cache-dir", buildpath
    bin.install_symlink libexec/"bin/mcp-toolserver"
  end

  test do
    # brew runs this in a Seatbelt sandbox, which cannot contain another: the server itself would not start.
    assert_match version.to_s, shell_output("#{{bin}}/mcp-toolserver --version") if build.stable?
    assert_match "read_file", shell_output("#{{bin}}/mcp-toolserver tools --format json")
  end
end
"""


def formula(archive: Path | None) -> str:
    """The text of the formula; `archive` is the source distribution of a release."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    homepage = project["urls"]["Homepage"]
    return FORMULA.format(
        summary=_summary(project["description"]),
        homepage=homepage,
        release=_release(homepage, archive) if archive else "",
        license=project["license"],
        python=PYTHON,
    )


def _summary(description: str) -> str:
    """The description as `brew audit` wants it: no article first, no full stop, at most 80 characters."""
    text = description.removeprefix("A ").removesuffix(".")
    return text[0].upper() + text[1:]


def _release(homepage: str, archive: Path) -> str:
    version = archive.name.removeprefix("mcp_toolserver-").removesuffix(".tar.gz")
    checksum = hashlib.sha256(archive.read_bytes()).hexdigest()
    return f'  url "{homepage}/releases/download/v{version}/{archive.name}"\n  sha256 "{checksum}"\n'


if __name__ == "__main__":
    print(formula(Path(sys.argv[1]) if len(sys.argv) > 1 else None), end="")
