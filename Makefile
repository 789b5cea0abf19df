# The one-command tasks. Continuous integration calls these and nothing else.
#
#   make cluster              three MariaDB servers on our provider, ready to use
#   make down                 stop them and remove their files
#   make check                format, lints, the documents' links, commands and English, licences, sources, advisories (fast)
#   make sbom                 a bill of materials of what is installed, as CycloneDX
#   make test                 every kind of test: about 45 minutes from a cold clone on two cores
#   make test MARIADB=11.8    MariaDB's own suites of another series, in a Debian that has it, with Galera and with ours (root, a mirror) [SUITE=…]
#   make test-all            all of that in its long form: hours; before a release
#   make sim [SEEDS=100000]   the simulator over more seeds, about twenty minutes on two cores
#   make mutants              how often the simulator notices each deliberately broken rule; writes the table in docs/testing.md anew
#   make model                the exhaustive model with its large bounds, hours
#   make chaos [NEMESIS=kill-all] [ROUNDS=20]   faults on real servers under load; a checker judges what clients saw
#   make mtr SUITE=galera [TESTS="…"] [PROVIDER=…]   MariaDB's own suites, compared with Galera's results
#   make fuzz TARGET=order_group [SECONDS=60]        search for inputs that do harm (nightly toolchain, cargo-fuzz)
#   make bench [BENCH="all --preset quick"] [OUT=build/bench]   the published experiments, ours beside its rivals, in one run; less than half an hour
#   make install [PREFIX=/usr/local] [DESTDIR=] [STRIP=no] [GARBD=yes]   the library, the command, and the services of arbitrator and
#                            balancer; make uninstall
#   make deb                  Debian packages of provider, command and arbitrator, in build/deb
#   make rpm                  the same as .rpm, in build/rpm
#   make release [GPG_KEY=ID] [MINISIGN_KEY=FILE]    all packages, sums, bill of materials, signatures, in build/release
#   make docs                 the documents as a site, in build/site (needs mdbook)
#   make deps                 install the Debian packages that a cluster needs; make deps-test: those for all of the above

.DEFAULT_GOAL := help
# What fails half-way leaves no file that looks made.
.DELETE_ON_ERROR:
.PHONY: help deny sbom deps deps-test build install uninstall deb rpm release docs cluster down check test test-all sim mutants model chaos mtr fuzz fuzz-corpus bench

# Where rustup puts cargo: a shell that is older than the installation does not have it on its PATH.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

# The compiler that rust-toolchain.toml names. Where rustup has not got it and may not fetch it, its default is taken.
ifneq ($(shell sh -c 'command -v rustup'),)
ifeq ($(shell rustc --version 2>/dev/null),)
export RUSTUP_TOOLCHAIN := $(firstword $(shell rustup default 2>/dev/null))
$(warning the toolchain of rust-toolchain.toml is not installed: building with $(RUSTUP_TOOLCHAIN))
endif
endif

BUILD := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
PROVIDER ?= $(BUILD)/release/libtrireme.so
TRIREME := $(BUILD)/release/trireme
# What the tests are built of: a node of it checks its invariants after every input (crates/checked).
CHECKED := $(BUILD)/debug/examples/libtrireme_checked.so
CONNECT := $(BUILD)/release/libtrireme_connect.so
SBOM := $(BUILD)/release/trireme.cdx.json
PREFIX ?= /usr/local
SUITE ?=
comma := ,
TESTS ?=
SEEDS ?= 100000
ROUNDS ?= 20
NEMESIS ?= kill-all
CHAOS ?=
BENCH ?= all --preset quick
OUT ?= build/bench
SECONDS ?= 60
GALERA := $(firstword $(wildcard /usr/lib/galera/libgalera_smm.so /usr/lib/libgalera_smm.so /usr/lib64/galera-4/libgalera_smm.so))

help:
	@sed -n '2,/^$$/s/^# \{0,1\}//p' Makefile

deps:
	@scripts/install-deps.sh --run

deps-test:
	@scripts/install-deps.sh

build:
	cargo build --release --locked -p trireme-provider -p trireme-cli -p trireme-connect
	@$(MAKE) --no-print-directory sbom

sbom:
	@mkdir -p $(dir $(SBOM))
	@cargo run -q --locked -p trireme-sbom > $(SBOM).new && mv $(SBOM).new $(SBOM)
	@echo "$(SBOM)"

# Takes what was built, so that root needs no toolchain: `make build && sudo make install`. Settings that exist stay.
ROOT := $(DESTDIR)$(PREFIX)
# Debug information goes into files of its own, where debuggers look. `no`: it stays where it is, for packages that do the same by themselves.
STRIP ?= yes
# garbd and garb.service belong to galera-arbitrator where that is installed: then ours are left out. A tree for a package has them.
OTHERS_GARBD := $(if $(DESTDIR),,$(shell for file in $(PREFIX)/bin/garbd /usr/bin/garbd /usr/lib/systemd/system/garb.service /lib/systemd/system/garb.service; do \
	[ ! -f $$file ] || [ -L $$file ] || grep -q trireme $$file || echo $$file; done))
GARBD ?= $(if $(OTHERS_GARBD),no,yes)
install:
	@test -f $(PROVIDER) && test -f $(TRIREME) && test -f $(CONNECT) || { echo "run 'make build' first"; exit 2; }
	@! grep -aq 'TEST BUILD)' $(PROVIDER) || { echo "$(PROVIDER) is built for tests: run 'make build' again"; exit 2; }
	install -D -m 644 $(PROVIDER) $(ROOT)/lib/trireme/libtrireme.so
	install -D -m 755 $(TRIREME) $(ROOT)/bin/trireme
	install -D -m 755 $(CONNECT) $(ROOT)/lib/trireme/libtrireme_connect.so
ifneq ($(STRIP),no)
	@command -v objcopy >/dev/null || { echo "objcopy is missing: install the package binutils, or say STRIP=no"; exit 2; }
	@cd $(ROOT) && for file in bin/trireme lib/trireme/libtrireme.so lib/trireme/libtrireme_connect.so; do \
		symbols=$$(dirname $$file)/.debug/$$(basename $$file).debug && mkdir -p $$(dirname $$symbols) && objcopy --only-keep-debug $$file $$symbols \
		&& chmod 644 $$symbols && objcopy --strip-unneeded $$file && objcopy --add-gnu-debuglink=$$symbols $$file || exit; \
	done
endif
	@test ! -f $(SBOM) || install -D -m 644 $(SBOM) $(ROOT)/share/doc/trireme/trireme.cdx.json
	ln -sf trireme $(ROOT)/bin/glbd
	sed 's|/usr/bin/trireme|$(PREFIX)/bin/trireme|' packaging/trireme-balance.service \
		| install -D -m 644 /dev/stdin $(ROOT)/lib/systemd/system/trireme-balance.service
	sed 's|/usr/bin/trireme|$(PREFIX)/bin/trireme|' packaging/trireme-monitor.service \
		| install -D -m 644 /dev/stdin $(ROOT)/lib/systemd/system/trireme-monitor.service
	install -D -m 644 packaging/prometheus/trireme.rules.yml $(ROOT)/share/trireme/prometheus/trireme.rules.yml
	install -D -m 644 packaging/grafana/trireme.json $(ROOT)/share/trireme/grafana/trireme.json
	install -D -m 644 packaging/man/trireme-balance.1 $(ROOT)/share/man/man1/trireme-balance.1
	ln -sf trireme-balance.1 $(ROOT)/share/man/man1/glbd.1
	$(TRIREME) manual $(ROOT)/share/man/man1
	install -d $(ROOT)/share/bash-completion/completions $(ROOT)/share/zsh/vendor-completions $(ROOT)/share/fish/vendor_completions.d
	$(TRIREME) completions bash >$(ROOT)/share/bash-completion/completions/trireme
	$(TRIREME) completions zsh >$(ROOT)/share/zsh/vendor-completions/_trireme
	$(TRIREME) completions fish >$(ROOT)/share/fish/vendor_completions.d/trireme.fish
ifneq ($(GARBD),no)
	ln -sf trireme $(ROOT)/bin/garbd
	ln -sf trireme-arbitrate.1 $(ROOT)/share/man/man1/garbd.1
	sed 's|/usr/bin/garbd|$(PREFIX)/bin/garbd|' packaging/garb-systemd | install -D -m 755 /dev/stdin $(ROOT)/bin/garb-systemd
	sed 's|/usr/bin/garb-systemd|$(PREFIX)/bin/garb-systemd|' packaging/garb.service \
		| install -D -m 644 /dev/stdin $(ROOT)/lib/systemd/system/garb.service
	install -D -m 644 packaging/garb.sysusers $(ROOT)/lib/sysusers.d/trireme-arbitrator.conf
	@test -e $(DESTDIR)/etc/default/garb || install -D -m 644 packaging/garb.default $(DESTDIR)/etc/default/garb
else
	@echo "Left out, because $(firstword $(OTHERS_GARBD)) is another package's: garbd and garb.service. Remove that package, then 'make install GARBD=yes'."
	@echo "'trireme arbitrate' is the same program."
endif
	install -D -m 755 packaging/start-mariadbd $(ROOT)/lib/trireme/start-mariadbd
	sed 's|/usr/lib/trireme|$(PREFIX)/lib/trireme|' packaging/systemd/trireme.conf \
		| install -D -m 644 /dev/stdin $(ROOT)/lib/systemd/system/mariadb.service.d/trireme.conf
	@test -e $(DESTDIR)/etc/trireme/balance.conf || install -D -m 644 packaging/balance.conf $(DESTDIR)/etc/trireme/balance.conf
	@test -e $(DESTDIR)/etc/trireme/balance.password || install -D -m 600 /dev/null $(DESTDIR)/etc/trireme/balance.password
	@echo "In my.cnf: wsrep_provider=$(PREFIX)/lib/trireme/libtrireme.so"
	@echo "Under systemd: systemctl daemon-reload; before the first start of garb.service also systemd-sysusers"

uninstall:
	rm -rf $(ROOT)/lib/trireme $(ROOT)/share/doc/trireme
	rm -f $(ROOT)/bin/trireme $(ROOT)/bin/.debug/trireme.debug $(ROOT)/bin/glbd
	@# Another package may have brought its own meanwhile.
	for link in bin/garbd:trireme share/man/man1/garbd.1:trireme-arbitrate.1; do \
		[ "$$(readlink $(ROOT)/$${link%:*})" != "$${link#*:}" ] || rm -f $(ROOT)/$${link%:*}; done
	for file in bin/garb-systemd lib/systemd/system/garb.service; do ! grep -qs trireme $(ROOT)/$$file || rm -f $(ROOT)/$$file; done
	rm -f $(ROOT)/lib/sysusers.d/trireme-arbitrator.conf
	rm -rf $(ROOT)/share/trireme
	rm -f $(ROOT)/lib/systemd/system/trireme-balance.service $(ROOT)/lib/systemd/system/trireme-monitor.service
	rm -f $(ROOT)/share/man/man1/trireme*.1 $(ROOT)/share/man/man1/glbd.1
	rm -f $(ROOT)/share/bash-completion/completions/trireme $(ROOT)/share/zsh/vendor-completions/_trireme
	rm -f $(ROOT)/share/fish/vendor_completions.d/trireme.fish
	rm -f $(ROOT)/lib/systemd/system/mariadb.service.d/trireme.conf

# One version for all: the workspace's. Without root no fakeroot is needed (Rules-Requires-Root: no).
DEB_OUT := $(CURDIR)/build/deb
deb:
	@command -v dh >/dev/null || { echo "make deb needs the package debhelper: apt-get install debhelper"; exit 2; }
	rm -rf $(DEB_OUT) && mkdir -p $(DEB_OUT)
	DEB_RULES_REQUIRES_ROOT=no DEB_OUT=$(DEB_OUT) debian/rules clean binary
	@ls -l $(DEB_OUT)

RPM_OUT := $(CURDIR)/build/rpm
VERSION := $(shell sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
rpm: build
	@command -v rpmbuild >/dev/null || { echo "make rpm needs rpmbuild: apt-get install rpm, or dnf install rpm-build"; exit 2; }
	rm -rf $(RPM_OUT) build/rpm-work && mkdir -p $(RPM_OUT)
	@$(MAKE) --no-print-directory install DESTDIR=$(CURDIR)/build/rpm-work/root PREFIX=/usr STRIP=no >/dev/null
	rpmbuild -bb --quiet --target $$(uname -m) --define '_topdir $(CURDIR)/build/rpm-work' --define '_rpmdir $(RPM_OUT)' \
		--define '_rpmfilename %%{name}-%%{version}-%%{release}.%%{arch}.rpm' --define '_binary_payload w9.gzdio' \
		--define 'version $(VERSION)' --define 'release_root $(CURDIR)/build/rpm-work/root' --define 'sources $(CURDIR)' packaging/rpm/trireme.spec
	rm -rf build/rpm-work
	@ls -l $(RPM_OUT)

release:
	@scripts/release $(if $(GPG_KEY),--gpg-key $(GPG_KEY)) $(if $(MINISIGN_KEY),--minisign-key $(MINISIGN_KEY))

docs:
	@scripts/docs

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
	cargo test -q --locked -p trireme-cli --test documents
	@$(MAKE) --no-print-directory deny

deny:
	@scripts/deny

test: deps-test
ifeq ($(MARIADB),)
	@[ "$$(id -u)" != 0 ] || scripts/install-deps.sh --packages
	@scripts/run-tests
else
	@scripts/install-deps.sh --packages
	cargo build --release --locked -p trireme-provider -p trireme-cli
	@PROVIDER=$(abspath $(PROVIDER)) tests/series/run --mariadb $(MARIADB) --suite $(or $(SUITE),galera$(comma)galera_3nodes$(comma)wsrep)
endif

# The long form of everything: more seeds, every call that can panic, MariaDB's suites whole, every fault on real servers.
test-all:
	@scripts/install-deps.sh --packages --balance
	@LONG=1 scripts/run-tests

sim:
	cargo build --profile sim --locked -p trireme-sim
	$(BUILD)/sim/trireme-sim --seeds 0..$(SEEDS) --jobs $$(nproc)
	$(BUILD)/sim/trireme-sim --kind harmless --seeds 0..$$(($(SEEDS) / 5)) --jobs $$(nproc)
	$(BUILD)/sim/trireme-sim --kind restored --seeds 0..$$(($(SEEDS) / 20)) --jobs $$(nproc)
	$(BUILD)/sim/trireme-sim --kind large --seeds 0..$$(($(SEEDS) / 10)) --jobs $$(nproc)
	$(BUILD)/sim/trireme-sim --kind hostile --seeds 0..$$(($(SEEDS) / 10)) --jobs $$(nproc)

mutants:
	cargo build --profile sim --locked -p trireme-sim
	$(BUILD)/sim/trireme-sim --mutants --long --jobs $$(nproc) --table docs/testing.md

model:
	cargo build --release --locked -p trireme-model
	$(BUILD)/release/trireme-model --large

# Without PROVIDER= the checked library is built, so that a broken invariant breaks the run. Any other is taken as it is: with PROVIDER=galera it
# counts what Galera loses. CHAOS= takes further options of `trireme chaos`.
chaos: deps-test
	cargo build --release --locked -p trireme-cli
ifeq ($(origin PROVIDER),file)
	cargo build --workspace --locked --example trireme_checked
endif
	$(TRIREME) chaos --provider $(if $(filter file,$(origin PROVIDER)),$(CHECKED),$(PROVIDER)) --nemesis $(NEMESIS) --rounds $(ROUNDS) --flush 0 $(CHAOS)

# Without PROVIDER= the library is built first; any other is taken as it is (`galera`: the installed one).
mtr: deps-test
ifeq ($(origin PROVIDER),file)
	cargo build --release --locked -p trireme-provider
endif
	tests/mtr/run --provider $(PROVIDER) $(if $(SUITE),--suite $(SUITE)) $(if $(TESTS),--tests "$(TESTS)") --out build/mtr
	tests/mtr/compare build/mtr/results.txt

# New inputs go to build/fuzz, harmful ones to fuzz/artifacts. The committed corpus changes by `make fuzz-corpus` only.
FUZZ_FLAGS := -max_len=2048 -malloc_limit_mb=64 -timeout=20
FOUND := $(CURDIR)/build/fuzz/$(TARGET)
fuzz:
	@test -f fuzz/fuzz_targets/$(TARGET).rs || { echo "make fuzz TARGET=…: one of" $$(ls fuzz/fuzz_targets | sed 's/[.]rs$$//'); exit 2; }
	cargo run --locked -p trireme-fuzz-targets --bin fuzz-seeds -- $(TARGET) $(FOUND)
	cd fuzz && cargo +nightly fuzz run $(TARGET) $(FOUND) corpus/$(TARGET) -- $(FUZZ_FLAGS) -max_total_time=$(SECONDS)

# Replaces the committed corpus by the smallest part of what was found, and of itself, that reaches the same code.
fuzz-corpus:
	@test -d $(FOUND) || { echo "nothing was found yet: make fuzz TARGET=$(TARGET)"; exit 2; }
	rm -rf $(FOUND).least && mkdir $(FOUND).least
	cd fuzz && cargo +nightly fuzz run $(TARGET) $(FOUND).least corpus/$(TARGET) $(FOUND) -- $(FUZZ_FLAGS) -merge=1
	rm -r fuzz/corpus/$(TARGET) && mv $(FOUND).least fuzz/corpus/$(TARGET)

bench: deps-test
	@scripts/install-deps.sh --bench
	cargo build --release --locked -p trireme-provider -p trireme-cli
	$(TRIREME) bench $(BENCH) --provider $(PROVIDER) --out $(OUT)
