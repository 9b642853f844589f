# SPDX-License-Identifier: GPL-2.0-only
# Everything there is to do, as targets; `make` alone lists them. What is done already is not done
# again: set-up, downloads and builds look for themselves.

.DEFAULT_GOAL := help
.PHONY: help setup ready machine build install uninstall deb test-deb demo test format lint bench soak clean

CARGO ?= cargo
BIN := target/release
TARGETS := --bins --lib
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
# The name by which programs ask for the client library (client/c/build.rs).
SONAME := libonbeat_client.so.$(firstword $(subst ., ,$(VERSION)))

# Those for users, which have manual pages and completions.
PROGRAMS := onbeat scx_onbeat onbeat-lab onbeat-fetch onbeat-play onbeat-work
export PREFIX DESTDIR LIBDIR SYSCONFDIR UNITDIR

C_SOURCES = $(shell git ls-files 'core/*.h' 'core/*.c' 'kernel/src/bpf/*.h' 'kernel/src/bpf/*.c')

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

machine:
	@scripts/setup.sh

setup: ready ## install what is needed, fetch kernels and movies (Debian; root or sudo)
	@scripts/movie-pool.sh

# What the tests need of it.
ready: build
	@$(BIN)/onbeat-fetch
	@scripts/small-movie.sh

build: machine ## build all programs and the client library
	@$(CARGO) build --release --workspace $(TARGETS)
	@ln -sf libonbeat_client.so $(BIN)/$(SONAME)
	@rm -rf target/manual
	@for program in $(PROGRAMS); do $(BIN)/$$program --generate target/manual || exit 1; done

install: ## install what is built; PREFIX= (/usr/local), DESTDIR=, LIBDIR=, SYSCONFDIR=, UNITDIR=
	@scripts/install.sh install

uninstall: ## remove it again; a configuration that was changed stays
	@scripts/install.sh uninstall

deb: build ## build Debian packages, to target/deb
	@scripts/setup.sh packaging
	@rm -rf target/deb && mkdir -p target/deb
	@BUILT=1 DEB_PACKAGES=target/deb debian/rules binary
	@debian/rules clean
	@ls target/deb

test-deb: deb ## install the packages into a fresh Debian, boot it, use and remove them
	@scripts/test-install.sh

demo: setup ## play movies under every policy on a real kernel; report in results/demo
	@$(BIN)/onbeat demo

# Libraries have other features beside those of tests: what is built for `test` is built for these at once.
test: TARGETS += --tests
# .ci/run: lints are part of the build.
ifeq ($(LINTS),build)
test: TARGETS += --benches --examples
endif
test: ready lint ## check formats, lint, run the tests, on real kernels too
	@scripts/judges.sh
	@CARGO=$(CARGO) scripts/test.sh
	$(BIN)/onbeat sim experiments/kato-11.toml

format: ## format all sources
	$(CARGO) fmt --all
	clang-format-19 -i $(C_SOURCES)

lint: build
	$(CARGO) fmt --all --check
	clang-format-19 --dry-run -Werror $(C_SOURCES)
	@! git grep -nE '^(<{7}|>{7}) ' || { echo 'a merge is unfinished there'; exit 1; }
	@[ "$(LINTS)" = build ] || $(CARGO) clippy --release --workspace --all-targets -- -D warnings

bench: setup ## measure: overheads against other schedulers, the simulator's speed
	@scripts/bench.sh

soak: setup ## ten minutes of guest time of random trouble for the scheduler
	@scripts/soak.sh

clean: ## remove what was built and the results; .cache with the downloads stays
	$(CARGO) clean
	rm -rf results
