"""`gossiplog.net.http.static_files`, and the files that pages share: D3's are as they were published."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from starlette.applications import Starlette

from gossiplog.net.http.static_files import PAGE_HEADERS, file_route, file_routes, read_files, with_page_headers
from tests.net.asgi import call
from tests.page_files import SHARED, check_readme, check_script, scripts


def test_d3_is_what_was_published() -> None:
    """The digests are those of npm's package, which the README names with its version."""
    readme = (SHARED / "README.md").read_text(encoding="utf-8")
    digests = dict(re.findall(r"\| `(\S+)` \| ([0-9a-f]{64}) \|", readme))
    assert set(digests) == {"d3.min.js", "d3.LICENSE.txt"}
    for name, digest in digests.items():
        assert hashlib.sha256((SHARED / name).read_bytes()).hexdigest() == digest
    head = (SHARED / "d3.min.js").read_text(encoding="utf-8")[:100]
    version = re.search(r"D3 \(https://d3js\.org\) (\S+):", readme)
    assert version is not None
    assert f"// https://d3js.org v{version[1]} Copyright" in head


def test_every_file_is_named_in_the_readme() -> None:
    check_readme(SHARED)


@pytest.mark.parametrize("path", scripts(SHARED), ids=lambda path: path.name)
def test_scripts_set_text_alone_and_load_nothing_from_elsewhere(path: Path) -> None:
    check_script(path)


@pytest.mark.parametrize("package", ["gossiplog.dashboard.page", "gossiplog.net.log_page.page"])
def test_a_page_has_its_own_files_and_those_that_all_share(package: str) -> None:
    files = read_files(package)
    assert {"index.html", "base.css", "colours.js", "d3.min.js"} < files.keys()
    # What is for those who work on the page is not served: no token is asked for here.
    assert {Path(name).suffix for name in files} == {".html", ".css", ".js", ".svg", ".txt"}


def test_no_file_of_a_page_hides_one_that_all_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "page_of_a_test"
    folder.mkdir()
    (folder / "index.html").write_text("a page")
    monkeypatch.syspath_prepend(tmp_path)
    assert read_files("page_of_a_test")["index.html"] == b"a page"
    (folder / "base.css").write_text("")
    with pytest.raises(ValueError, match="page_of_a_test has a file base"):
        read_files("page_of_a_test")


@pytest.mark.anyio
async def test_files_are_asked_for_again_and_sent_once() -> None:
    app = Starlette(routes=[*file_routes({"a.css": b"a"}), file_route("/", "a.html", b"page")])
    assert (await call(app, "/")).headers["content-type"] == "text/html; charset=utf-8"
    answer = await call(app, "/a.css")
    assert (answer.body, answer.headers["cache-control"]) == (b"a", "no-cache")
    again = await call(app, "/a.css", headers=[("If-None-Match", answer.headers["etag"])])
    assert (again.status, again.body) == (304, b"")
    other = await call(Starlette(routes=file_routes({"a.css": b"b"})), "/a.css")
    assert other.headers["etag"] != answer.headers["etag"]


@pytest.mark.anyio
async def test_every_answer_keeps_the_page_to_itself() -> None:
    app = with_page_headers(Starlette(routes=file_routes({"a.css": b"a"})))
    for path in ("/a.css", "/nothing"):
        answer = await call(app, path)
        assert PAGE_HEADERS.items() <= answer.headers.items()
    policy = PAGE_HEADERS["content-security-policy"]
    assert "default-src 'none'; script-src 'self'" in policy
    assert "unsafe" not in policy
    assert PAGE_HEADERS["referrer-policy"] == "no-referrer"
