# What one does with this repository. Each target first installs what it needs and the machine lacks (scripts/setup).

.PHONY: help setup build run demo test matrix trust upstream bench lint sha

help: ## list these targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

run: build ## build, and serve on 127.0.0.1:6379 (PORT=6380 for another port)
	@scripts/run

demo: build ## a guided tour of the commands, on a private server
	@scripts/demo

test: build ## all tests, on the system's redis-server
	scripts/check-conf redis-server
	scripts/cargo test --locked --workspace
	scripts/test-python newest
	scripts/test-python oldest -m 'not package'

matrix: build ## the tests on every tested server
	@scripts/matrix

trust: build ## crashes, failovers, hostile input, load, upgrades: in full, on every tested server; most of an hour
	@scripts/setup bench
	@scripts/trust

upstream: build ## the server's own suite with the module against without (UNITS=short for some of it, UNITS="unit/dump ...")
	@scripts/setup upstream
	@scripts/upstream $(UNITS)

bench: build ## the benchmarks, docs/benchmarks.md anew, and an error if a budget is missed
	@scripts/setup bench
	@scripts/bench

sha: ## print the SHA1 of a script (FILE=...), for the lists of redis.conf
	@scripts/sha $(FILE)

lint: setup ## formatting, clippy, docs, circles, scripts, the Python client, Dockerfile, compose.yaml
	@scripts/lint

build: setup ## the module alone, into target/release
	scripts/cargo build --locked --release

setup: ## only install what the others need and this machine lacks
	@scripts/setup
