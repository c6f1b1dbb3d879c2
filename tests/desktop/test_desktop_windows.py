"""Pictures of windows: on a real display where there is one to be had, and with stand-ins for programs."""

import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.runtime.desktop.desktop import MAX_PICTURES
from mcp_toolserver.text.desktop.programs import PROGRAMS
from mcp_toolserver.text.desktop.windows import child_ids, managed_ids, visible
from mcp_toolserver.text.documents.file_type import pixels
from tests.desktop.desktop import (
    X,
    desktop_server,
    display,
    given,
    has,
    on_linux,
    on_mac,
    only,
    osascript,
    refusal,
    stand_ins,
    state_of,
)
from tests.support.processes import call
from tests.support.workshop import names

TOOL = "take_window_screenshots"
NAMERS = ("xprop", "xwininfo")
CAMERAS = [name for name in ("scrot", "import") if has("Xvfb", "xmessage", *NAMERS, name)]
HOSTILE = 'a "b"\n  Absolute upper-left X:  9\n  Map State: IsUnMapped'


@pytest.fixture(scope="module")
def screen() -> Generator[dict[str, str]]:
    with display(320, 200) as name:
        yield {"DISPLAY": name}


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


@pytest.mark.parametrize("name", CAMERAS)
async def test_each_window_on_the_screen_is_seen_with_its_title(
    name: str, tmp_path: Path, screen: dict[str, str]
) -> None:
    path = only(tmp_path, name, *NAMERS)
    async with desktop_server(tmp_path, path=path, environ=screen) as server:
        with window(screen, "plain", "60x50+10+100"), window(screen, HOSTILE, "100x40+150+20"):
            result = await seen(server, 2)
        assert (result.error, result.truncated) == (None, False)
        first, second = sorted(result.text.splitlines()[:2], key=lambda line: line[2:])
        assert first[2:] == f" {' '.join(HOSTILE.split())}: 100 x 40 pixels"
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
    async with on_linux(tmp_path, scripts) as server:
        result = await call(server, TOOL)
    assert result.text.splitlines()[0] == "1. shown: 2 x 3 pixels"
    assert len(result.images) == 1


async def test_as_many_windows_are_shown_as_ten_and_their_pictures_have_a_size(tmp_path: Path) -> None:
    many = [stats(f"0x{at}", "(has no name)") for at in range(12)]
    half = f"{SHOWS}; head -c {MAX_PICTURES // 2} /dev/zero"
    async with on_linux(tmp_path, screen_of(tmp_path, many)) as server:
        for windows, camera, count, rest in ((many, SHOWS, 10, 2), (many[:3], half, 1, 2)):
            stand_ins(tmp_path, screen_of(tmp_path, windows, camera))
            result = await call(server, TOOL)
            assert (len(result.images), result.truncated) == (count, True)
            assert f"{rest} more windows are not shown" in result.text
            assert result.text.startswith("1. without a title: ")


async def test_a_screen_that_cannot_be_seen_or_understood_is_an_error(tmp_path: Path) -> None:
    async with on_linux(tmp_path, screen_of(tmp_path, [stats()])) as server:
        for camera in ("exit 1", "echo no"):
            stand_ins(tmp_path, {"import": camera})
            assert (await call(server, TOOL)).error == "unavailable"
        for script in ("echo x", "cat /dev/zero"):
            stand_ins(tmp_path, {**screen_of(tmp_path, [], managed=False), "xwininfo": script})
            await refusal(server, "unavailable", "xwininfo", TOOL)
        stand_ins(tmp_path, screen_of(tmp_path, []))
        assert (await call(server, TOOL)).text == "There is no window on the screen."


async def test_it_is_not_offered_where_windows_look_alike_or_are_private(tmp_path: Path) -> None:
    path = stand_ins(tmp_path, screen_of(tmp_path, [stats()]))
    reasons = (
        ({"DISPLAY": ":0", "WAYLAND_DISPLAY": "w"}, path, True, "Wayland"),
        ({}, path, True, "there is no desktop"),
        (X, [str(tmp_path)], True, "no import or scrot"),
        (X, path, False, "--desktop-private"),
    )
    for environ, place, private, why in reasons:
        async with desktop_server(tmp_path, path=place, environ=environ, private=private) as server:
            assert TOOL not in names(server)
            await refusal(server, "unavailable", why, TOOL)
    Path(path[0], "xprop").unlink()
    async with desktop_server(tmp_path, path=path, environ=X) as server:
        assert "no xprop was found" in (await call(server, TOOL)).text


MAC = {"screencapture": 'cp {folder}/picture "${@: -1}"', "sips": ""}


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
DESKTOP = {"session": {"kCGSSessionOnConsoleKey": True}, "windows": WINDOWS, "allowed": True}


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
        return osascript(tmp_path, "macos_screen.js", {**DESKTOP, **state})

    async with on_mac(tmp_path, {**MAC, "osascript": shows()}) as server:
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
        for state, words in UNSEEN:
            for tool in ("take_screenshot", TOOL):
                shows(**state)
                await refusal(server, "unavailable", words, tool)
                # No picture is taken.
                assert given(tmp_path)[0] == "osascript"
                assert state_of(tmp_path).get("requested", False) == ("Recording" in words)
        shows()
        stand_ins(tmp_path, {"screencapture": "echo 'could not create image from window' >&2; exit 1"})
        await refusal(server, "unavailable", "Screen & System Audio Recording", TOOL)
        for said in ('["", [["x", ""]]]', "[1]", "{}", '["", []]x', "no"):
            stand_ins(tmp_path, {"osascript": f"echo '{said}'"})
            await refusal(server, "unavailable", "osascript", TOOL)


def test_windows_are_named_as_they_were_reported() -> None:
    assert managed_ids("_NET_CLIENT_LIST(WINDOW): window id # ") == []
    assert managed_ids("_NET_CLIENT_LIST:  no such atom on any window.\n") is None
    listed = (
        "\n\n  Root window id: 0x8 (r)\n  Parent window id: 0x9 (none)\n     2 children:\n"
        '     0x2 "a\n  0x4": ()\n     0x3 (none)\n     0x2 b\n'
    )
    assert child_ids(listed) == ["0x2", "0x3"]


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
