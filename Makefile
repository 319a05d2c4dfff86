# The commands of the house. `make run` and `make test` need only git, make and Python 3.11.
PYTHON ?= python3
EXTRAS ?= dev,explorer,testbed,kubernetes,scale
PORT   ?= 8501
JOBS   ?= 2
VENV   := .venv
BIN    := $(VENV)/bin
comma  := ,
MARK   := $(VENV)/.installed-$(subst $(comma),-,$(EXTRAS))

# Hundreds of programs that tests start would compile the same files again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup system system-vm run test test-vm test-faults test-roce test-fast fuzz mutants check bench results-containers results-fabric results-cloud results-fidelity-containers results-fidelity-fabric results-fidelity-cluster site clean

help:
	@printf '%s\n' \
	  'make run        replay a shipped recording under four policies, then open the explorer' \
	  '                (HEADLESS=1: start the explorer, check its health, stop it)' \
	  'make test       lint, types, imports and every test (what needs root is skipped without it)' \
	  'make test-fast  the quick tests only' \
	  'make test-vm    what only another kernel shows: boots Debian'"'"'s own in QEMU (as root; installs 0.7 GB once)' \
	  'make test-faults   100 random faults of containers, and as many sequences of a fabric'"'"'s; 200 sequences of faults' \
	  '                that overlap, of controller and agents (root, two hours; N=count SEQUENCES=count SEED=number)' \
	  'make test-roce  a queue pair of soft RoCE between two VMs on a real fabric, through faults (root)' \
	  'make fuzz       damaged input for every reader (FOR=seconds or CASES=number, SEED=number, READER=name)' \
	  'make mutants    small changes of the code that a test must notice (NAMES='"'"'lab.runs.*'"'"' SAMPLE=most of a module SEED=number)' \
	  'make check      lint, types, imports' \
	  'make bench      one JSON line per performance figure' \
	  'make results-containers   run the experiments E1-E8 and write docs/results/containers.md (about 30 minutes)' \
  'make results-fabric   run the experiments T1-T5 and of fleets, and write docs/results/fabric.md (TWINBED_DATA=folder: beside public data, too)' \
	  'make results-cloud   public and our own measurements, C1-F4, and docs/results/cloud.md (TWINBED_DATA=folder; 15 minutes)' \
	  'make results-fidelity-containers   the twin against this machine (root; about three hours, continues where it was; PART=step MINUTES=most)' \
	  'make results-fidelity-fabric   failover on a real fabric against the twin (root, FRR; about three hours, continues where it was; MINUTES=most)' \
	  'make results-fidelity-cluster   schedulers on real training jobs and a real Slurm against the twin (root; about three hours, continues where it was; MINUTES=most)' \
	  'make site       build the documentation site into build/site, every link checked' \
	  'make clean      remove the environment and everything made by tests and builds'

setup: $(MARK)

$(MARK): pyproject.toml requirements.lock tools/setup
	@tools/setup "$(PYTHON)" "$(VENV)" "$(EXTRAS)"
	@touch "$@"

system:
	@tools/system
	@$(PYTHON) -m testbed.fabric.bfd_plane.program

system-vm:
	@tools/system vm

run: setup
	@$(BIN)/twinbed whatif ddp_training --policy escra,autopilot,vpa,static
	@$(BIN)/twinbed explore --port $(PORT) $(if $(HEADLESS),--check)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

test: export TWINBED_RERUNS = $(abspath $(VENV))/reruns
test:
	@$(MAKE) --no-print-directory -j 2 setup system
	@$(BIN)/python tools/kernels.py & $(MAKE) --no-print-directory check; code=$$?; wait $$! || code=1; exit $$code
	@rm -f $(TWINBED_RERUNS)
	tools/test $(BIN) $(JOBS) $(if $(CASES),--cases $(CASES)) $(if $(SEED),--seed $(SEED))

test-fast: setup
	$(BIN)/pytest -m 'not slow and not browser and not vm'

test-vm: setup system-vm
	$(BIN)/pytest -m vm

test-roce: setup system-vm
	ROCE=1 $(BIN)/pytest tests/studies/fidelity_fabric/test_soft_roce_beside_twin.py

test-faults: setup
	FAULTS=$(or $(N),100) FAULTS_SEED=$(or $(SEED),1) SEQUENCES=$(or $(SEQUENCES),200) $(BIN)/pytest -s tests/faults

fuzz: setup
	$(BIN)/python -m tests.fuzz $(if $(CASES),--cases $(CASES),--seconds $(or $(FOR),600)) $(if $(SEED),--seed $(SEED)) $(if $(READER),--reader $(READER))

mutants:
	@$(MAKE) --no-print-directory setup EXTRAS=dev,explorer,testbed,cloud,kubernetes,scale,mutants
	$(BIN)/python tools/mutants.py $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED)) $(NAMES)

site:
	@$(MAKE) --no-print-directory setup EXTRAS=$(EXTRAS),docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --site-dir build/site

bench: setup
	@$(BIN)/python -m benchmarks

results-containers results-fabric results-cloud: setup
	$(BIN)/python -m studies $(@:results-%=%)

results-fidelity-containers: setup
	$(BIN)/python -m studies fidelity-containers $(if $(PART),--only $(PART)) $(if $(REPEATS),--repeats $(REPEATS)) $(if $(DURATION),--duration $(DURATION)) $(if $(MINUTES),--minutes $(MINUTES))

results-fidelity-fabric: setup
	$(BIN)/python -m studies applications
	$(BIN)/python -m studies fidelity-fabric $(if $(MINUTES),--minutes $(MINUTES)) $(if $(STORE),--store $(STORE))

results-fidelity-cluster: setup
	$(BIN)/python -m studies fidelity-cluster $(if $(REPEATS),--repeats $(REPEATS)) $(if $(MINUTES),--minutes $(MINUTES))

clean:
	rm -rf $(VENV) build artefacts *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
