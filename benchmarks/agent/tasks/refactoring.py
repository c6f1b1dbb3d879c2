"""A helper of openpyxl returns more than before; it and its callers change together, in four files."""

from benchmarks.agent.agent import Agent
from benchmarks.agent.task import Place, Task, nothing, succeeds
from benchmarks.agent.tasks.openpyxl_project import OPENPYXL

PATCH = """\
*** Begin Patch
*** Update File: openpyxl/xml/functions.py
@@
-def localname(node):
+def split_tag(node):
+    \"\"\"The namespace and the local name of an element\"\"\"
     if callable(node.tag):
-        return "comment"
+        return None, "comment"
     m = NS_REGEX.match(node.tag)
-    return m.group('localname')
+    return m.group('namespace', 'localname')
*** Update File: openpyxl/styles/fills.py
@@
-from openpyxl.xml.functions import Element, localname
+from openpyxl.xml.functions import Element, split_tag
@@
-            desc = localname(child)
+            _, desc = split_tag(child)
*** Update File: openpyxl/descriptors/serialisable.py
@@
-    localname,
+    split_tag,
@@
-            tag = localname(el)
+            _, tag = split_tag(el)
*** Update File: openpyxl/descriptors/nested.py
@@
-from openpyxl.xml.functions import Element, localname, whitespace
+from openpyxl.xml.functions import Element, split_tag, whitespace
@@
-            tag = localname(value)
+            _, tag = split_tag(value)
*** End Patch
"""
SCRIPT = r"""
cd openpyxl && python3 - <<'END'
import re
from pathlib import Path
for name in ("styles/fills.py", "descriptors/serialisable.py", "descriptors/nested.py"):
    file = Path(name)
    text = re.sub(r"(\w+) = localname\(", r"_, \1 = split_tag(", file.read_text())
    file.write_text(re.sub(r"\blocalname\b", "split_tag", text))
file = Path("xml/functions.py")
text = file.read_text()
for old, new in (
    ("def localname(node):\n",
     "def split_tag(node):\n    \"\"\"The namespace and the local name of an element\"\"\"\n"),
    ("return \"comment\"", "return None, \"comment\""),
    ("m.group('localname')", "m.group('namespace', 'localname')"),
):
    assert text.count(old) == 1, old
    text = text.replace(old, new)
file.write_text(text)
END
cd ..
"""
TRY = """\
.venv/bin/python - <<'END'
import io
from openpyxl import Workbook, load_workbook
from openpyxl.styles import GradientFill
book, file = Workbook(), io.BytesIO()
book.active["A1"].fill = GradientFill(stop=("000000", "FFFFFF"))
book.save(file)
print(load_workbook(file).active["A1"].fill.stop[1].color.rgb)
END"""
WHITE = "00FFFFFF"
ACCEPTED = (
    "from openpyxl.xml.functions import Element, split_tag;"
    "assert split_tag(Element('{a}b')) == ('a', 'b');"
    "assert split_tag(Element('b')) == (None, 'b')"
)


def ours(agent: Agent, _place: Place) -> str:
    agent.call("grep_search", {"pattern": r"\blocalname\b", "output_mode": "content", "-A": 5})
    agent.call("apply_patch", {"patch": PATCH})
    return agent.call("bash", {"command": TRY})


def other(agent: Agent, _place: Place) -> str:
    agent.call("run_command", {"command": "grep -rnw -A 5 localname openpyxl"})
    return agent.call("run_command", {"command": f"{SCRIPT}{TRY}"})


def is_done(place: Place, answer: str) -> bool:
    files = (place.root / "openpyxl").rglob("*.py")
    left = [file for file in files if "localname(" in file.read_text(encoding="utf-8")]
    return not left and WHITE in answer and succeeds(place, [".venv/bin/python", "-c", ACCEPTED])


TASK = Task(
    name="refactoring of several files, openpyxl",
    prompt="Turn localname(node) into split_tag(node), which also returns the namespace, with its callers.",
    project=OPENPYXL,
    prepare=nothing,
    ours=ours,
    other=other,
    is_done=is_done,
    toolsets="default,files",
)
