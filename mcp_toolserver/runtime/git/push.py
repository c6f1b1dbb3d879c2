"""Pushes a branch with the user's own git configuration and credentials, outside the sandbox.

Git runs in a new, empty repository that borrows the objects of the user's one: no hook, setting or program
of that repository counts, only the address of the remote and the commit, which the question to the user
shows. The remote's branch must be where the repository says it was last, so that exactly the commits shown
are pushed, and never anything overwritten.
"""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from urllib.parse import unquote

import anyio

from mcp_toolserver.capabilities.call_scope import Report
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import Conflict, Denied, InvalidInput, NotFound, TimedOut, ToolError, Unavailable
from mcp_toolserver.runtime.git.changing import ChangeAccess, changing
from mcp_toolserver.runtime.git.hardening import parse_config
from mcp_toolserver.runtime.git.repository import Repository, open_repository
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.interactive import start_interactive
from mcp_toolserver.text.file_names import lies_in
from mcp_toolserver.text.git.log import blanked
from mcp_toolserver.text.git.messages import counted

SECONDS = 300.0
_SHOWN = 20
"""Commits that the question shows."""

_FORGED = 71

_ADDRESS = re.compile(r"(?:https?|ssh)://[^-\s]\S*|(?:\w[\w.-]*@)?\w[\w.-]*:(?!//|:)\S+")
"""The second form, `user@host:path`, is one of ssh."""
_REFUSED = re.compile(r"^!\t.*\((.*)\)$", re.MULTILINE)
_UNKNOWN_USER = re.compile(r"could not read|Authentication|Permission denied|returned error: 40|Host key")

_EXPORTS: Mapping[str, str] = {
    "GIT_ALLOW_PROTOCOL": "file:https:http:ssh",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS_REQUIRE": "never",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}
_PLAIN = ("-c", "core.commitGraph=false", "-c", "core.multiPackIndex=false", "-c", "pack.useBitmaps=false")
"""The objects are read, not what the repository has written about them."""
_PUSH = (
    *("-c", "core.hooksPath=/dev/null", "-c", "push.pushOption=", "push", "--porcelain", "--no-verify"),
    *("--no-follow-tags", "--no-signed", "--no-recurse-submodules"),
)


@dataclass(frozen=True, kw_only=True)
class Push:
    """A push that was prepared."""

    path: CanonicalPath
    remote: str
    branch: str
    address: str
    """Perhaps with a password, unlike `text`."""
    commit: str
    base: str
    """Where the remote's branch was last seen; empty for a new one."""
    count: int
    what: str
    text: str
    """What it pushes and where, for the question."""


@dataclass(kw_only=True)
class GitPusher:
    """The push of one call: what `prepare` found first, and the question showed, is what `push` pushes."""

    access: ChangeAccess
    broker: Broker
    program: str
    variables: Mapping[str, str]
    """Where the user's ssh agent is."""
    closed: Sequence[str]
    """Folders that tools and commands may write in, where no remote may lie: its hooks would run."""
    prepared: Push | None = None

    async def prepare(self, path: CanonicalPath, remote: str, branch: str) -> Push:
        """Find out what a push of `branch` in the repository at `path` does; empty names are the current
        branch and its remote.

        Raises:
            NotFound, InvalidInput: there is no such branch or remote, or more than one address.
            Conflict: there is nothing to push, or what was pushed last is no part of the branch.
            Denied: the remote must not be pushed to from here.
        """
        if self.prepared is not None:
            return self.prepared
        async with open_repository(self.access.repositories, path) as repository:
            branch = branch or await _answer(repository, "rev-parse", "--abbrev-ref", "HEAD")
            commit = await _answer(repository, "rev-parse", "--verify", "--quiet", f"refs/heads/{branch}")
            if not commit:
                raise NotFound(f"There is no branch '{branch}' in '{repository.top}'; git_branch lists them.")
            remote, address = _remote(repository, remote, branch)
            address = self._checked(address, repository.location.top)
            tracked = f"refs/remotes/{remote}/{branch}"
            base = await _answer(repository, "rev-parse", "--verify", "--quiet", tracked)
            count, what, commits = await _commits(repository, commit, base)
        text = f"To {remote}: {blanked(address)}\nBranch {branch}, {what}:\n{commits}"
        self.prepared = Push(
            path=path,
            remote=remote,
            branch=branch,
            address=address,
            commit=commit,
            base=base,
            count=count,
            what=what,
            text=text,
        )
        return self.prepared

    def _checked(self, address: str, top: str) -> str:
        """The address as git gets it. Raises: Denied: it is none that may be pushed to."""
        is_plain = address.isprintable() and len(address) <= 2_000 and "::" not in address
        if is_plain and _ADDRESS.fullmatch(address):
            return address
        path = unquote(address.removeprefix("file://")) if address.startswith("file://") else address
        real = os.path.realpath(os.path.join(top, path)) if is_plain and "\0" not in path else ""
        if not os.path.isdir(real) or any(lies_in(folder, real) for folder in self.closed):
            raise Denied(
                f"'{blanked(address)[:200]}' is neither an https, http or ssh address nor a repository "
                "outside the roots. In the roots, tools can write its hooks: use git in bash for that."
            )
        return real

    async def push(self, plan: Push, report: Report) -> str:
        """Push what `plan` says; returns what is left to do, if anything.

        Raises:
            Conflict: the remote's branch is not where it was last seen.
            Denied, Unavailable, TimedOut: the remote refuses it, cannot be reached, or is slow.
        """
        await report(f"pushing to {plan.remote}")
        async with changing(self.access, plan.path, finished=False) as at:
            with TemporaryDirectory(prefix="mcp-toolserver-push-") as folder:
                await self._run(self._script(folder, at.repository.location.common_dir, plan), plan)
            tracked = f"refs/remotes/{plan.remote}/{plan.branch}"
            noted = await at.change("update-ref", revisions=[tracked, plan.commit])
        return "" if noted.status == 0 else f"{tracked} could not be set here; git fetch in bash does it"

    def _script(self, folder: str, common_dir: str, plan: Push) -> str:
        git, target = shlex.join((self.program, *_PLAIN)), f"refs/heads/{plan.branch}"
        lease = f"--force-with-lease={target}:{plan.base}"
        history = f"{plan.base}...{plan.commit}" if plan.base else plan.commit
        expected = f"0\t{plan.count}"
        form = "sha256" if len(plan.commit) == 64 else "sha1"
        return "\n".join(
            (
                "set -e",
                *(
                    f"export {key}={shlex.quote(value)}"
                    for key, value in {**_EXPORTS, **self.variables}.items()
                ),
                f"cd {shlex.quote(folder)}",
                f"{git} init -q --bare --template= --object-format={form} .",
                f"printf '%s\\n' {shlex.quote(f'{common_dir}/objects')} > objects/info/alternates",
                f"cp {shlex.quote(f'{common_dir}/shallow')} . 2>/dev/null || :",
                # Grafts could have said otherwise there.
                f'[ "$({git} rev-list --left-right --count {history})" = "{expected}" ] || exit {_FORGED}',
                f"{git} {shlex.join((*_PUSH, lease, '--', plan.address, f'{plan.commit}:{target}'))}",
            )
        )

    async def _run(self, script: str, plan: Push) -> None:
        running, printed = await start_interactive(self.broker, ("/bin/sh", "-c", script)), b""
        try:
            running.stdin.close()
            with anyio.fail_after(SECONDS):
                while data := await running.read():
                    printed = (printed + data)[: 1 << 16]
                ended = await running.wait()
        except TimeoutError:
            why = f"The push to {plan.remote} took longer than {SECONDS:g} s. It may have been done."
            raise TimedOut(why) from None
        finally:
            await running.end()
        if ended.status == _FORGED:
            raise Conflict("What the repository says of its history, such as grafts, is not what it holds.")
        if ended.status != 0:
            raise _failure(printed.decode("utf-8", "replace"), running.stderr(), plan)


async def _answer(repository: Repository, subcommand: str, *words: str) -> str:
    """What git prints; empty if it fails. The last word is a revision."""
    answer = await repository.ask(subcommand, *words[:-1], revisions=[words[-1]])
    return answer.stdout.decode("utf-8", "replace").strip() if answer.status == 0 else ""


def _remote(repository: Repository, remote: str, branch: str) -> tuple[str, str]:
    """The name and the one address of a configured remote."""
    settings = list(parse_config(repository.location.config))
    name = remote or dict(settings).get(f"branch.{branch}.remote", "origin")
    pushed, fetched = (
        [value for key, value in settings if key == f"remote.{name}.{one}"] for one in ("pushurl", "url")
    )
    addresses = pushed or fetched
    if not addresses or not re.fullmatch(r"\w[\w.-]*", name):
        raise NotFound(f"There is no remote {name!r}; repo_overview lists them. The user can add one.")
    if len(addresses) > 1:
        raise InvalidInput(f"The remote {name!r} has {len(addresses)} addresses. Use git in bash for it.")
    return name, addresses[0]


async def _commits(repository: Repository, commit: str, base: str) -> tuple[int, str, str]:
    """How many commits are new after `base`, or in all without, and the newest with their titles.

    Raises:
        Conflict: there are none, or `base` is not among the ancestors of `commit`.
    """
    if base and await _answer(repository, "rev-list", "--count", f"{commit}..{base}") != "0":
        raise Conflict(
            "The branch at the remote has commits that this one does not have, and nothing is overwritten. "
            "Fetch and merge first, with git in bash."
        )
    new = f"{base}..{commit}" if base else commit
    count = int(await _answer(repository, "rev-list", "--count", new) or 0)
    if not count:
        raise Conflict("There is nothing to push: the remote has all commits of the branch.")
    listed = await _answer(repository, "log", f"--max-count={_SHOWN}", "--format=%h %s", new)
    more = f"\nand {count - _SHOWN} older ones" if count > _SHOWN else ""
    start = f"after {base[:12]}" if base else "on a branch that is new there"
    return count, f"{counted(count, 'commit')} up to {commit}, {start}", listed + more


def _failure(printed: str, complaints: bytes, plan: Push) -> ToolError:
    """An error in our own words: git's message may contain text of another host."""
    refused = next(iter(_REFUSED.findall(printed)), "")
    if refused in ("stale info", "fetch first", "non-fast-forward"):
        return Conflict(
            f"The branch {plan.branch} of {plan.remote} is not where it was last seen from here, so nothing "
            "was pushed. Fetch and merge first, with git in bash."
        )
    if refused:
        why = re.sub(r"[^A-Za-z0-9 ,.-]", "", refused)[:100]
        return Denied(f"{plan.remote} refused the push: {why}. Tell the user.")
    if _UNKNOWN_USER.search(complaints.decode("utf-8", "replace")):
        return Denied(
            f"{plan.remote} does not accept the credentials of the user, who can push in a terminal."
        )
    return Unavailable(f"git could not push to {plan.remote}. The user can push in a terminal to see why.")
