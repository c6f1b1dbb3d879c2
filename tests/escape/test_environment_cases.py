"""What a server was started with, or finds in a folder, does not run in its commands, nor leak into them."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from mcp_toolserver.runtime.sandbox.layers.environment import OFFLINE, command_environment
from tests.support.cases import table
from tests.support.processes import FULL, PATIENCE, broker, outcome

BASH = shutil.which("bash") or "bash is not installed"
PYTHON = shlex.quote(sys.executable)


def naive(script: str, environ: Mapping[str, str], cwd: Path) -> str:
    """A command as a server runs it that takes no care."""
    done = subprocess.run(
        [BASH, "-c", script],
        env={**os.environ, **environ},
        cwd=cwd,
        check=False,
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
    )
    return done.stdout + done.stderr


def ours(environ: Mapping[str, str], cwd: Path, *scripts: str) -> list[str]:
    """What the same commands print, with the same environment around the server."""
    with broker(FULL, environ={**os.environ, **environ}) as at:
        ended = [outcome(at, script, cwd=str(cwd)) for script in scripts]
    assert {(came["status"], came["reason"]) for came, _ in ended} == {(0, "exited")}
    return [output for _, output in ended]


PLANTED = {
    **dict.fromkeys(("evil.sh", "tool"), "#!/bin/sh\necho BITTEN\n"),
    **dict.fromkeys(("evil.py", "sitecustomize.py", "json.py"), "print('BITTEN')\n"),
    "evil.pm": 'print "BITTEN\\n"; 1;\n',
    # The loader complains of what is no library, and names it.
    "evil-BITTEN.so": "",
}


def test_a_variable_of_the_server_runs_nothing_in_a_command(tmp_path: Path) -> None:
    for name, text in PLANTED.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    # The loader wants paths absolute, and some must work from everywhere; `PATH` is about relative ones.
    absolute = {"PYTHONPATH": f"{tmp_path}", "LD_PRELOAD": f"{tmp_path}/evil-BITTEN.so"}
    absolute["PERL5OPT"] = f"-Mevil -I{tmp_path}"
    # A server has all that can be set at once; what has two values takes another server.
    servers: list[tuple[dict[str, str], list[str]]] = []
    words = {"PYTHON": PYTHON, "BASH": BASH, "PATH": os.environ["PATH"]}
    attacks = table(Path(__file__).with_name("environment_attacks.txt"), columns=3, words=words)
    for name, variables, script in attacks:
        environ = dict(variable.split("=", 1) for variable in shlex.split(variables))
        wanted = {name: absolute.get(name, value) for name, value in environ.items()}
        assert "BITTEN" in naive(script, wanted, tmp_path), f"{name} is no attack"
        free = next((one for one in servers if not one[0].keys() & wanted.keys()), None)
        if free is None:
            free = dict[str, str](), list[str]()
            servers.append(free)
        free[0].update(wanted)
        free[1].append(script)
    for environ, scripts in servers:
        for script, output in zip(scripts, ours(environ, tmp_path, *scripts), strict=True):
            assert "BITTEN" not in output, script
            assert "honest" in output, script


SECRETS = {
    "ENV07": ["PERL5OPT", "PERL5LIB", "RUBYOPT", "RUBYLIB", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH",
              "LUA_INIT", "NODE_OPTIONS", "NODE_PATH"],
    "ENV08": ["GIT_DIR", "GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF", "SSH_AUTH_SOCK", "GPG_AGENT_INFO",
              "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "WAYLAND_DISPLAY", "DISPLAY", "DOCKER_HOST",
              "KUBECONFIG"],
    "ENV09": ["GITHUB_TOKEN", "NPM_TOKEN", "API_KEY", "STRIPE_SECRET_KEY", "AWS_SECRET_ACCESS_KEY",
              "AWS_PROFILE", "ANTHROPIC_API_KEY", "MCP_TOOLSERVER_TOKEN_FILE"],
    "ENV11": ["PS4", "PROMPT_COMMAND", "CDPATH", "GLOBIGNORE", "BASH_XTRACEFD", "IFS"],
    "ENV14": ["LESSOPEN", "LESSCLOSE", "MANPAGER", "EDITOR", "VISUAL", "BROWSER", "SSH_ASKPASS"],
    "ENV15": ["TERMINFO", "TERMINFO_DIRS", "TERMCAP"],
    "loader": ["LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "GCONV_PATH", "LOCPATH", "NLSPATH",
               "DYLD_INSERT_LIBRARIES"],
    "python": ["PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONBREAKPOINT"],
}  # fmt: skip


def test_a_command_sees_no_variable_that_is_not_on_the_list(tmp_path: Path) -> None:
    names = [name for listed in SECRETS.values() for name in listed]
    # Some would break the interpreter that shows them, or the loader of everything.
    environ = {name: "" if name.startswith(("LD_", "PYTHON")) else f"x-{name}" for name in names}
    script = f"tr '\\0' '\\n' </proc/$$/environ | grep -E '^({'|'.join(names)})='; true"
    assert {line.partition("=")[0] for line in naive(script, environ, tmp_path).splitlines()} >= set(names)
    assert ours(environ, tmp_path, script) == [""]


def test_a_user_s_own_start_files_are_not_read(tmp_path: Path) -> None:
    """ENV02: neither profile nor rc file."""
    for name in (".bashrc", ".bash_profile", ".profile", ".bash_login"):
        (tmp_path / name).write_text("echo BITTEN\n", encoding="utf-8")
    home = {"HOME": str(tmp_path)}
    login = subprocess.run(
        [BASH, "-lc", "true"], env={**os.environ, **home}, check=True, capture_output=True, encoding="utf-8"
    )
    assert "BITTEN" in login.stdout
    assert ours(home, tmp_path, "echo honest") == ["honest\n"]


@pytest.mark.requirement("SW-54")
def test_without_a_network_package_managers_try_once_unless_the_operator_says_otherwise() -> None:
    assert not OFFLINE.keys() & command_environment({}).keys()
    given = command_environment({"PIP_RETRIES": "3"}, ["PIP_RETRIES"], network=False)
    assert given.items() >= {**OFFLINE, "PIP_RETRIES": "3"}.items()
