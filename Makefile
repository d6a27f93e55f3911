# Every target sets up what it needs and does nothing twice. `make help` lists them.
PYTHON ?= $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11,$(if $(shell $(p) -c 'import sys; print(int(sys.version_info >= (3, 11)))' 2>/dev/null | grep 1),$(p))))
BIN := .venv/bin
# What is downloaded does not wait for what is compiled.
MAKEFLAGS += --jobs=3
# Hundreds of Python processes would compile what they import, each again.
unexport PYTHONDONTWRITEBYTECODE
export PLAYWRIGHT_SKIP_VALIDATE_HOST_REQUIREMENTS := 1
export npm_config_fund := false
export npm_config_audit := false
export npm_config_update_notifier := false

TOOLS := .venv/.tools
VENV := .venv/.stamp
NODE := node_modules/.stamp
BROWSER := build/.browser
BROWSERS := build/.browsers
VULKAN := build/.vulkan
CLANG := build/.clang
QEMU := build/.qemu
CORE := build/.core
PLAYER := build/.player
SITE := build/.site
WHEEL := build/.wheel
LITE := build/.lite
PYODIDE := build/pyodide/pyodide-lock.json
SMALL := $(foreach page,digits triage shapes,build/site/$(page)/$(page).ponnx)
MINILM := build/models/minilm.onnx
SEARCH := build/site/search/minilm.ponnx
WRITE := build/site/write/write.ponnx

COMPILES := $(shell grep -oE '(ziglang|numpy|tqdm)==[0-9.]+' pyproject.toml)
CORE_SOURCES := $(shell find kernels/cpp -name '*.cpp' -o -name '*.h') $(shell find pyonnx_wasm/toolchain.py pyonnx_wasm/webassembly.py pyonnx_wasm/registry.py pyonnx_wasm/tensor pyonnx_wasm/ops -name '*.py')
TRANSLATED := $(addprefix pyonnx_wasm/,javascript onnxfile gguf ir tensor ops passes program gpu compiler.py source.py trace.py fold.py registry.py dtypes.py callbacks.py pictures.py pending.py)
PLAYER_SOURCES := package.json $(shell find $(TRANSLATED) kernels/wgsl -name '*.py' -o -name '*.wgsl') $(shell find js -path js/dist -prune -o -path js/pages -prune -o -type f -print)
PAGE_SOURCES := $(shell find js/pages -type f)
COMPILER := $(shell find pyonnx_wasm/*.py pyonnx_wasm/onnxfile pyonnx_wasm/ir pyonnx_wasm/tensor pyonnx_wasm/ops pyonnx_wasm/passes pyonnx_wasm/program pyonnx_wasm/gpu -name '*.py')

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test serve bench build site wheel lite docs lint format clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 14

demo: $(BROWSER) $(SITE)  ## run the held-out digits in headless Chromium and report
	@$(BIN)/python js/pages/digits/demo.py

test: lint $(BROWSER) $(BROWSERS) $(VULKAN) $(CLANG) $(QEMU) $(SITE) $(SMALL) $(WRITE) $(SEARCH) $(PYODIDE) $(LITE)  ## lint, types, formatting, all tests
	@$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

serve: $(SITE) $(SMALL) $(WRITE) $(SEARCH)  ## open the pages: digits, requests, shapes, writing and semantic search
	@$(BIN)/pyonnx-wasm serve build/site

bench: $(BROWSER) $(SITE) $(SMALL)  ## compare with onnxruntime and onnxruntime-web
	@$(BIN)/pyonnx-wasm bench

build: $(CORE) $(PLAYER)  ## the native core, the WebAssembly cores and the player

site: $(SITE) $(SMALL) $(WRITE)  ## the demo pages, in build/site

wheel: $(WHEEL)  ## two wheels in dist: a pure one for Pyodide and JupyterLite, one with this machine's core

lite: $(LITE)  ## the JupyterLite site with the notebooks, in build/lite

docs: $(SITE) $(SMALL) $(SEARCH) $(LITE)  ## the documentation, with the demo pages and notebooks inside, in build/docs
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[docs]'
	@$(BIN)/python docs/build.py

lint: $(VENV) $(NODE)  ## ruff, mypy --strict, tsc --strict, formatting
	@$(BIN)/ruff check -q
	@$(BIN)/ruff format -q --check
	@$(BIN)/mypy --no-error-summary
	@npm run --silent lint

format: $(VENV) $(NODE)  ## format everything in place
	@$(BIN)/ruff check -q --fix
	@$(BIN)/ruff format -q
	@npm run --silent format

clean:  ## remove everything that was built or installed here
	rm -rf .venv node_modules build js/dist pyonnx_wasm/lib .ruff_cache .mypy_cache

$(TOOLS): pyproject.toml
	@test -n "$(PYTHON)" || { echo 'Python 3.11 or newer is needed: install it, or set PYTHON=/path/to/python3' >&2; exit 1; }
	@echo 'Installing the Python packages into .venv'
	@$(PYTHON) -m venv .venv || { echo 'python -m venv failed; on Debian: apt install python3-venv' >&2; rm -rf .venv; exit 1; }
	@$(BIN)/python -m pip install -q --no-compile --disable-pip-version-check $(COMPILES)
	@touch $@

# What compiles the core comes first: the rest is installed beside it.
$(VENV): $(TOOLS)
	@$(BIN)/python -m pip install -q --no-compile --disable-pip-version-check -e '.[dev]'
	@touch $@

$(NODE): package.json package-lock.json
	@node -e 'process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)' || { echo 'Node.js 20 or newer is needed' >&2; exit 1; }
	@echo 'Installing the Node packages'
	@npm ci --silent
	@touch $@

$(BROWSER): $(VENV)
	@$(BIN)/python -m pyonnx_wasm.testing.chromium
	@mkdir -p build && touch $@

$(BROWSERS): $(VENV)
	@$(BIN)/python -m pyonnx_wasm.testing.webdriver
	@mkdir -p build && touch $@

$(VULKAN): $(VENV)
	@$(BIN)/python -m pyonnx_wasm.testing.vulkan
	@mkdir -p build && touch $@

$(CLANG): $(VENV)
	@$(BIN)/python -m pyonnx_wasm.testing.clang
	@mkdir -p build && touch $@

$(QEMU): $(VENV)
	@$(BIN)/python -m pyonnx_wasm.testing.emulated
	@mkdir -p build && touch $@

$(CORE): $(TOOLS) $(CORE_SOURCES)
	@echo 'Compiling the core: native and WebAssembly (the first time takes minutes)'
	@$(BIN)/python -m pyonnx_wasm.toolchain all
	@mkdir -p build && touch $@

$(PLAYER): $(VENV) $(NODE) $(CORE) $(PLAYER_SOURCES)
	@npm run --silent build
	@rm -rf pyonnx_wasm/lib/player && mkdir -p pyonnx_wasm/lib/player && cp js/dist/*.mjs js/dist/*.wasm pyonnx_wasm/lib/player/ && rm pyonnx_wasm/lib/player/all.mjs pyonnx_wasm/lib/player/core64*
	@touch $@

$(WHEEL): $(PLAYER) hatch_build.py pyproject.toml README.md $(shell find pyonnx_wasm -name '*.py' -o -name '*.md')
	@rm -f dist/pyonnx_wasm-*.whl
	@for kind in pure native; do PYONNX_WASM_WHEEL=$$kind $(BIN)/python -m build --wheel --no-isolation --outdir dist >/dev/null || exit 1; done
	@rm -f js/dist/*.whl && cp dist/pyonnx_wasm-*-py3-none-any.whl js/dist/
	@$(BIN)/python -m pyonnx_wasm.shim dist >/dev/null
	@wc -c dist/pyonnx_wasm-*.whl | sed '$$d'
	@touch $@

$(LITE): $(WHEEL) $(PYODIDE) $(MINILM) $(wildcard notebooks/*.py notebooks/*.ipynb)
	@$(BIN)/python notebooks/build.py dist/pyonnx_wasm-*-py3-none-any.whl build/lite
	@touch $@

$(PYODIDE): | $(VENV)
	@$(BIN)/python -m pyonnx_wasm.testing.pyodide

$(SITE): $(PLAYER) $(PAGE_SOURCES)
	@node js/pages/build.mjs build/site
	@touch $@

$(SMALL): build/site/%.ponnx: js/pages/%.onnx $(SITE) $(CORE) $(COMPILER)
	@$(BIN)/python -m pyonnx_wasm compile $< -o $@
	@touch $@

$(WRITE): js/pages/write/write.gguf $(SITE) $(CORE) $(COMPILER)
	@$(BIN)/python -m pyonnx_wasm.generate.tokenizer $< build/site/write/tokenizer.json
	@$(BIN)/python -m pyonnx_wasm compile $< -o $@
	@touch $@

$(MINILM): tests/models/export_minilm.py $(VENV)
	@echo 'Fetching the MiniLM weights (90 MB) and exporting them'
	@$(BIN)/python tests/models/export_minilm.py build/models

$(SEARCH): $(MINILM) $(SITE) $(CORE) $(COMPILER)
	@cp build/models/tokenizer.json build/site/search/
	@$(BIN)/python -m pyonnx_wasm compile $< -o $@
	@touch $@
