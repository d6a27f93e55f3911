"""Builds the documentation into `build/docs`: `make docs`.

The guides and the Python reference by MkDocs, the JavaScript reference by TypeDoc, the table of operators from the registry; the demo
pages and the notebooks move in where they were built (`make site lite`). Ends with an error where a link leads nowhere.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import onnx

HERE = Path(__file__).parent
ROOT = HERE.parent
SITE = ROOT / "build" / "docs"
TOOLS = ROOT / "build" / "packages" / "docs"
PARTS = ("demo", "lite", "javascript")
OPERATORS = HERE / "reference" / "operators.md"
FAILING = ROOT / "tests" / "conformance" / "unsupported.txt"
ON_CORE = ROOT / "tests" / "conformance" / "on_core.txt"


def operators() -> str:
    """The page of operators: since which opset, with which dtypes the ONNX suite tries them, and what of it is whole on GPUs."""
    from pyonnx_wasm import ops
    from pyonnx_wasm.registry import OPERATORS as REGISTRY
    from pyonnx_wasm.testing import suite

    ops.load_all()
    on_core = {line.split("\t")[0] for line in ON_CORE.read_text().splitlines() if line and line[0] != "#"}
    failing = {row[0]: row[1] for line in FAILING.read_text().splitlines() if line and line[0] != "#" for row in [line.split("\t")]}
    dtypes: dict[tuple[str, str], set[str]] = {}
    passed: dict[tuple[str, str], dict[str, list[bool]]] = {}
    for case in suite.cases():
        graph = onnx.load_from_string(case.model).graph
        if case.kind != "node" or len(graph.node) != 1:
            continue
        [node] = graph.node
        key = ("" if node.domain == "ai.onnx" else node.domain, node.op_type)
        kinds = {info.type.tensor_type.elem_type for info in graph.input} - {0}
        dtypes.setdefault(key, set()).update(onnx.TensorProto.DataType.Name(kind).lower() for kind in kinds)
        told = passed.setdefault(key, {"cpu": [], "wasm": [], "gpu": []})
        where = failing.get(case.name, "").split(",")
        told["cpu"].append(not {"all", "cpu"} & set(where))
        told["wasm"].append(not {"all", "wasm"} & set(where))
        told["gpu"].append(case.name not in on_core and not {"all", "gpu", "webgpu"} & set(where))
    text = (
        "# Operators\n\nDtypes are those with which the ONNX suite tries an operator. The last columns say how many of its cases pass "
        "on the core, natively and in pages, and are whole on a GPU; what is not whole there has steps on the core.\n"
    )
    for domain in sorted({domain for domain, _ in REGISTRY}):
        text += f"\n## {domain or 'ai.onnx'}\n\n| operator | opset | dtypes | cpu | wasm | whole on GPUs |\n|---|---|---|---|---|---|\n"
        for key in sorted(key for key in REGISTRY if key[0] == domain):
            since = min(version.since for version in REGISTRY[key])
            shares = (f"{sum(c)} of {len(c)}" if c else "" for c in passed.get(key, {"cpu": [], "wasm": [], "gpu": []}).values())
            text += f"| {key[1]} | {since}+ | {', '.join(sorted(dtypes.get(key, ())))} | {' | '.join(shares)} |\n"
    return text


def javascript() -> None:
    """The reference of the npm package, from its declarations."""
    if not (TOOLS / "node_modules").exists():
        TOOLS.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "package.json", TOOLS)
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--no-package-lock"], cwd=TOOLS, check=True)
    config = TOOLS / "tsconfig.json"
    paths = {"onnxruntime-common": [str(ROOT / "node_modules/onnxruntime-common")]}
    options = {"module": "nodenext", "moduleResolution": "nodenext", "lib": ["es2022", "dom"], "skipLibCheck": True, "paths": paths}
    entry = ROOT / "js" / "dist" / "index.d.ts"
    config.write_text(json.dumps({"compilerOptions": options, "files": [str(entry)]}))
    command = [TOOLS / "node_modules/.bin/typedoc", "--tsconfig", config, "--entryPoints", entry, "--out", SITE / "javascript"]
    settings = [
        "--readme",
        "none",
        "--name",
        "pyonnx-wasm",
        "--excludeInternal",
        "--excludePrivate",
        "--disableSources",
        "--logLevel",
        "Error",
    ]
    subprocess.run([*map(str, command), *settings, "--logLevel", "Error"], cwd=ROOT, check=True)


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {str(v) for k, v in attrs if k in ("id", "name") and v}
        link = given.get("href") if tag in ("a", "link") else given.get("src") if tag in ("img", "script") else None
        if link:
            self.links.append(link)


def broken(site: Path) -> Iterator[str]:
    """Links of the site's own pages that lead nowhere in it."""
    own = [p for p in sorted(site.rglob("*.html")) if not {"demo", "lite"} & set(p.relative_to(site).parts[:1]) and p.name != "404.html"]
    pages = {p: Page(p.read_text(encoding="utf-8")) for p in own}
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or link.startswith("data:"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                yield f"{path.relative_to(site)}: {link}"
            elif (
                parts.fragment
                and target in pages
                and unquote(parts.fragment) not in pages[target].anchors
                and "javascript" not in str(target)
            ):
                yield f"{path.relative_to(site)}: {link}: no such place on the page"


def main() -> int:
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given.add_argument("--operators", action="store_true", help="write the page of operators and end")
    if given.parse_args().operators:
        OPERATORS.write_text(operators())
        return 0
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"],
        cwd=ROOT,
        check=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )
    javascript()
    for name, built in (("demo", "site"), ("lite", "lite")):
        if (ROOT / "build" / built / "index.html").exists():
            shutil.copytree(ROOT / "build" / built, SITE / name, copy_function=os.link)
    for path in SITE.rglob("*.html"):  # the site may lie in a folder
        if path.relative_to(SITE).parts[0] not in PARTS:
            up = "../" * (len(path.relative_to(SITE).parts) - 1)
            path.write_text(re.sub(rf'="/({"|".join(PARTS)})/', rf'="{up}\1/', path.read_text(encoding="utf-8")), encoding="utf-8")
    faults = list(broken(SITE))
    print("\n".join(faults) or f"The documentation is in {SITE.relative_to(ROOT)}", flush=True)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
