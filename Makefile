# The one-command tasks. Continuous integration calls these and nothing else.
#
#   make cluster              three MariaDB servers on our provider, ready to use
#   make down                 stop them and remove their files
#   make check                format and lints (fast)
#   make test                 every kind of test, about a quarter of an hour
#   make sim [SEEDS=20000]    the simulator over more seeds
#   make chaos [ROUNDS=20]    all servers killed at once under load, again and again; nothing may be lost
#   make mtr SUITE=galera [TESTS="…"] [PROVIDER=…]   MariaDB's own suites, compared with Galera's results
#   make bench                our provider and Galera, measured in one run
#   make deps                 install the Debian packages that the above need

.DEFAULT_GOAL := help
.PHONY: help deps build cluster down check test sim chaos mtr bench

TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
PROVIDER ?= $(TARGET)/release/libtrireme.so
TRIREME := $(TARGET)/release/trireme
SUITE ?=
TESTS ?=
SEEDS ?= 20000
ROUNDS ?= 20
GALERA := $(firstword $(wildcard /usr/lib/galera/libgalera_smm.so /usr/lib/libgalera_smm.so /usr/lib64/galera-4/libgalera_smm.so))

help:
	@sed -n '2,/^$$/s/^# \{0,1\}//p' Makefile

deps:
	@scripts/install-deps.sh

build:
	cargo build --release --locked -p trireme-provider -p trireme-cli

cluster: deps build
	$(TRIREME) cluster up --provider $(PROVIDER)
	@echo
	@echo "Three servers are running. To use them:"
	@echo "  $(TRIREME) cluster sql 1 'CREATE DATABASE shop'     a statement on node 1"
	@echo "  $(TRIREME) cluster sql 2 'SHOW DATABASES'           … seen on node 2"
	@echo "  $(TRIREME) cluster sql 3                            an interactive client on node 3"
	@echo "  $(TRIREME) cluster status"
	@echo "  $(TRIREME) cluster kill 3; $(TRIREME) cluster restart 3"
	@echo "  make down                                           stop them and remove their files"

down:
	@$(TRIREME) cluster down

check:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

test: deps
	@scripts/run-tests

sim:
	cargo build --release --locked -p trireme-sim
	$(TARGET)/release/trireme-sim --seeds 0..$(SEEDS) --jobs $$(nproc)

# With PROVIDER=/usr/lib/galera/libgalera_smm.so it counts what Galera loses.
chaos: deps
ifeq ($(origin PROVIDER),file)
	cargo build --release --locked -p trireme-provider
endif
	ROUNDS=$(ROUNDS) PROVIDER=$(PROVIDER) cargo test -p trireme-cluster --test cluster --locked -- --exact killed_all

# Without PROVIDER= the library is built first; any other is taken as it is (`galera`: the installed one).
mtr: deps
ifeq ($(origin PROVIDER),file)
	cargo build --release --locked -p trireme-provider
endif
	tests/mtr/run --provider $(PROVIDER) $(if $(SUITE),--suite $(SUITE)) $(if $(TESTS),--tests "$(TESTS)") --out build/mtr
	tests/mtr/compare build/mtr/results.txt

bench: deps
	cargo build --release --locked -p trireme-provider -p trireme-bench
	$(TARGET)/release/trireme-bench provider --provider trireme=$(PROVIDER) $(if $(GALERA),--provider galera=$(GALERA))
