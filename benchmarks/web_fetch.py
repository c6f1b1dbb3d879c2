"""A page of 1 MB fetched over HTTP and shown as Markdown, against the converter alone."""

from pathlib import Path

from html_to_markdown import convert

from benchmarks.benchmark import Benchmark, Effort
from benchmarks.client import Client, Unanswered
from benchmarks.figures import Row, interleaved, ratio, seconds
from benchmarks.servers import ours
from tests.web.web import Site, site

FACTOR = 1.3
SIZE = 1_000_000
SECTION = (
    "<h2>Section {0}</h2><p>Some <b>bold</b> and <em>other</em> words, then <a href='/page/{0}?x=1'>link</a> "
    "and more of a sentence that goes on for a while.</p><ul><li>one thing</li><li>another thing</li></ul>"
    "<table><tr><th>name</th><th>value</th></tr><tr><td>number</td><td>{0}</td></tr></table>"
)
NEVER_KEPT = {"cache-control": "no-store"}


def run(effort: Effort, folder: Path) -> list[Row]:
    root = folder / "web"
    root.mkdir()
    page = _page()
    with site({"/": lambda reply: reply.say(page, headers=NEVER_KEPT)}) as outside:
        config = folder / "web.toml"
        config.write_text(f'web-private = ["127.0.0.1:{outside.port}"]\n', encoding="utf-8")
        with Client(ours(root, more=("--config", str(config)))) as client:
            taken = interleaved(
                effort.rounds,
                {
                    "WebFetch": lambda: _fetched(client, outside),
                    "converter": lambda: seconds(lambda: convert(page)),
                },
            )
    return [ratio("a page of 1 MB", taken["WebFetch"], taken["converter"], factor=FACTOR)]


def _page() -> str:
    """Sections up to the size."""
    count = SIZE // len(SECTION.format(10_000))
    body = "".join(SECTION.format(number) for number in range(count))
    return f"<!doctype html><html><head><title>Many sections</title></head><body>{body}</body></html>"


def _fetched(client: Client, outside: Site) -> float:
    before = len(outside.asked)
    answer = client.call("WebFetch", {"url": outside.url})
    if "## Section 1\n" not in answer.text or len(outside.asked) == before:
        raise Unanswered("WebFetch did not fetch the page and convert it")
    return answer.seconds


BENCHMARK = Benchmark(name="web-fetch", title="A page of 1 MB as Markdown", run=run)
"""The answer holds the first 200 KB of the Markdown; the whole page is fetched and converted."""
