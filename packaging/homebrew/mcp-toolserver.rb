# Made by packaging/build_formula.py; do not edit.
# No version of this formula was ever installed with brew: the project has no Mac.
class McpToolserver < Formula
  include Language::Python::Virtualenv

  desc "Coding agent's tools over MCP, with a permission mode that the server enforces"
  homepage "https://github.com/mcp-toolserver/mcp-toolserver"
  license "Apache-2.0"
  head "https://github.com/mcp-toolserver/mcp-toolserver.git", branch: "main"

  depends_on "python@3.13"

  # Compiled wheels have too little room in their headers for the absolute names that brew writes into them
  # (pydantic/pydantic#13136).
  preserve_rpath

  def install
    virtualenv_create(libexec, "python3.13", system_site_packages: false, without_pip: false)
    system libexec/"bin/python", "-m", "pip", "install", "--no-cache-dir", buildpath
    bin.install_symlink libexec/"bin/mcp-toolserver"
  end

  test do
    # brew runs this in a Seatbelt sandbox, which cannot contain another: the server itself would not start.
    assert_match version.to_s, shell_output("#{bin}/mcp-toolserver --version") if build.stable?
    assert_match "read_file", shell_output("#{bin}/mcp-toolserver tools --format json")
  end
end
