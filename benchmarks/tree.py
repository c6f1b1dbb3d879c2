"""A source tree to search, the same on every machine."""

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

PER_FOLDER = 50
IGNORED_EVERY = 10
RARE = "only_here_in_the_whole_tree"
FEW = "def rotate_credentials"
COMMON = "async def"
SUFFIXES = (".py",) * 16 + (".md", ".md", ".txt", ".json")
_VOCABULARY = """
account batch buffer cache channel client config context cursor delta entry event field filter frame
graph handle header index item job key label layer limit line list lock map match message method
model name node number offset order output packet page parent part path pattern point pool port
prefix process profile query queue range rate reader record region request result role root route
rule sample schema scope score section segment session shard signal size slice source stage state
status step stream table target task team text thread ticket time token topic total trace tree unit
update user value vector version view window worker
"""
WORDS = _VOCABULARY.split()
FORMS = (
    "def {a}_{b}({c}: int, {d}: str) -> None:",
    "    self.{a}_{b} = {c}.{d}({a})",
    "    if {a} is not None and {b} > {c}:",
    "        return {a}[{b}] + {c}_{d}",
    "    # the {a} of a {b} is kept until the {c} ends",
    '    raise ValueError(f"{a} {{{b}}} has no {c}")',
    "class {a}{b}:",
    "",
    "    for {a}, {b} in {c}.items():",
    "from {a}.{b} import {c}, {d}",
)


def grown(folder: Path, files: int) -> Path:
    """The tree of `files` files below `folder`, made on first need."""
    tree = folder / "tree"
    if not tree.exists():
        subprocess.run(["git", "init", "--quiet", str(tree)], check=True)
        (tree / ".gitignore").write_text("build/\n*.log\n", encoding="utf-8")
        chance = random.Random(20_000)
        for number, name in enumerate(_names(files)):
            file = tree / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(_text(chance, number, files), encoding="utf-8")
    return tree


def _names(files: int) -> Iterator[str]:
    for number in range(files):
        folder, place = divmod(number, PER_FOLDER)
        top = f"part_{folder // 20:02}"
        middle = "build" if folder % IGNORED_EVERY == IGNORED_EVERY - 1 else f"module_{folder % 20:02}"
        yield f"{top}/{middle}/{WORDS[place]}_{number}{SUFFIXES[place % len(SUFFIXES)]}"


def _text(chance: random.Random, number: int, files: int) -> str:
    rows = [_row(chance) for _ in range(chance.randint(30, 120))]
    planted = {
        f"{COMMON} handle_{number}(self) -> None:": number % 10 == 3,
        f"{FEW}(self) -> None:": number % 400 == 7,
        f"# {RARE}": number == files // 2 + 1,
    }
    for row, wanted in planted.items():
        if wanted:
            rows.insert(chance.randrange(len(rows)), row)
    return "\n".join(rows) + "\n"


def _row(chance: random.Random) -> str:
    a, b, c, d = chance.choices(WORDS, k=4)
    return chance.choice(FORMS).format(a=a, b=b, c=c, d=d)
