"""`approvals`: shows the calls that wait for a human, answers them, and forgets answers."""

import json
import sys
import time
from datetime import UTC, datetime
from functools import partial

import anyio
from anyio import to_thread

from mcp_toolserver.command_line import Invocation
from mcp_toolserver.commands.token import expiry
from mcp_toolserver.errors import SettingsError, ToolError
from mcp_toolserver.policy.rules import parse
from mcp_toolserver.stores.approvals import APPROVALS, POLL_SECONDS, Approval, Approvals, Status
from mcp_toolserver.stores.database import Database
from mcp_toolserver.text.lines.escape_invisible import visible

_ANSWERS: dict[str, Status] = {"y": "approved", "s": "session", "n": "denied"}


def approvals(state: str, invocation: Invocation) -> int:
    """Run the command; exit status 1 if there is no such request, or another answer was first.

    Raises:
        SettingsError: the arguments do not fit together, or the rule is wrong.
    """
    what, which = invocation.what, invocation.approval
    if what in ("approve", "deny", "revoke") and not which:
        raise SettingsError(f"approvals {what}: give an ID; `mcp-toolserver approvals list` shows them")
    if what != "approve" and (invocation.for_session or invocation.pattern):
        raise SettingsError("--session and --pattern go with `approvals approve`")
    store = Approvals(database=Database(state, (), name=APPROVALS))
    try:
        return anyio.run(partial(_run, store, invocation))
    except (ToolError, OSError) as error:
        print(f"mcp-toolserver approvals: {error}", file=sys.stderr)
        return 1
    finally:
        store.database.close()


async def _run(store: Approvals, invocation: Invocation) -> int:
    which, done = invocation.approval, ""
    match invocation.what:
        case "approve" if invocation.pattern:
            done = await _approve_pattern(store, invocation)
        case "approve":
            await store.settle(which, "session" if invocation.for_session else "approved")
            done = f"{which} is approved {'for its session' if invocation.for_session else 'once'}."
        case "deny":
            await store.settle(which, "denied")
            done = f"{which} is denied."
        case "revoke":
            await store.revoke(which)
            done = f"{which} is revoked."
        case "watch":
            await _watch(store)
            return 0
        case _:
            found = [one for one in await store.all() if which in ("", one.id)]
            print("\n".join(map(_whole if which else _row, found)) or "Nothing waits or is remembered.")
            return int(bool(which and not found))
    print(done)
    return 0


async def _approve_pattern(store: Approvals, invocation: Invocation) -> str:
    which, pattern = invocation.approval, invocation.pattern
    end = expiry(invocation.until, datetime.now(UTC), "--until")
    # The other commands do without the tools.
    from mcp_toolserver.app.compose import registry
    from mcp_toolserver.app.policy import rule_context

    parse(pattern, rule_context(registry(invocation.settings)))
    await store.settle(which, "approved", pattern, end.timestamp())
    return f"{which} is approved, and {pattern} in its workspace until {end:%Y-%m-%d %H:%M} UTC."


async def _watch(store: Approvals) -> None:
    """Show each request that waits, and ask for its answer, until the end of input."""
    shown = {one.id for one in await store.all() if one.status != "waiting"}
    print("Watching for calls that need your approval; Ctrl-C ends it.", flush=True)
    with store.watched():
        while True:
            for one in await store.all():
                if one.status != "waiting" or one.id in shown:
                    continue
                shown.add(one.id)
                print(f"{_whole(one)}\n[y] once, [s] this session, [n] no, Enter leaves it waiting: ", end="")
                sys.stdout.flush()
                line = await to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
                if not line:
                    return
                if status := _ANSWERS.get(line.strip().lower()):
                    try:
                        await store.settle(one.id, status)
                        print(f"{one.id}: {status}")
                    except ToolError as error:
                        print(error)
            await anyio.sleep(POLL_SECONDS)


def _row(one: Approval) -> str:
    minutes = max(0, round((one.expires - time.time()) / 60))
    what = one.pattern or one.about["question"].split("\n", 2)[1]
    return visible(f"{one.id}  {one.status:8}  {minutes:4} min  {one.about['tool']}  {what[:100]}")


def _whole(one: Approval) -> str:
    client, roots = json.dumps(one.about["client"]), json.dumps(one.about["workspace"])
    return f"{one.id}: {one.status}; client {client}; roots {roots}\n{one.pattern or one.about['question']}"
