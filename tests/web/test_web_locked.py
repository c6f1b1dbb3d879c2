"""A real server, held by the kernel, on a network of its own: it reads from the web, or it cannot."""

from pathlib import Path

import pytest

from tests.support.confinement import READ_ONLY, WORKSPACE_WRITE
from tests.web.world import inside

CALLS = {
    "plain": ("WebFetch", {"url": "http://wiki.example/"}),
    "sealed": ("WebFetch", {"url": "https://wiki.example/"}),
    "stranger": ("WebFetch", {"url": "http://stranger.example/"}),
    "this machine": ("WebFetch", {"url": "http://me.example/"}),
    "nobody": ("WebFetch", {"url": "http://nobody.example/"}),
    "loopback": ("WebFetch", {"url": "http://127.0.0.1/"}),
    "download": ("download", {"url": "http://wiki.example/", "path": "page.html"}),
}


@pytest.mark.parametrize("mode", [pytest.param(READ_ONLY, marks=pytest.mark.long), WORKSPACE_WRITE])
def test_a_server_looks_names_up_and_checks_certificates_behind_its_lock(mode: str, tmp_path: Path) -> None:
    """Names by the system's resolver over UDP, certificates by the file of SSL_CERT_FILE."""
    answers = dict(zip(CALLS, inside(tmp_path, mode, list(CALLS.values())), strict=True))
    for fetched in ("plain", "sealed"):
        assert not answers[fetched]["error"], answers[fetched]["text"]
        assert "# read" in answers[fetched]["text"]
    assert "not public" in answers["stranger"]["text"]
    assert "is this machine" in answers["this machine"]["text"]
    assert "has no address" in answers["nobody"]["text"]
    assert "not public" in answers["loopback"]["text"]
    assert all(answers[refused]["error"] for refused in ("stranger", "this machine", "nobody", "loopback"))
    if mode == READ_ONLY:
        assert answers["download"]["error"]
    else:
        assert (tmp_path / "root/page.html").read_text(encoding="utf-8") == "<h1>read</h1>"
