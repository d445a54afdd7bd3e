# The habits of this repository. `make` alone prints them.

PYTHON ?= $(shell sh .ci/choose-python)
BIN := .venv/bin
EXTENSION := python/gossiplog/_core.abi3.so
# Stamp of the development build, which the demo and the tests use; benchmarks use .venv/.core-release.
CORE := .venv/.core-dev
# The tests' files are in memory where there is a gigabyte for them: a disk has them wait for a quarter of their time.
SCRATCH := $(shell test "$$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 1000000 2>/dev/null && echo /dev/shm)
PYTEST = $(if $(SCRATCH),PYTEST_DEBUG_TEMPROOT=$(SCRATCH) )$(BIN)/pytest --workers $(WORKERS)
RUST := Cargo.toml Cargo.lock pyproject.toml $(shell find rust -name '*.rs' -o -name Cargo.toml)
SOURCES := python tests benches examples
PROTOCOLS := gossiplog/protocol/wire gossiplog/pubsub/rpc
SEEDS ?= 0:10000
# Encodings that each mode of `make fuzz` compares, and orders that each test of `make interleavings` tries; SEED and MODE are its own choice unless they are given.
COUNT ?= 20000
# Bits that `make rot` flips, in files and in write-ahead logs.
FLIPS ?= 10000
WAL_FLIPS ?= 2000
# Seconds that each target of `make fuzz-rust` runs, and which do.
SECONDS ?= 60
TARGET ?= cbor json message answer frames ledger websocket
# Processes that run tests: three more than there are cores, because tests wait for two fifths of their time.
MORE_WORKERS = 3
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + $(MORE_WORKERS))
# Modules that nobody imports are not compiled: pip takes a third of its time for that.
PIP_OPTIONS := --quiet --no-compile
# $(call develop,PROFILE): compile the core
develop = $(BIN)/maturin develop --profile $(1) $(if $(filter dev,$(1)),--features paused-time) --quiet
QUICK := not integration and not slow and not second_loop and not server_storage
# $(call beside-rust-tests,THESE,COMMAND): the Rust tests mostly wait, so they run beside the others. A shell has what it starts
# with `&` ignore Ctrl-C.
beside-rust-tests = $(1) > .venv/cargo-test.log 2>&1 & rust=$$!; trap 'kill $$rust 2>/dev/null; exit 130' INT TERM; \
	$(2); python=$$?; wait $$rust && echo 'the Rust tests passed' || { cat .venv/cargo-test.log; exit 1; }; exit $$python
# $(call protoc,FOLDER): what the .proto files generate, under FOLDER
protoc = $(BIN)/python -m grpc_tools.protoc -Ipython --python_out=$(1) --pyi_out=$(1) $(PROTOCOLS:%=python/%.proto)

export PIP_DISABLE_PIP_VERSION_CHECK = 1
ifdef CI
# What is compiled once needs no incremental data: it takes a fifth of the time of our crates. One unit of code for
# a crate takes a tenth less than 256, and more only where one line changed.
export CARGO_INCREMENTAL = 0
export CARGO_PROFILE_DEV_CODEGEN_UNITS = 1
endif
# In case this runs in another environment, or under a test of its own. Without bytecode every process of the tests would
# compile all that it imports anew.
unexport VIRTUAL_ENV PYTHONPATH GOSSIPLOG_CORE PYTHONDONTWRITEBYTECODE

# What follows it is made at once: pip and mypy keep one core busy, cargo has crates that wait for others. All that a failure
# says is printed, and the status is that of a failure.
BESIDE := $(MAKE) --no-print-directory --jobs=2 AT_ONCE=yes

.DEFAULT_GOAL := help
# Cargo and pytest use the cores themselves.
ifneq ($(AT_ONCE),yes)
.NOTPARALLEL:
endif
.PHONY: help setup demo check test test-rust test-python quic wheel reference soak fuzz kills rot mutants fuzz-rust interleavings bench lint lint-python lint-rust \
	lint-generated format protobuf lock system missing-extension

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: ## .venv with everything in it, and the compiled core
	@$(BESIDE) --silent .venv/.requirements $(CORE)
	@$(MAKE) --no-print-directory --silent .venv/.installed

demo: ## import this repository's history into a log, part three peers, sync them
	@$(BESIDE) --silent .venv/.runtime $(CORE)
	@$(MAKE) --no-print-directory --silent .venv/.installed
	@if [ -t 1 ]; then $(BIN)/gossiplog demo; else FORCE_COLOR=1 COLUMNS=120 $(BIN)/gossiplog demo; fi

check: setup ## the quick loop: the fast tests
	@echo 'compiling the Rust tests, which takes minutes the first time…'
	@cargo test --quiet --no-run
	@# Nothing of tests/integration would run: leaving it out saves a tenth of the time that collecting takes.
	@$(call beside-rust-tests,INTERLEAVINGS=40 cargo test --quiet,$(PYTEST) -q -m '$(QUICK)' --ignore tests/integration --hypothesis-profile quick --sample)

test: system setup ## every test, the wheel's and the processes' too
	@echo 'compiling and running the Rust tests beside those in Python; what they print is in .venv/cargo-test.log'
	@$(call beside-rust-tests,cargo test -- --include-ignored,$(PYTEST))

test-rust: ## the tests of the Rust crates
	cargo test -- --include-ignored

test-python: setup ## the tests of the package
	$(PYTEST)

quic: ## hosts over QUIC, a feature that is off otherwise; compiles for minutes the first time
	cargo clippy -p gossiplog-net --all-targets --features quic -- -D warnings
	cargo test -p gossiplog-net --features quic --lib --test mesh -- --include-ignored

wheel: setup ## the tests of the wheel, compiled as it is released
	GOSSIPLOG_WHEEL=release $(BIN)/pytest tests/integration/test_wheel.py

soak: setup ## 10,000 simulated networks, an hour or so; SEEDS=first:end for others
	$(BIN)/python -m gossiplog.sim --seeds $(SEEDS)

fuzz: setup ## encodings nobody writes, judged by both cores and canvas-js; COUNT=20000 SEED=1 MODE=parse
	$(BIN)/python -m tests.fuzzing --count $(COUNT) $(SEED:%=--seed %) $(MODE:%=--mode %)

interleavings: ## what threads of rust/net share, in more orders than the tests try; COUNT=20000
	INTERLEAVINGS=$(COUNT) cargo test -p gossiplog-net --test interleavings

fuzz-rust: setup ## what strangers' bytes do to the Rust crates, by cargo-fuzz and a nightly compiler; SECONDS=60 TARGET=cbor
	@rustup toolchain list | grep -q nightly || rustup toolchain install nightly --profile minimal
	@test -x .venv/cargo/bin/cargo-fuzz || cargo install --quiet --locked --root .venv/cargo cargo-fuzz
	@$(BIN)/python -m tests.fuzzing.corpus target/fuzz/seeds
	@for target in $(TARGET); do mkdir -p target/fuzz/corpus/$$target; \
		PATH="$$PWD/.venv/cargo/bin:$$PATH" cargo +nightly fuzz run --fuzz-dir rust/fuzz --target-dir target/fuzz $$target \
			target/fuzz/corpus/$$target target/fuzz/seeds/$$target -- -max_total_time=$(SECONDS) -max_len=4096 || exit 1; done

kills: setup ## a hub, writers and a Postgres server killed on one log: nothing acknowledged lost? KILLS=50
	KILLS=$(or $(KILLS),50) $(BIN)/pytest --timeout 0 tests/integration/test_kill_postgres.py

rot: setup ## bits flipped in logs: harmless, named or refused, and repaired? FLIPS=10000 WAL_FLIPS=2000 SEED=1
	$(BIN)/python -m tests.rot --flips $(FLIPS) --wal-flips $(WAL_FLIPS) $(SEED:%=--seed %)

mutants: setup ## every rule broken in turn: does a test that cites it fail? MUTANTS='Seed 001, 12' for some
	$(BIN)/python -m tests.mutation --only '$(MUTANTS)'

bench: ## the benchmarks; results go to benches/RESULTS.md
	@$(BESIDE) --silent .venv/.requirements .venv/.core-release
	@$(MAKE) --no-print-directory --silent .venv/.installed
	$(BIN)/pytest --timeout 0 benches

lint: setup ## style, types, the stub against the core, generated files
	@$(BESIDE) --output-sync=target lint-python lint-rust

lint-python: lint-generated
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/stubtest --mypy-config-file pyproject.toml --allowlist .ci/stubtest-allowed --ignore-positional-only gossiplog._core

# Without what make says of its jobs, by which cargo would take fewer cores. With maturin's settings of pyo3, which would be
# compiled anew. Not `--lib`, which would remove the extension: its file has the same name, whoever makes it. As the benchmark of
# their crate the bindings have a name of their own. A user's wrapper, such as sccache, would keep files that are empty.
lint-rust:
	cargo fmt --check
	MAKEFLAGS= RUSTC_WRAPPER= RUSTC_WORKSPACE_WRAPPER='$(abspath .ci/lint-crate)' \
		$(addprefix PYO3_CONFIG_FILE=,$(abspath $(firstword $(wildcard target/maturin/pyo3-config-*.txt)))) cargo build --workspace --bins --examples --tests --benches

lint-generated:
	@mkdir -p .venv/generated && $(call protoc,.venv/generated)
	@for file in $(foreach protocol,$(PROTOCOLS),$(protocol)_pb2.py $(protocol)_pb2.pyi); do \
		diff -u python/$$file .venv/generated/$$file || { echo "$$file is out of date: run make protobuf" >&2; exit 1; }; done

format: setup ## write the style that lint asks for
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)
	cargo fmt

reference: setup ## docs/reference, from the docstrings
	$(BIN)/python -m tests.api

protobuf: .venv/.requirements ## generate the modules of the .proto files
	$(call protoc,python)

lock: $(BIN)/pip ## write requirements.txt anew from the ranges in pyproject.toml
	$(BIN)/pip install --upgrade --upgrade-strategy eager '.[dev]'
	$(BIN)/pip freeze --exclude gossiplog > requirements.txt

system:
	@PYTHON='$(PYTHON)' .ci/system-packages

# Its last file: a venv that was interrupted is made anew.
$(BIN)/pip:
	@set -- $(PYTHON); \
	test -n "$$*" || { echo 'Python 3.11 or newer is missing; name one with: make PYTHON=/path/to/python' >&2; exit 1; }; \
	echo "making .venv with $$*…"; \
	"$$@" -m venv --clear .venv || \
		{ echo "$$* cannot make a virtual environment (on Debian or Ubuntu, as root: apt-get install python3-venv)" >&2; exit 1; }

.venv/.maturin: requirements.txt pyproject.toml | $(BIN)/pip
	@$(BIN)/python -m pip install $(PIP_OPTIONS) --constraint requirements.txt maturin
	@touch $@

.venv/.runtime: .venv/.maturin
	@echo 'installing the runtime packages…'
	@# Of the extras of the command line, whose own reference to others is left out: the package is not on PyPI.
	@$(BIN)/python -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
		extras = [line for name in ('hub', 'pydantic', 'cli') for line in project['optional-dependencies'][name]]; \
		print(*project['dependencies'], *(line for line in extras if 'gossiplog[' not in line), sep='\n')" > .venv/runtime.txt
	@$(BIN)/python -m pip install $(PIP_OPTIONS) --constraint requirements.txt --requirement .venv/runtime.txt
	@touch $@

.venv/.requirements: .venv/.runtime
	@echo 'installing the packages for development…'
	@$(BIN)/python -m pip install $(PIP_OPTIONS) --requirement requirements.txt
	@touch $@

# Next to the sources, beside pip's work: this needs maturin alone.
.venv/.core-%: .venv/.maturin $(RUST) $(if $(wildcard $(EXTENSION)),,missing-extension)
	@echo 'compiling the core, which takes some minutes the first time…'
	@rm -f .venv/.core-*
	@MAKEFLAGS= $(call develop,$*) --skip-install
	@touch $@

# With the profile that was compiled: cargo has nothing left to do.
.venv/.installed: .venv/.runtime pyproject.toml Cargo.toml rust/python/Cargo.toml
	@PIP_QUIET=1 $(call develop,$(patsubst .venv/.core-%,%,$(wildcard .venv/.core-*)))
	@touch $@

missing-extension:
