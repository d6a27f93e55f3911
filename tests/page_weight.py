"""What a demo page loads, and what it says of that."""

from __future__ import annotations

import gzip

from playwright.sync_api import Page, expect

from pyonnx_wasm.server import Server


def weigh(page: Page, site: Server, name: str) -> tuple[int, int, set[str]]:
    """Bytes of all files that a page asks for until its model has run, what they are after gzip, and the files' addresses."""
    with Server(site.mounts["/"]) as server:
        page.goto(server.url + name)
        expect(page.locator("#status")).to_contain_text("ms", timeout=60_000)
        files = {t.path: server.locate(t.path) for t in server.transfers}
    found = {path: file / "index.html" if file.is_dir() else file for path, file in files.items() if file}
    data = [file.read_bytes() for file in found.values()]
    return sum(map(len, data)), sum(len(gzip.compress(d, 9)) for d in data), set(found)


def told(page: Page, what: str) -> float:
    """Bytes that the page names, `raw` or `packed`."""
    number, unit = page.locator(f"#{what}").inner_text().split()
    return float(number) * {"KB": 1e3, "MB": 1e6}[unit]
