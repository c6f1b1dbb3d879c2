"""Random paths that try to leave a folder, or are odd in some other way."""

import random

from benchmarks.fuzz_ground import Ground

NAMES = (
    "f",
    "g",
    "d",
    "d/tracked",
    "d/nested/deep",
    "hostile",
    "kept",
    "new",
    "missing",
    "root",
    "outside",
    ".git/config",
    ".GIT/config",
    ".git./x",
    ".mcp.json",
    "link_out",
    "link_in",
    "link_nowhere",
    "link_folder",
    "link_absolute",
    "link_chain",
    "link_loop",
    "link_proc",
)
ODD = (
    "..",
    "../",
    "./",
    ".",
    "",
    "/",
    "//",
    "...",
    ".. ",
    "..\t",
    "..\\",
    "\\",
    "%2e%2e",
    "%2f",
    "%252e",
    "~",
    "~root",
    "$HOME",
    "${IFS}",
    "*",
    "?",
    "[a-z]*",
    "{f,g}",
    "**",
    "!f",
    "-",
    "--",
    "-e",
    "@",
    "file://",
    "C:",
    "CON",
    "\0",
    "\n",
    "\r",
    "\x1b[2J",
    "\u202e",
    "\u200d",
    "\ufeff",
    "e\u0301",
    "\u00e9",
    "\uff0e\uff0e",
    "\uff0f",
    "\U000e0041",
    "\ud800",
    "x" * 256,
    "x/" * 2_100,
    "f/",
    "f/.",
    "f/..",
    " f",
    "f ",
    "f.",
    "F",
    "'",
    '"',
    "`id`",
    "$(id)",
    ";",
)


def path(chance: random.Random, at: Ground) -> str:
    """A path that tries to get out, or is odd in some other way."""
    base, root = str(at.scene.base), str(at.scene.root)
    starts = (
        "",
        "",
        "",
        "../",
        "../../",
        "../outside/",
        "../root-evil/",
        f"{root}/",
        f"{root}/../",
        f"{root}-evil/",
        f"{base}/outside/",
        f"/{root}/",
        f"{at.unseen}/",
        f"/proc/self/root{base}/outside/",
        "/proc/self/cwd/",
        "/proc/self/cwd/../outside/",
        "/dev/fd/",
        "/proc/self/fd/",
        "~/",
        f"file://{base}/outside/",
        "link_folder/",
        "link_absolute/",
        "link_proc/",
        "link_folder/../",
        "d/../../outside/",
        "./",
    )
    parts = [chance.choice(NAMES if chance.random() < 0.6 else ODD) for _ in range(chance.randint(1, 4))]
    made = chance.choice(starts) + chance.choice(("/", "/", "/", "")).join(parts)
    for _ in range(chance.choice((0, 0, 0, 1, 2))):
        made = _mutated(chance, made)
    return made


def _mutated(chance: random.Random, text: str) -> str:
    place = chance.randint(0, len(text))
    match chance.randrange(5):
        case 0:
            return text[:place] + chance.choice(ODD) + text[place:]
        case 1:
            return text[:place] + text[place + 1 :]
        case 2:
            return text[:place] + text[place:].swapcase()
        case 3:
            return (
                text[:place]
                + chr(chance.choice((chance.randrange(1, 0x80), chance.randrange(0x80, 0x3000))))
                + text[place:]
            )
        case _:
            return text.replace("/", "//", 1)
