"""Pushes a branch with the user's own git configuration and credentials, outside the sandbox.

Git runs in a new, empty repository that borrows the objects of the user's one: no hook, setting or program
of that repository counts, only the address of the remote and the commit, which the question to the user
shows. The remote's branch must be where the repository says it was last, so that exactly the commits shown
are pushed, and never anything overwritten.
"""

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from urllib.parse import unquote

import anyio

from mcp_toolserver.capabilities.call_scope import Report
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.git import Pushing
from mcp_toolserver.errors import Conflict, Denied, InvalidInput, NotFound, TimedOut, ToolError, Unavailable
from mcp_toolserver.runtime.git.changing import ChangeAccess, changing
from mcp_toolserver.runtime.git.hardening import parse_config
from mcp_toolserver.runtime.git.repository import Repository, open_repository
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.interactive import InteractiveProcess, start_interactive
from mcp_toolserver.text.file_names import lies_in
from mcp_toolserver.text.git.log import blanked

SECONDS = 300.0
SHOWN = 20
"""Commits that the question shows."""

_MAX_SHALLOW = 1 << 20
_OUTPUT_BYTES = 64 << 10
_SSH = re.compile(r"(?:\w[\w.-]*@)?\w[\w.-]*:(?!/?/|:)\S+")
"""`user@host:path`, which git takes for an address of ssh."""
_URL = re.compile(r"(?:https?|ssh)://(?!-)\S+")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REFUSED = re.compile(r"^!\t[^\n]*\(([^()\n]*)\)$", re.MULTILINE)

_VARIABLES: Mapping[str, str] = {
    "GIT_ALLOW_PROTOCOL": "file:https:http:ssh",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS_REQUIRE": "never",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}
_SETTINGS = (
    *("core.hooksPath=/dev/null", "core.commitGraph=false", "core.multiPackIndex=false"),
    *("pack.useBitmaps=false", "push.recurseSubmodules=no", "push.pushOption=", "gc.auto=0"),
)


@dataclass(kw_only=True)
class GitPusher:
    """The pushes of one call: what `prepare` found, and the question showed, is what `push` pushes."""

    access: ChangeAccess
    broker: Broker
    program: str
    variables: Mapping[str, str]
    """Where the user's ssh agent is."""
    closed: tuple[str, ...]
    """Folders that tools and commands may write in, where no remote may lie: its hooks would run."""
    prepared: Pushing | None = None

    async def prepare(self, path: CanonicalPath, remote: str, branch: str) -> Pushing:
        """Find out what a push of `branch` in the repository at `path` does; empty names are the current
        branch and its remote.

        Raises:
            NotFound, InvalidInput: there is no such branch or remote, or more than one address.
            Conflict: there is nothing to push, or what was pushed last is no part of the branch.
            Denied: the remote must not be pushed to from here.
        """
        async with open_repository(self.access.repositories, path) as repository:
            branch = branch or await _answer(repository, "rev-parse", "--abbrev-ref", "HEAD")
            commit = await _answer(repository, "rev-parse", "--verify", "--quiet", f"refs/heads/{branch}")
            if not _COMMIT.fullmatch(commit):
                raise NotFound(
                    f"There is no branch '{branch}' in '{repository.top}'. git_branch lists branches."
                )
            remote, address = _remote(repository, remote, branch)
            address = self._checked(address, repository.location.top)
            tracked = f"refs/remotes/{remote}/{branch}"
            base = await _answer(repository, "rev-parse", "--verify", "--quiet", tracked)
            commits, count = await _commits(repository, commit, base)
        self.prepared = Pushing(
            path=path,
            remote=remote,
            branch=branch,
            address=address,
            shown=blanked(address),
            commit=commit,
            base=base,
            commits=commits,
            count=count,
        )
        return self.prepared

    def _checked(self, address: str, top: str) -> str:
        """The address as git gets it. Raises: Denied: it is none that may be pushed to."""
        is_plain = address.isprintable() and len(address) <= 2_000 and "::" not in address
        if is_plain and (_URL.fullmatch(address) or _SSH.fullmatch(address)):
            return address
        path = unquote(address.removeprefix("file://")) if address.startswith("file://") else address
        real = os.path.realpath(os.path.join(top, path))
        if not is_plain or "://" in path or not real.isprintable() or not os.path.isdir(real):
            raise Denied(
                f"'{blanked(address)[:200]}' is no https, http or ssh address and no folder, so nothing is "
                "pushed there. Tell the user."
            )
        if any(lies_in(folder, real) for folder in self.closed):
            raise Denied(
                f"The remote, {real}, lies where tools can write, so git would run hooks that they could "
                "have made. Use git in bash for it."
            )
        return real

    async def push(self, plan: Pushing, report: Report) -> tuple[str, ...]:
        """Push what `plan` says; returns notes.

        Raises:
            Conflict: the remote's branch is not where it was last seen.
            Denied, Unavailable, TimedOut: the remote refuses it, cannot be reached, or is slow.
        """
        await report(f"pushing to {plan.shown}")
        async with changing(self.access, plan.path, finished=False) as at:
            place = at.repository.location.common_dir
            with TemporaryDirectory(prefix="mcp-toolserver-push-") as folder:
                name = _make_repository(Path(folder), place, plan)
                await self._run(_script(self.program, folder, name, plan, self.variables), plan)
            tracked = f"refs/remotes/{plan.remote}/{plan.branch}"
            noted = await at.change("update-ref", revisions=[tracked, plan.commit])
        return () if noted.status == 0 else (f"{tracked} could not be set here; git fetch in bash does it",)

    async def _run(self, script: str, plan: Pushing) -> None:
        running = await start_interactive(self.broker, ("/bin/sh", "-c", script))
        try:
            running.stdin.close()
            with anyio.move_on_after(SECONDS):
                printed, ended = await _printed(running), await running.wait()
                if ended.status != 0:
                    raise _failure(printed, running.stderr().decode("utf-8", "replace"), plan)
                return
        finally:
            await running.end()
        raise TimedOut(f"The push to {plan.shown} took longer than {SECONDS:g} s. It may be done in part.")


async def _printed(running: InteractiveProcess) -> str:
    printed = bytearray()
    while data := await running.read():
        printed += data[: _OUTPUT_BYTES - len(printed)]
    return printed.decode("utf-8", "replace")


async def _answer(repository: Repository, subcommand: str, *words: str) -> str:
    """What git prints; empty if it fails."""
    answer = await repository.ask(subcommand, *words[:-1], revisions=[words[-1]])
    return answer.stdout.decode("utf-8", "replace").strip() if answer.status == 0 else ""


def _remote(repository: Repository, remote: str, branch: str) -> tuple[str, str]:
    """The name and the one address of a configured remote."""
    settings = list(parse_config(repository.location.config))
    own = [(key.removeprefix("remote."), value) for key, value in settings if key.startswith("remote.")]
    addresses: dict[str, list[str]] = {}
    # The second takes the place of the first.
    for kind in (".url", ".pushurl"):
        names = {key.removesuffix(kind) for key, _ in own if key.endswith(kind)}
        addresses |= {name: [value for key, value in own if key == f"{name}{kind}"] for name in names}
    name = remote or dict(settings).get(f"branch.{branch}.remote", "origin")
    every = addresses.get(name, [])
    if not every or not re.fullmatch(r"\w[\w.-]*", name):
        known = ", ".join(sorted(addresses)) or "none"
        raise NotFound(f"There is no remote {name!r}. The remotes are: {known}. The user can add one.")
    if len(every) > 1:
        raise InvalidInput(f"The remote {name!r} has {len(every)} addresses. Use git in bash for it.")
    return name, every[0]


async def _commits(repository: Repository, commit: str, base: str) -> tuple[tuple[str, ...], int]:
    """The newest commits after `base`, each with its title, and how many there are; all of them without.

    Raises:
        Conflict: there are none, or `base` is not among the ancestors of `commit`.
    """
    if base and await _answer(repository, "rev-list", "--count", f"{commit}..{base}") != "0":
        raise Conflict(
            "The branch at the remote has commits that this one does not have, and nothing is overwritten. "
            "Fetch and merge first, with git in bash."
        )
    new = f"{base}..{commit}" if base else commit
    count = await _answer(repository, "rev-list", "--count", new)
    if count in ("", "0"):
        raise Conflict("There is nothing to push: the remote has all commits of the branch.")
    listed = await _answer(repository, "log", f"--max-count={SHOWN}", "--format=%h %s", new)
    return tuple(listed.split("\n")), int(count)


def _make_repository(folder: Path, common_dir: str, plan: Pushing) -> str:
    """Make the repository that git pushes from; returns the name of its one remote, which no other
    configuration has."""
    if "\n" in common_dir:
        raise Denied("The path of the repository has a line end. Use git in bash for it.")
    for name in ("objects/info", "refs"):
        (folder / name).mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/none\n", encoding="utf-8")
    (folder / "objects/info/alternates").write_text(f"{common_dir}/objects\n", encoding="utf-8")
    sha256 = "[extensions]\nobjectFormat = sha256\n" if len(plan.commit) == 64 else ""
    name, address = f"push-{token_hex(8)}", plan.address.replace("\\", "\\\\").replace('"', '\\"')
    core = f"[core]\nbare = true\nrepositoryformatversion = {int(bool(sha256))}\n"
    config = f'{core}{sha256}[remote "{name}"]\nurl = "{address}"\n'
    (folder / "config").write_text(config, encoding="utf-8")
    shallow = Path(common_dir, "shallow")
    if shallow.is_file() and not shallow.is_symlink():
        with shallow.open("rb") as file:
            (folder / "shallow").write_bytes(file.read(_MAX_SHALLOW))
    return name


def _script(git: str, folder: str, name: str, plan: Pushing, variables: Mapping[str, str]) -> str:
    exports = (f"export {key}={shlex.quote(value)}" for key, value in {**_VARIABLES, **variables}.items())
    settings = [word for one in _SETTINGS for word in ("-c", one)]
    target = f"refs/heads/{plan.branch}"
    options = ("--porcelain", "--no-verify", "--no-follow-tags", "--no-signed", "--no-recurse-submodules")
    lease = f"--force-with-lease={target}:{plan.base}"
    words = (git, f"--git-dir={folder}", *settings, "push", *options, lease, name, f"{plan.commit}:{target}")
    return "\n".join((*exports, f"cd {shlex.quote(folder)}", f"exec {shlex.join(words)}"))


def _failure(printed: str, complaints: str, plan: Pushing) -> ToolError:
    """An error in our own words: git's message may contain text of another host."""
    refused = _REFUSED.findall(printed)
    if any(word in ("stale info", "fetch first", "non-fast-forward", "already exists") for word in refused):
        return Conflict(
            f"The branch {plan.branch} of {plan.remote} is not where it was last seen from here, so nothing "
            "was pushed. Fetch and merge first, with git in bash."
        )
    if refused:
        why = re.sub(r"[^A-Za-z0-9 ,.-]", "", refused[0])[:100]
        return Denied(f"{plan.shown} refused the push: {why}. Tell the user.")
    if re.search(
        r"could not read|Authentication failed|Permission denied|returned error: 40|Host key", complaints
    ):
        return Denied(
            f"{plan.shown} does not accept the user's credentials, or does not know them. The user can push "
            "once in a terminal to see why."
        )
    return Unavailable(f"git could not push to {plan.shown}. The user can push in a terminal to see why.")
