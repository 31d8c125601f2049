# `make` lists the targets. Each installs what it needs (Debian packages, as root) or says what is missing.
SHELL := /bin/bash
PREFIX ?= /usr/local
SECONDS_EACH ?= 10

.PHONY: help build demo demo-ceph check hooks test test-all soak instructions e2e ceph-test vm-test bench eval lint \
    csi csi-sanity fuzz docs book man install sbom deb image clean

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*\#\#' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

build: ## the roadtrain program, in target/release
	@scripts/setup.sh build
	cargo build --release --package roadtrain

demo: ## serve a file, attach it, use it with unmodified programs, measure with and without batching
	@scripts/setup.sh build e2e
	scripts/demo.sh

demo-ceph: ## a Ceph cluster of one machine from nothing, a gateway to it, a disk and a snapshot
	@scripts/setup.sh build ceph
	scripts/demo-ceph.sh

check: ## before a push: format, clippy, unit tests of what has changed and of what depends on it
	@scripts/setup.sh build
	scripts/check.sh

hooks: ## have git run `make check` before each push (scripts/hooks.sh --remove ends that)
	scripts/hooks.sh

test: ## unit and end-to-end tests, one guest with a real kernel, one Ceph cluster: minutes
	@scripts/test.sh normal

test-all: ## everything that can fail: all kernels, Ceph, fuzzing, packages, 100,000 seeds (an hour and a half)
	@scripts/test.sh all

soak: ## hundreds of faults, 10^6 operations, 200,000 seeds: hours
	@scripts/test.sh soak

instructions: ## instructions per request, counted by callgrind, against xtask/instructions.txt
	@scripts/test.sh instructions

e2e: ## all end-to-end tests: the program with fio, qemu-img, nbdcopy; kill -9; reload
	@scripts/test.sh e2e-all

ceph-test: ## all tests on Ceph clusters of one machine: images and gateways
	@scripts/test.sh ceph-all

vm-test: ## all tests against real Linux kernels, as host and as target, in virtual machines
	@scripts/test.sh vm-all

bench: build ## the tables of docs/PERFORMANCE.md, and JSON in lab/results (QUICK=1: in 4 minutes)
	cargo lab table $(if $(QUICK),--quick)

eval: build ## published figures, applications, Ethernet's bars: eval.html, apps.html, JSON, SVG (90 minutes; QUICK=1: 20)
	@scripts/setup.sh eval || echo "what is not installed is left out"
	cargo lab eval $(if $(QUICK),--quick)
	cargo lab apps $(if $(QUICK),--quick)
	cargo build --release --package roadtrain-exercise
	cargo lab ether $(if $(QUICK),--rounds 1 --seconds 0.5 --only use,tcp,cost)

csi: ## roadtrain-csi, the CSI driver for Kubernetes, in target/release
	@scripts/setup.sh build
	cargo build --release --manifest-path csi/Cargo.toml

csi-sanity: ## Kubernetes' csi-sanity against the driver and a target; SKIPPED where it cannot be had
	@scripts/test.sh csi=csi_sanity

lint: ## format, clippy, layers, sizes, documents, dependencies, shell scripts
	@scripts/setup.sh build lint
	scripts/lint.sh

fuzz: ## every fuzz target for SECONDS_EACH (10) seconds
	@scripts/setup.sh build fuzz
	scripts/fuzz.sh all $(SECONDS_EACH)

docs: ## API documentation, in target/doc
	@scripts/setup.sh build
	cargo doc --workspace --no-deps

book: ## the documents as a book, in target/book, to be read offline; fails on broken links
	@scripts/setup.sh book
	scripts/book.sh

man: build ## man pages and shell completions, in target/man and target/completions
	target/release/roadtrain man target/man
	target/release/roadtrain completions --dir target/completions

install: man ## program, man pages, completions and systemd units under PREFIX (/usr/local)
	install -D target/release/roadtrain $(DESTDIR)$(PREFIX)/bin/roadtrain
	install -d $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	install -m 644 target/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 target/completions/roadtrain.bash \
	    $(DESTDIR)$(PREFIX)/share/bash-completion/completions/roadtrain
	install -d $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	install -m 644 target/completions/_roadtrain $(DESTDIR)$(PREFIX)/share/zsh/site-functions
	install -m 644 target/completions/roadtrain.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	for unit in systemd/*.service; do \
	    sed 's|/usr/local|$(PREFIX)|' $$unit | \
	        install -m 644 /dev/stdin $(DESTDIR)$(PREFIX)/lib/systemd/system/$${unit##*/}; done

sbom: ## what the program is built of, as CycloneDX has it, in target/sbom
	cargo xtask sbom

deb: sbom ## Debian packages in target/debian, checked by lintian
	@scripts/setup.sh build deb
	scripts/release-build.sh
	ROADTRAIN=target/package/dist/roadtrain LIBROADTRAIN=target/package/dist/libroadtrain.so scripts/deb.sh
	lintian --fail-on error,warning target/debian/*.deb

image: deb ## OCI image of the package, for podman and Docker, in target/image; needs no network
	scripts/image.sh

clean: ## remove what was built
	cargo clean
	rm -rf fuzz/target fuzz/corpus fuzz/artifacts
