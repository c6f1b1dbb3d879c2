"""The tools of the desktop: on a real display where there is one to be had, and with programs that write down
what they were given.
"""

import json
import subprocess
from collections.abc import Generator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_toolserver.capabilities.permissions import DESKTOP, Capability, HostFacts, Permission
from mcp_toolserver.errors import RegistrationError
from mcp_toolserver.invocation import load
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.runtime.desktop.desktop import MAX_PICTURES
from mcp_toolserver.runtime.desktop.executables import DesktopExecutables, find_desktop
from mcp_toolserver.text.desktop import scripts
from mcp_toolserver.text.desktop.programs import PROGRAMS, script
from mcp_toolserver.text.desktop.windows import visible
from mcp_toolserver.text.documents.file_type import pixels
from tests.desktop import desktop
from tests.desktop.desktop import (
    X,
    desktop_server,
    display,
    given,
    has,
    only,
    osascript,
    refusal,
    stand_ins,
    state_of,
)
from tests.support.processes import PATIENCE, call
from tests.support.workbench import Person
from tests.support.workshop import granted, names

WAYLAND = {"WAYLAND_DISPLAY": "wayland-0"}
TOOLS = {"open", "open_app", "notify", "say", "read_clipboard", "write_clipboard", "take_screenshot"}
HOSTILE = "-x'; touch evil; \" $(touch evil) `touch evil` \\ \U0001f600\nend"

CLIPBOARDS = [name for name in ("xclip",) if has("Xvfb", name)]
"""What is installed is tried for real; the rest of the tests need nothing."""
CAMERAS = [name for name in ("scrot", "import") if has("Xvfb", name)]

MOST_OPEN = "mcp_toolserver.runtime.desktop.desktop._MOST_OPEN"
"""Programs that stay."""


@pytest.fixture(scope="module")
def screen() -> Generator[dict[str, str]]:
    with display(320, 200) as name:
        yield {"DISPLAY": name}


@pytest.mark.parametrize("name", CLIPBOARDS)
async def test_what_is_copied_can_be_pasted(name: str, tmp_path: Path, screen: dict[str, str]) -> None:
    async with desktop_server(tmp_path, path=only(tmp_path, name), environ=screen) as server:
        for text in ("one", HOSTILE, "ä" * 60_000):
            result = await call(server, "write_clipboard", text=text)
            assert (result.error, result.text) == (None, f"{len(text)} characters are on the clipboard.")
            found = await call(server, "read_clipboard")
            assert found.data is not None
            assert found.data["clipboard_text"] == text[:25_000]
            assert found.truncated == (len(text) > 25_000)


@pytest.mark.parametrize("name", CAMERAS)
async def test_the_screen_is_seen(name: str, tmp_path: Path, screen: dict[str, str]) -> None:
    async with desktop_server(tmp_path, path=only(tmp_path, name), environ=screen) as server:
        result = await call(server, "take_screenshot")
    assert result.text.startswith("The screen: 320 x 200 pixels."), result.text
    assert [image.mime_type for image in result.images] == ["image/png"]
    assert result.images[0].data.startswith(b"\x89PNG")


LINUX = {
    "xdg-open": "",
    "gtk-launch": "",
    "notify-send": "",
    "spd-say": "",
    "xclip": 'if [ "$1" = -quiet ]; then cat > {folder}/kept; exec sleep 1000; else cat {folder}/kept; fi',
    "scrot": "cat {folder}/picture",
}
ALLOWED = '["", []]'
UTF_8 = '[ "$LC_ALL" = en_US.UTF-8 ] || exit 9; '
MAC = {
    "open": "env > {folder}/kept",
    "osascript": f"cat > {{folder}}/kept; echo '{ALLOWED}'",
    "say": "",
    "pbcopy": f"{UTF_8}cat > {{folder}}/kept",
    "pbpaste": f"{UTF_8}cat {{folder}}/kept",
    "screencapture": 'cp {folder}/picture "${@: -1}"',
    "sips": "",
}


def on_linux(folder: Path, **scripts: str) -> AbstractAsyncContextManager[Dispatcher]:
    """A server with what LINUX names, or with these scripts in their place; a `_` is a hyphen."""
    return desktop.on_linux(
        folder, LINUX | {name.replace("_", "-"): script for name, script in scripts.items()}
    )


def on_mac(folder: Path, **scripts: str) -> AbstractAsyncContextManager[Dispatcher]:
    return desktop.on_mac(folder, MAC | scripts)


Calls = tuple[tuple[Any, ...], ...]
"""Tools, their arguments, and the words of the helpers."""
MESSAGE = {"title": HOSTILE, "message": "-m"}
LINUX_CALLS: Calls = (
    ("open", {"target": "https://A.example/x"}, "xdg-open", "https://a.example/x"),
    ("open", {"target": "mailto:a@b.example"}, "xdg-open", "mailto:a@b.example"),
    ("open_app", {"app": "org.a.B"}, "gtk-launch", "org.a.B"),
    ("open_app", {"app": "b", "target": "https://A.example/x"}, "gtk-launch", "b", "https://a.example/x"),
    ("open_app", {"app": "b", "target": ""}, "gtk-launch", "b"),
    ("notify", MESSAGE, "notify-send", "--app-name=mcp-toolserver", "--", HOSTILE, "-m"),
    ("notify", {"title": "a"}, "notify-send", "--app-name=mcp-toolserver", "--", "a", ""),
    ("say", {"text": HOSTILE}, "spd-say", "--wait", "--", HOSTILE),
    ("say", {"text": "a", "voice": "Anna"}, "spd-say", "--wait", "--synthesis-voice", "Anna", "--", "a"),
    ("take_screenshot", {}, "scrot", "--silent", "-"),
    ("take_screenshot", {"mode": "window"}, "scrot", "--silent", "--focused", "-"),
)
MAC_CALLS: Calls = (
    ("open", {"target": "https://a.example/"}, "open", "https://a.example/"),
    ("open_app", {"app": "My App"}, "open", "-a", "My App"),
    ("open_app", {"app": "A B", "target": "mailto:a@b.example"}, "open", "-a", "A B", "mailto:a@b.example"),
    ("say", {"text": "-a", "voice": "Anna"}, "say", "-v", "Anna", "--", "-a"),
    ("say", {"text": HOSTILE}, "say", "--", HOSTILE),
    ("notify", MESSAGE, *script(scripts.NOTICE)(["osascript"], ())[3:]),
)


@pytest.mark.parametrize(
    ("place", "calls"), [(on_linux, LINUX_CALLS), (on_mac, MAC_CALLS)], ids=["linux", "macos"]
)
async def test_a_helper_gets_each_text_as_one_argument(place: Any, calls: Calls, tmp_path: Path) -> None:
    async with place(tmp_path) as server:
        assert names(server) >= TOOLS
        for tool, arguments, *expected in calls:
            result = await call(server, tool, **arguments)
            assert result.error is None, result.text
            assert given(tmp_path) == expected
        kept = tmp_path / "kept"
        if place is on_mac:
            # A notification is no argument.
            assert json.loads(kept.read_text(encoding="utf-8")) == MESSAGE
        assert (await call(server, "write_clipboard", text=HOSTILE)).error is None
        assert kept.read_text(encoding="utf-8") == HOSTILE
    assert not list(tmp_path.rglob("evil"))


async def test_the_script_of_macos_shows_the_notification(tmp_path: Path) -> None:
    async with on_mac(tmp_path, osascript=osascript(tmp_path, "macos_screen.js", {})) as server:
        assert (await call(server, "notify", title=HOSTILE, message="ä")).error is None
    assert state_of(tmp_path)["shown"] == ["ä", {"withTitle": HOSTILE}]


async def test_on_macos_an_app_is_opened_by_the_system_and_gets_no_folder_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MOST_OPEN, 3)
    async with on_mac(tmp_path) as server:
        (tmp_path / "root/-a file").write_text("x", encoding="utf-8")
        for _ in range(4):
            # More than programs that stay.
            assert (await call(server, "open", target="-a file")).text == "Opened -a file."
        assert given(tmp_path) == ["open", str(tmp_path / "root/-a file")]
        variables = (tmp_path / "kept").read_text(encoding="utf-8").splitlines()
        own = {"PWD", "SHLVL", "_"}
        assert {one.partition("=")[0] for one in variables} - own <= {"HOME", "USER", "LOGNAME", "PATH"}
        started = await call(server, "open_app", app="My App", target="-a file")
        assert started.text == "Opened -a file with My App."
        assert given(tmp_path) == ["open", "-a", "My App", str(tmp_path / "root/-a file")]


async def test_on_macos_a_text_that_would_be_stored_as_another_type_is_refused(tmp_path: Path) -> None:
    async with on_mac(tmp_path) as server:
        for text in ("{\\rtf1 a}", "%!PS-Adobe-3.0 EPSF-3.0"):
            assert (await call(server, "write_clipboard", text=text)).error == "invalid_input"
        assert not (tmp_path / "kept").exists()
        assert (await call(server, "write_clipboard", text=" {\\rtf1 a}")).error is None
        large = "ä\U0001f600" * 50_000
        assert (await call(server, "write_clipboard", text=large)).error is None
        found = await call(server, "read_clipboard")
        text, _, _ = found.text.rpartition("\n[")
        assert large.startswith(text)
        assert 39_990 < len(text.encode()) <= 40_000
        # An empty clipboard is said to be so.
        stand_ins(tmp_path, {"pbpaste": ""})
        assert (await call(server, "read_clipboard")).error == "not_found"
        await refusal(server, "unavailable", "does not contain the text", "write_clipboard", text="a")


async def test_a_program_that_never_answers_or_is_one_too_many_ends_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MOST_OPEN, 3)
    never, asks = "exec sleep 1000", "took too long. macOS may be asking the user"
    opens: dict[str, Any] = {"target": "https://a.example/"}
    mac = MAC | {"pbpaste": never, "osascript": never}
    linux = LINUX | {"xdg-open": "", "xclip": f'[ "$1" != -quiet ] || {never}', "scrot": never}
    rows: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("read_clipboard", {}, f"pbpaste {asks}"),
        ("write_clipboard", {"text": "a"}, f"pbpaste {asks}"),
        ("list_notes", {}, "within 100 seconds. macOS may be asking the user"),
    )
    async with desktop.on_mac(tmp_path, mac, seconds=0.3) as server:
        for tool, arguments, words in rows:
            await refusal(server, "timed_out", words, tool, **arguments)
    async with desktop.on_linux(tmp_path, linux, seconds=0.3) as server:
        await refusal(server, "timed_out", "xclip took too long", "write_clipboard", text="a")
        await refusal(server, "timed_out", "scrot took too long", "take_screenshot")
        stand_ins(tmp_path, {"xdg-open": never})
        assert (await call(server, "open", **opens)).error is None
        stand_ins(tmp_path, {"xdg-open": ""})
        for _ in range(2):
            assert (await call(server, "open", **opens)).error is None
        await refusal(server, "unavailable", "3 opened programs", "open", **opens)


# Messages: https://github.com/renpy/renpy/issues/5556 (say), https://github.com/warpdotdev/warp/issues/4188
# (open), https://github.com/anthropics/claude-code/issues/95398 (screencapture).
KNOWN: tuple[tuple[str, dict[str, Any], str, str, str], ...] = (
    ("say", {"text": "a", "voice": "x"}, "Voice `x' not found.", "invalid_input", "Omit `voice`"),
    ("open_app", {"app": "No"}, "Unable to find application named 'No'", "not_found", "no app with this"),
    (
        *("open", {"target": "mailto:a@b.example"}),
        "No application knows how to open URL mailto:a@b.example (Error Domain=secret Code=-10814)",
        *("not_found", "opens this"),
    ),
    (
        *("open", {"target": "https://a.example/"}),
        "LSOpenURLsWithRole() failed for the application secret with error -10810.",
        *("unavailable", "could not start the app"),
    ),
    ("take_screenshot", {}, "could not create image from display", "unavailable", "Audio Recording"),
    ("say", {"text": "a"}, "secret", "unavailable", "say failed"),
)


async def test_on_macos_a_known_message_becomes_advice(tmp_path: Path) -> None:
    says = "cat {folder}/printed >&2; exit 1"
    async with on_mac(tmp_path, say=says, open=says, screencapture=says) as server:
        for tool, arguments, printed, error, words in KNOWN:
            (tmp_path / "printed").write_text(printed, encoding="utf-8")
            assert "secret" not in await refusal(server, error, words, tool, **arguments)


async def test_a_file_of_the_workspace_is_opened_and_a_program_is_started_by_no_path(tmp_path: Path) -> None:
    stays = "(sleep 1000; touch {folder}/later) &\nexit 0"
    async with on_linux(tmp_path, xdg_open=stays, gtk_launch=stays) as server:
        file = tmp_path / "root/-a file"
        file.write_text("x", encoding="utf-8")
        assert (await call(server, "open", target="-a file")).text == "Opened -a file."
        assert given(tmp_path) == ["xdg-open", str(file)]
        started = await call(server, "open_app", app="a.b", target="-a file")
        assert started.text == "Opened -a file with a.b."
        assert given(tmp_path) == ["gtk-launch", "a.b", str(file)]
        (tmp_path / "argv").unlink()
        attempts: tuple[tuple[str, dict[str, Any]], ...] = (("open", {}), ("open_app", {"app": "a.b"}))
        for tool, arguments in attempts:
            for target, error in (
                ("none", "not_found"),
                ("/etc/passwd", "denied"),
                ("javascript:alert(1)", "invalid_input"),
                ("file:///etc/passwd", "invalid_input"),
                ("ssh://a.example", "invalid_input"),
            ):
                assert (await call(server, tool, target=target, **arguments)).error == error, target
        assert (await call(server, "open", target="")).error == "invalid_input"
        for app in ("", "-a", "--help", "/bin/sh", "../x", "a/b", "a\nb", " a"):
            assert (await call(server, "open_app", app=app)).error == "invalid_input", app
    assert not (tmp_path / "argv").exists()


async def test_a_helper_that_fails_is_named_and_a_nul_character_is_given_to_none(tmp_path: Path) -> None:
    attempts: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("xdg-open", "open", {"target": "https://a.example/"}),
        ("notify-send", "notify", {"title": "a", "message": "b"}),
        ("spd-say", "say", {"text": "a"}),
        ("xclip", "write_clipboard", {"text": "a"}),
        # More than a pipe holds, so that it ends before all is written.
        ("xclip", "write_clipboard", {"text": "a" * 99_000}),
        ("scrot", "take_screenshot", {}),
    )
    async with on_linux(tmp_path, **dict.fromkeys(LINUX, "exit 3")) as server:
        for helper, tool, arguments in attempts:
            await refusal(server, "unavailable", helper, tool, **arguments)
        assert (await call(server, "read_clipboard")).error == "not_found"
        (tmp_path / "argv").unlink()
        for tool, arguments in (
            ("write_clipboard", {"text": "a\0b"}),
            ("notify", {"title": "a\0b", "message": "c"}),
            ("notify", {"title": "a", "message": "b\0c"}),
            ("say", {"text": "a\0b"}),
        ):
            await refusal(server, "invalid_input", "NUL", tool, **arguments)
    assert not (tmp_path / "argv").exists()


async def test_what_is_no_picture_is_not_shown(tmp_path: Path) -> None:
    async with on_linux(tmp_path, scrot="echo no") as server:
        assert (await call(server, "take_screenshot")).error == "unavailable"
        stand_ins(tmp_path, {"scrot": "head -c 6000000 /dev/zero"})
        assert "larger than 5 MiB" in (await call(server, "take_screenshot")).text
    async with desktop.on_linux(tmp_path, {"grim": ""}, environ=WAYLAND) as server:
        # It cannot tell windows.
        await refusal(server, "unavailable", "grim", "take_screenshot", mode="window")


async def test_a_cancelled_call_leaves_no_holder(tmp_path: Path) -> None:
    """Neither while the text is written nor while it is not taken."""
    hold = "echo $$ > {folder}/holder; exec sleep 1000"
    script = f'if [ "$1" = -quiet ]; then {hold}; fi; touch {{folder}}/pasted'
    holder = tmp_path / "holder"
    async with on_linux(tmp_path, xclip=script) as server:
        for text, signs in (("x" * 99_000, [holder]), ("x", [holder, tmp_path / "pasted"])):
            with anyio.fail_after(PATIENCE):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(server.call, "write_clipboard", {"text": text}, Person())
                    while not all(sign.exists() and (sign != holder or sign.read_bytes()) for sign in signs):
                        await anyio.sleep(0.01)
                    tasks.cancel_scope.cancel()
            assert not Path(f"/proc/{holder.read_text(encoding='utf-8').strip()}").exists()
            holder.unlink()


async def test_what_is_not_offered_is_refused_with_the_reason(tmp_path: Path) -> None:
    private = {"read_clipboard", "take_screenshot"}
    nowhere = {"path": [str(tmp_path)], "environ": X}
    there = {"path": stand_ins(tmp_path, LINUX), "environ": X}
    rows: tuple[tuple[dict[str, Any], set[str], str, str, str], ...] = (
        ({**there, "private": False}, TOOLS - private, "read_clipboard", "unavailable", "--desktop-private"),
        ({**there, "mode": Permission.WORKSPACE_WRITE}, set(), "say", "denied", "danger-full-access"),
        (nowhere, set(), "read_clipboard", "unavailable", "no xclip was found on the PATH"),
        (nowhere, set(), "say", "unavailable", "no spd-say or espeak-ng or espeak"),
        ({**there, "environ": {}}, {"say"}, "open", "unavailable", "neither DISPLAY nor WAYLAND_DISPLAY"),
    )
    arguments: dict[str, Any] = {"say": {"text": "a"}, "open": {"target": "x"}}
    for options, offered, tool, error, words in rows:
        async with desktop_server(tmp_path, **options) as server:
            assert names(server) & TOOLS == offered
            await refusal(server, error, words, tool, **arguments.get(tool, {}))
    async with on_linux(tmp_path) as server:
        made = granted(server, Capability.DESKTOP_SAY).desktop
        with pytest.raises(RegistrationError, match="clipboard_read"):
            await made.run(Capability.CLIPBOARD_READ)
    assert load(["--root", str(tmp_path), "--desktop-private"], {}).settings.desktop_private
    assert not load(["--root", str(tmp_path)], {}).settings.desktop_private


def test_the_display_and_the_platform_decide_which_program_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = stand_ins(tmp_path, dict.fromkeys(("wl-copy", "wl-paste", "xclip", "grim", "import"), ""))
    for environ, copier, camera in (
        (X, "xclip", "import"),
        (WAYLAND, "wl-copy", "grim"),
        ({**X, **WAYLAND}, "wl-copy", "grim"),
    ):
        found = find_desktop(place, [], environ, "linux").programs
        assert found[Capability.CLIPBOARD_WRITE].endswith(f"/{copier}")
        assert found[Capability.SCREEN].endswith(f"/{camera}")
    assert find_desktop(place, [str(tmp_path)], X, "linux").programs == {}
    place = stand_ins(tmp_path, MAC)
    monkeypatch.setattr("sys.platform", "darwin")
    assert find_desktop(place, [], {}).programs[Capability.SCREEN].endswith("/screencapture")
    assert find_desktop(place, [], {}, "win32").programs == {}
    Path(place[0], "osascript").unlink()
    macos = find_desktop(place, [], {})
    assert {Capability.SCREEN, Capability.WINDOWS, Capability.NOTES_READ}.isdisjoint(macos.programs)
    assert "no osascript was found" in macos.missing["screen"]
    facts = HostFacts(
        desktop_private=True, starts_programs=True, missing_programs=DesktopExecutables().missing
    )
    assert {need for need in DESKTOP if need.unavailable(facts)} == set(DESKTOP)
    assert all(need.permission is Permission.DANGER_FULL_ACCESS for need in DESKTOP)


async def test_the_camera_of_macos_writes_to_a_file_of_its_own_that_does_not_stay(tmp_path: Path) -> None:
    async with on_mac(tmp_path) as server:
        result = await call(server, "take_screenshot")
        assert result.text.startswith("The screen: 2 x 3 pixels."), result.text
        *options, file = given(tmp_path)
        assert options == ["screencapture", "-x", "-t", "png"]
        assert file.endswith("/picture.png")
        assert not Path(file).parent.exists()
        # A large picture is scaled.
        large = f'{MAC["screencapture"]}; head -c 6000000 /dev/zero >> "${{@: -1}}"'
        for scale, words in (
            ('cp {folder}/picture "$3"; echo "$3"', "2 x 3 pixels"),
            ("exit 1", "larger than 5 MiB"),
        ):
            stand_ins(tmp_path, {"screencapture": large, "sips": scale})
            assert words in (await call(server, "take_screenshot")).text
            assert given(tmp_path)[:-1] == ["sips", "-Z", "2000"]


TOOL = "take_window_screenshots"
NAMERS = ("xprop", "xwininfo")
WINDOW_CAMERAS = [name for name in ("scrot", "import") if has("Xvfb", "xmessage", *NAMERS, name)]
HOSTILE_TITLE = 'a "b"\n  Absolute upper-left X:  9\n  Map State: IsUnMapped'


@contextmanager
def window(screen: dict[str, str], title: str, geometry: str) -> Generator[None]:
    argv = ["xmessage", "-title", title, "-geometry", geometry, "text"]
    with subprocess.Popen(argv, env=screen, stderr=subprocess.DEVNULL) as running:
        try:
            yield
        finally:
            running.kill()


async def seen(server: Dispatcher, count: int) -> Result:
    """What the tool answers when so many windows have come."""
    with anyio.fail_after(30):
        while len((result := await call(server, TOOL)).images) != count:
            await anyio.sleep(0.05)
    return result


@pytest.mark.parametrize("name", WINDOW_CAMERAS)
async def test_each_window_on_the_screen_is_seen_with_its_title(
    name: str, tmp_path: Path, screen: dict[str, str]
) -> None:
    path = only(tmp_path, name, *NAMERS)
    async with desktop_server(tmp_path, path=path, environ=screen) as server:
        with window(screen, "plain", "60x50+10+100"), window(screen, HOSTILE_TITLE, "100x40+150+20"):
            result = await seen(server, 2)
        assert (result.error, result.truncated) == (None, False)
        first, second = sorted(result.text.splitlines()[:2], key=lambda line: line[2:])
        assert first[2:] == f" {' '.join(HOSTILE_TITLE.split())}: 100 x 40 pixels"
        assert second[2:] == " plain: 60 x 50 pixels"
        assert {pixels(image.data, "image/png") for image in result.images} == {(60, 50), (100, 40)}
        assert (await seen(server, 0)).text == "There is no window on the screen."


ROOT = "the root window"
STATS = """
xwininfo: Window id: {id} {title}

  Absolute upper-left X:  {x}
  Absolute upper-left Y:  {y}
  Relative upper-left X:  0
  Relative upper-left Y:  0
  Width: {width}
  Height: {height}
  Depth: 24
  Visual Class: TrueColor
  Class: {kind}
  Colormap: 0x20 (installed)
  Map State: {state}
  Override Redirect State: no
  Corners:  +0+0  -0+0  -0-0  +0-0
"""


def stats(id_: str = "0x1", title: str = '"w"', **more: object) -> str:
    usual = {"x": 0, "y": 0, "width": 20, "height": 10, "kind": "InputOutput", "state": "IsViewable"}
    return STATS.format(id=id_, title=title, **{**usual, **more})


SHOWS = "cat {folder}/picture"


def screen_of(
    folder: Path, windows: Sequence[str], camera: str = SHOWS, managed: bool = True
) -> dict[str, str]:
    """Stand-ins for a screen of 100 x 100 with windows that xwininfo describes so."""
    for at, text in enumerate(windows, 1):
        (folder / f"0x{at:x}").write_text(text, encoding="utf-8")
    (folder / "-root").write_text(stats("0x0", f"({ROOT})", width=100, height=100), encoding="utf-8")
    ids = ", ".join(f"0x{at:x}" for at, _ in enumerate(windows, 1))
    reply = f"_NET_CLIENT_LIST(WINDOW): window id # {ids}" if managed else "_NET_CLIENT_LIST:  not found."
    return {"xprop": f"echo '{reply}'", "xwininfo": 'cat "{folder}/${@: -1}"', "import": camera}


async def test_what_is_not_on_the_screen_is_no_window_of_it(tmp_path: Path) -> None:
    windows = [
        stats("0x1", '"shown"'),
        stats("0x2", '"iconified"', state="IsUnMapped"),
        stats("0x3", '"elsewhere"', x=100),
        stats("0x4", '"above"', y=-10),
        stats("0x5", '"invisible"', kind="InputOnly"),
        "no window",
    ]
    scripts = screen_of(tmp_path, windows)
    (tmp_path / "0x6").unlink()
    async with desktop.on_linux(tmp_path, scripts) as server:
        result = await call(server, TOOL)
    assert result.text.splitlines()[0] == "1. shown: 2 x 3 pixels"
    assert len(result.images) == 1


async def test_as_many_windows_are_shown_as_ten_and_their_pictures_have_a_size(tmp_path: Path) -> None:
    many = [stats(f"0x{at}", "(has no name)") for at in range(11)]
    half = f"{SHOWS}; head -c {MAX_PICTURES // 2} /dev/zero"
    async with desktop.on_linux(tmp_path, screen_of(tmp_path, many)) as server:
        for windows, camera, count, rest in ((many, SHOWS, 10, 1), (many[:3], half, 1, 2)):
            stand_ins(tmp_path, screen_of(tmp_path, windows, camera))
            result = await call(server, TOOL)
            assert (len(result.images), result.truncated) == (count, True)
            assert f"{rest} more windows are not shown" in result.text
            assert result.text.startswith("1. without a title: ")


async def test_a_screen_that_cannot_be_seen_or_understood_is_an_error(tmp_path: Path) -> None:
    async with desktop.on_linux(tmp_path, screen_of(tmp_path, [stats()])) as server:
        for camera in ("exit 1", "echo no"):
            stand_ins(tmp_path, {"import": camera})
            assert (await call(server, TOOL)).error == "unavailable"
        for script in ("echo x", "cat /dev/zero"):
            stand_ins(tmp_path, {**screen_of(tmp_path, [], managed=False), "xwininfo": script})
            await refusal(server, "unavailable", "xwininfo", TOOL)
        stand_ins(tmp_path, screen_of(tmp_path, []))
        assert (await call(server, TOOL)).text == "There is no window on the screen."


WINDOWS = [
    {"kCGWindowNumber": 7, "kCGWindowLayer": 0, "kCGWindowOwnerName": "Mail", "kCGWindowName": "Inbox"},
    {"kCGWindowNumber": 9, "kCGWindowLayer": 25, "kCGWindowOwnerName": "Dock"},
    {"kCGWindowNumber": 8, "kCGWindowLayer": 0, "kCGWindowOwnerName": "Maps"},
]
UNTITLED = [
    {name: value for name, value in window.items() if name != "kCGWindowName"} for window in WINDOWS
] + [
    {"kCGWindowNumber": 1, "kCGWindowLayer": 24, "kCGWindowOwnerName": "Window Server", "kCGWindowName": "M"}
]
ON_CONSOLE = {"session": {"kCGSSessionOnConsoleKey": True}, "windows": WINDOWS, "allowed": True}

UNSEEN: tuple[tuple[dict[str, object], str], ...] = (
    ({"session": None}, "over SSH"),
    ({"windows": None}, "over SSH"),
    ({"session": {"CGSSessionScreenIsLocked": 1}}, "unlock"),
    ({"allowed": False, "windows": UNTITLED}, "Recording"),
    ({"allowed": False, "windows": []}, "Recording"),
)


async def test_on_macos_each_window_is_seen_by_its_number_and_what_cannot_be_seen_is_said(
    tmp_path: Path,
) -> None:
    def shows(**state: object) -> str:
        return osascript(tmp_path, "macos_screen.js", {**ON_CONSOLE, **state})

    async with desktop.on_mac(tmp_path, {**MAC, "osascript": shows()}) as server:
        result = await call(server, TOOL)
        # Not what floats above them.
        assert result.text.splitlines()[:2] == ["1. Mail: Inbox: 2 x 3 pixels", "2. Maps: 2 x 3 pixels"]
        assert given(tmp_path)[:-1] == ["screencapture", "-x", "-t", "png", "-o", "-l8"]
        front = await call(server, "take_screenshot", mode="window")
        assert front.text.startswith("The window: 2 x 3 pixels.")
        assert given(tmp_path)[:-1] == ["screencapture", "-x", "-t", "png", "-o", "-l7"]
        assert "requested" not in state_of(tmp_path)
        # A title of another app proves the permission.
        shows(allowed=False)
        assert (await call(server, "take_screenshot")).error is None
        assert "requested" not in state_of(tmp_path)
        shows(windows=[])
        await refusal(server, "unavailable", "no window", "take_screenshot", mode="window")
        assert (await call(server, TOOL)).text == "There is no window on the screen."
        for number, (state, words) in enumerate(UNSEEN):
            shows(**state)
            await refusal(server, "unavailable", words, ("take_screenshot", TOOL)[number % 2])
            # No picture is taken.
            assert given(tmp_path)[0] == "osascript"
            assert state_of(tmp_path).get("requested", False) == ("Recording" in words)
        shows()
        stand_ins(tmp_path, {"screencapture": "echo 'could not create image from window' >&2; exit 1"})
        await refusal(server, "unavailable", "Screen & System Audio Recording", TOOL)
        for said in ('["", [["x", ""]]]', "[1]", "no"):
            stand_ins(tmp_path, {"osascript": f"echo '{said}'"})
            await refusal(server, "unavailable", "osascript", TOOL)


def test_a_title_cannot_pass_for_the_rest_and_a_window_is_one_argument() -> None:
    imitation = stats("0x2", '"x"', width=99, state="IsUnMapped")
    for screen, area in (((0, 0, 99, 99), (0, 0, 15, 10)), ((0, 0, 10, 5), (0, 0, 10, 5))):
        found = visible("0x1", stats("0x1", f'"{imitation}"', x=-5), screen)
        assert found is not None
        assert found.area == area
    rows = {row.name: row for row in PROGRAMS if row.need is Capability.WINDOWS}
    scrot = ("/b/scrot", "--silent", "--autoselect", "1,2,3,4", "-")
    for expected in (scrot, ("/b/import", "-silent", "-window", "0x1", "png:-")):
        row = rows[expected[0].removeprefix("/b/")]
        assert row.argv(expected[:1], ("0x1", "1,2,3,4")) == expected
