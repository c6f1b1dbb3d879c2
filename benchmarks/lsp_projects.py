"""Projects for a language server to read, the same on every machine, and the places in them to ask about."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MODULES = 200
FUNCTIONS = 50
"""In each module."""

SHOPS = 40
"""Modules that define what others use."""

PAGES = 150
"""Modules of ten functions that use them, and one of many functions."""

MANY = 250


@dataclass(frozen=True, kw_only=True)
class Place:
    """A name in a file; both numbers count from 0."""

    file: Path
    line: int
    character: int


def places(file: Path, names: Sequence[str]) -> list[Place]:
    """Where `file` calls what has a name that begins like one of `names`, in no order."""
    lines = file.read_text(encoding="utf-8").splitlines()
    found = [
        Place(file=file, line=number, character=line.index(name))
        for number, line in enumerate(lines)
        for name in names
        if "(" in line and name in line
    ]
    random.Random(len(lines)).shuffle(found)
    return found


# --- the same 50 calls of functions ------------------------------------------------------------------------


def python_calls(root: Path) -> Path:
    """A project whose `main.py` calls functions of 50 of its modules."""
    (root / "pyproject.toml").write_text("", encoding="utf-8")
    for module in range(MODULES):
        functions = "".join(
            f"def f_{module}_{number}(x: int) -> int:\n    return x + {number}\n\n\n"
            for number in range(FUNCTIONS)
        )
        (root / f"m_{module}.py").write_text(functions, encoding="utf-8")
    imports = "".join(f"from m_{module} import f_{module}_7\n" for module in range(FUNCTIONS))
    uses = "".join(f"x = 1\nx = x + f_{module}_7(x)\n" for module in range(FUNCTIONS))
    (root / "main.py").write_text(f"{imports}\n{uses}", encoding="utf-8")
    return root / "main.py"


def c_calls(root: Path) -> Path:
    """The same in C, with the functions in one header."""
    functions = "".join(
        f"int f_{number}(int x) {{ return x + {number}; }}\n" for number in range(MODULES * FUNCTIONS // 10)
    )
    uses = "".join(
        f"int g_{number}(int x) {{\n  return x + f_{number}(x);\n}}\n" for number in range(FUNCTIONS)
    )
    for module in range(MODULES):
        (root / f"m_{module}.h").write_text(f"int h_{module}(int x);\n", encoding="utf-8")
    (root / "all.h").write_text(functions, encoding="utf-8")
    (root / "main.c").write_text(f'#include "all.h"\n{uses}', encoding="utf-8")
    (root / "compile_flags.txt").write_text("-xc\n", encoding="utf-8")
    return root / "main.c"


# --- a shop, as people write one ---------------------------------------------------------------------------

NAMES = ("renamed", "latest_order", "price_with_tax", "label")
"""Methods that are asked about: two of them are inherited."""


def python_shop(root: Path) -> tuple[Path, list[Path]]:
    """A project; its file of many functions, and its files of ten."""
    (root / "pyproject.toml").write_text("", encoding="utf-8")
    (root / "base.py").write_text(_PYTHON_BASE, encoding="utf-8")
    for shop in range(SHOPS):
        (root / f"shop_{shop}.py").write_text(_PYTHON_SHOP.replace("@", str(shop)), encoding="utf-8")
    return _pages(root, "py", "from shop_@ import Account@\n", _PYTHON_PAGE)


def cpp_shop(root: Path) -> tuple[Path, list[Path]]:
    """The same in C++."""
    (root / "compile_flags.txt").write_text("-xc++\n-std=c++17\n", encoding="utf-8")
    (root / "base.h").write_text(_CPP_BASE, encoding="utf-8")
    for shop in range(SHOPS):
        (root / f"shop_{shop}.h").write_text(_CPP_SHOP.replace("@", str(shop)), encoding="utf-8")
    return _pages(root, "cc", '#include "shop_@.h"\n', _CPP_PAGE)


def _pages(root: Path, suffix: str, include: str, function: str) -> tuple[Path, list[Path]]:
    def written(name: str, first: int, count: int) -> Path:
        numbers = range(first, first + count)
        shops = sorted({number % SHOPS for number in numbers})
        head = "".join(include.replace("@", str(shop)) for shop in shops)
        body = (function.replace("#", str(number)).replace("@", str(number % SHOPS)) for number in numbers)
        file = root / f"{name}.{suffix}"
        file.write_text(head + "".join(body), encoding="utf-8")
        return file

    return written("main", 0, MANY), [written(f"page_{page}", page * 7, 10) for page in range(PAGES)]


_PYTHON_BASE = '''\
class Record:
    """Something with a name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def label(self) -> str:
        return self.name.title()

    def renamed(self, name: str):
        return type(self)(name)
'''
_PYTHON_SHOP = '''\
from base import Record


class Order@(Record):
    """What was bought."""

    def __init__(self, name: str, price: float = 1.0) -> None:
        super().__init__(name)
        self.price = price

    def price_with_tax(self, rate: float):
        return self.price * (1 + rate)


class Account@(Record):
    """Who buys."""

    def orders(self):
        return [Order@(f"{self.name} {number}", number) for number in range(3)]

    def latest_order(self):
        return self.orders()[-1]
'''
_PYTHON_PAGE = """

def handle_#(name: str, rate: float):
    account = Account@(name.strip())
    order = account.renamed(name).latest_order()
    if rate > 0:
        total = order.price_with_tax(rate)
    else:
        total = order.price
    return account.label(), total
"""
_CPP_BASE = """\
#pragma once
template <class Own> class Record {
 public:
  explicit Record(const char *name) : name(name) {}
  const char *label() const { return name; }
  Own renamed(const char *other) const { return Own(other); }

 protected:
  const char *name;
};
"""
_CPP_SHOP = """\
#pragma once
#include "base.h"
class Order@ : public Record<Order@> {
 public:
  explicit Order@(const char *name, double price = 1.0) : Record(name), price(price) {}
  double price_with_tax(double rate) const { return price * (1 + rate); }
  double price;
};
class Account@ : public Record<Account@> {
 public:
  using Record::Record;
  auto latest_order() const { return Order@(name, 2.0); }
};
"""
_CPP_PAGE = """
const char *handle_#(const char *name, double rate, double &total) {
  auto account = Account@(name);
  auto order = account.renamed(name).latest_order();
  if (rate > 0) {
    total = order.price_with_tax(rate);
  } else {
    total = order.price;
  }
  return account.label();
}
"""
