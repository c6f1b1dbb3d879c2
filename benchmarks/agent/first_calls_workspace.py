"""The workspace in which the first calls are replayed: a small shop in Python and JavaScript."""

import json
import subprocess
from pathlib import Path

CART = '''"""The cart of a customer."""

from shop.prices import price_of

# TODO: take discounts into account


class Cart:
    def __init__(self):
        self.items = []

    def add(self, name, quantity=1):
        if quantity < 1:
            raise ValueError("quantity must be at least 1")
        self.items.append((name, quantity))

    def remove(self, name):
        self.items = [item for item in self.items if item[0] != name]

    def total(self):
        return sum(price_of(name) * quantity for name, quantity in self.items)
'''

PRICES = """PRICES = {"apple": 3, "pear": 4, "plum": 2}


def price_of(name):
    return PRICES[name]


def currency():
    return "EUR"
"""

TESTS = """import unittest

from shop.cart import Cart


class CartTest(unittest.TestCase):
    def test_total(self):
        cart = Cart()
        cart.add("apple", 2)
        self.assertEqual(cart.total(), 6)

    def test_remove(self):
        cart = Cart()
        cart.add("pear")
        cart.remove("pear")
        self.assertEqual(cart.total(), 0)
"""

APP_JS = """const port = 3000;

function fetchOrders(limit) {
  console.log("fetching", limit);
  return fetch(`/api/orders?limit=${limit}`);
}

function render(orders) {
  console.log("render", orders.length);
  return orders.map((order) => order.id).join(", ");
}

module.exports = { fetchOrders, render, port };
"""

FILES = {
    "README.md": "# Shop\n\nA small shop.\n\n## Install\n\nRun `make install`.\n\n"
    "## Usage\n\nRun `make serve`.\n",
    "Makefile": "install:\n\tpip install .\n\nserve:\n\tpython -m shop\n",
    "config.toml": '[server]\nhost = "localhost"\nport = 8080\ndebug = true\n\n[log]\nlevel = "info"\n',
    "package.json": '{\n  "name": "shop-web",\n  "version": "1.2.0",\n'
    '  "scripts": {\n    "start": "node web/app.js"\n  }\n}\n',
    "src/shop/__init__.py": '__version__ = "1.2.0"\n',
    "src/shop/cart.py": CART,
    "src/shop/prices.py": PRICES,
    "src/shop/util/__init__.py": "",
    "src/shop/util/dates.py": "def parse_date(text):\n    year, month, day = text.split('-')\n"
    "    return int(year), int(month), int(day)\n",
    "tests/test_cart.py": TESTS,
    "web/app.js": APP_JS,
    "web/util.ts": "export function sum(a: number, b: number): number {\n  return a + b;\n}\n",
    "web/index.html": "<!doctype html>\n<title>Shop</title>\n<h1>Welcome</h1>\n",
    "docs/guide.md": "# Guide\n\nOld name: BigShop.\n\nBigShop sells fruit. Ask BigShop for prices.\n",
    "data/orders.csv": "id,name,quantity\n" + "".join(f"{n},apple,{n % 7}\n" for n in range(1, 301)),
    "data/server.log": "".join(
        f"2026-03-{1 + n // 200:02} line {n} {'ERROR timeout' if n % 500 == 250 else 'INFO ok'}\n"
        for n in range(5000)
    ),
}
"""By path the content of the files."""

CELLS = [
    {"cell_type": "markdown", "id": "intro", "metadata": {}, "source": ["# Sales\n"]},
    {
        "cell_type": "code",
        "execution_count": 1,
        "id": "load",
        "metadata": {},
        "outputs": [],
        "source": ["rows = [1, 2, 3]\n", "print(sum(rows))\n"],
    },
]

GIT = ("git", "-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "commit.gpgsign=false")


def build(root: Path) -> None:
    """Write the workspace into an empty folder: a repository of two commits, and one change on top."""
    for path, text in FILES.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    notebook = {"cells": CELLS, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (root / "sales.ipynb").write_text(json.dumps(notebook, indent=1) + "\n", encoding="utf-8")
    cart = root / "src/shop/cart.py"
    cart.write_text(CART.replace("# TODO: take discounts into account\n\n\n", "\n"), encoding="utf-8")
    _git(root, "init", "--quiet", "--initial-branch=main")
    _git(root, "add", "--all")
    _git(root, "commit", "--quiet", "--message=Add the shop")
    cart.write_text(CART, encoding="utf-8")
    _git(root, "commit", "--quiet", "--all", "--message=Note that discounts are missing")
    (root / "config.toml").write_text(FILES["config.toml"].replace("8080", "8081"), encoding="utf-8")


def _git(root: Path, *arguments: str) -> None:
    subprocess.run([*GIT, *arguments], cwd=root, check=True, capture_output=True)
