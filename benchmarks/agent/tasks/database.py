"""Orders from a workbook go into a database in a temporary folder, which the next call asks."""

import random
import re
import textwrap
import warnings

from benchmarks.agent.agent import Agent
from benchmarks.agent.task import Place, Task
from benchmarks.agent.tasks.openpyxl_project import OPENPYXL

CUSTOMERS = ("Ada", "Blaise", "Charles", "Dorothy", "Edsger", "Frances", "Grace", "Haskell")
ORDERS = 400
WORKBOOK = "orders.xlsx"
FIRST_ROWS = textwrap.dedent(
    """\
    .venv/bin/python - <<'END'
    from openpyxl import load_workbook
    for row in load_workbook("orders.xlsx").active.iter_rows(max_row=4, values_only=True):
        print(row)
    END"""
)
LOAD = textwrap.dedent(
    """\
    .venv/bin/python - "$folder" <<'END'
    import sqlite3
    import sys
    from openpyxl import load_workbook
    rows = load_workbook("orders.xlsx", read_only=True).active.iter_rows(min_row=2, values_only=True)
    with sqlite3.connect(f"{sys.argv[1]}/orders.db") as database:
        database.execute("create table orders (number integer, customer text, cents integer)")
        database.executemany("insert into orders values (?, ?, ?)", rows)
        print(database.execute("select count(*) from orders").fetchone())
    END"""
)
ASK = textwrap.dedent(
    """\
    .venv/bin/python - "$folder" <<'END'
    import sqlite3
    import sys
    asked = "select customer, sum(cents) as total from orders group by customer order by total desc limit 3"
    for row in sqlite3.connect(f"{sys.argv[1]}/orders.db").execute(asked):
        print(*row)
    END"""
)


def _orders() -> list[tuple[int, str, int]]:
    chance = random.Random(ORDERS)
    return [(number, chance.choice(CUSTOMERS), chance.randrange(100, 90_000)) for number in range(ORDERS)]


def prepare(place: Place) -> None:
    from openpyxl import Workbook  # an extra: other benchmarks run without it

    with warnings.catch_warnings():
        # openpyxl opens its temporary file without an encoding, which the tests treat as an error.
        warnings.simplefilter("ignore", EncodingWarning)
        workbook = Workbook(write_only=True)
        sheet = workbook.create_sheet("orders")
        sheet.append(("number", "customer", "cents"))
        for order in _orders():
            sheet.append(order)
        workbook.save(place.root / WORKBOOK)


def ours(agent: Agent, _place: Place) -> str:
    agent.call("read_file", {"path": WORKBOOK, "limit": 4})
    agent.call("bash", {"command": f"folder=$TMPDIR\n{LOAD}"})
    return agent.call("bash", {"command": f"folder=$TMPDIR\n{ASK}"})


def other(agent: Agent, _place: Place) -> str:
    agent.call("run_command", {"command": FIRST_ROWS})
    loaded = agent.call("run_command", {"command": f"folder=$(mktemp -d); echo $folder\n{LOAD}"})
    found = re.search(r"^/\S+$", loaded, re.MULTILINE)
    folder = found[0] if found else ""
    return agent.call("run_command", {"command": f'folder={folder}\n{ASK}\nrm -r "$folder"'})


def is_done(place: Place, answer: str) -> bool:
    totals: dict[str, int] = dict.fromkeys(CUSTOMERS, 0)
    for _, customer, cents in _orders():
        totals[customer] += cents
    best = sorted(totals.items(), key=lambda item: -item[1])[:3]
    lines = [f"{customer} {cents}" for customer, cents in best]
    names = {path.name for path in place.root.iterdir()}
    return answer.splitlines()[:3] == lines and names == {".venv", "openpyxl", "et_xmlfile", WORKBOOK}


TASK = Task(
    name="database in a temporary folder, openpyxl",
    prompt=f"Load {WORKBOOK} into SQLite in a temporary folder; who are the three best customers?",
    project=OPENPYXL,
    prepare=prepare,
    ours=ours,
    other=other,
    is_done=is_done,
)
