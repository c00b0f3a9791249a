# Everything a person types here; CI calls the same targets. Needs Rust and make; the rest is installed or named.
.DEFAULT_GOAL := help
.PHONY: help demo up down status test sim chaos test-kubernetes test-pgbouncer rolling nightly clients dashboard test-dashboard chart images bench redact-bench harvest crowd fmt lint

export CARGO_TARGET_DIR ?= target
BIN := $(CARGO_TARGET_DIR)/debug
BUILD := cargo build --workspace --bins --quiet
# said where nothing was built before: the rest is quiet
FIRST = test -x $(BIN)/bex-stack || echo 'building; the first time this takes some minutes and says nothing'

help: ## what there is
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

demo: ## one session live, then its replay; STREAM=file.sse plays a recording, KEEP=1 leaves the stack running, SANDBOX=kubernetes in a pod of a double of a cluster
	@scripts/setup postgres
	@$(FIRST)
	@scripts/dashboard build
	@$(BUILD)
	@$(if $(STREAM),STREAM='$(STREAM)') $(if $(KEEP),KEEP='$(KEEP)') $(BIN)/bex-demo

up: ## the stack in the background; .bex/dev.json tells where; SANDBOX=kubernetes as above
	@scripts/setup postgres
	@$(FIRST)
	@scripts/dashboard build
	@$(BUILD)
	@$(BIN)/bex-stack up

down: ## ends it
	@test -x $(BIN)/bex-stack || $(BUILD)
	@$(BIN)/bex-stack down

status: ## whether it runs
	@test -x $(BIN)/bex-stack || $(BUILD)
	@$(BIN)/bex-stack status

test: ## format, lint, unit, store on real PostgreSQL, end to end with the real binaries, in both kinds of sandboxes, the AI SDK's clients, the page in Chromium
	@scripts/test

test-kubernetes: ## the end-to-end tests with sandboxes that are pods of a double of a cluster
	@scripts/test build pods

test-pgbouncer: ## the store and the end-to-end tests through pgbouncer in transaction mode
	@scripts/test build pooled pooled_e2e

rolling: ## an update from an earlier release under load; PREVIOUS=<commit>, else the one before the newest migration
	@scripts/setup postgres
	@scripts/rolling $(PREVIOUS)

nightly: ## as test, with ten times the random cases and fifty times the viewers
	@BEX_MERGE_CASES=10000 SIM_SEEDS=10000 BEX_SIM_SEQUENCES=200 BEX_CLIENTS_RANDOM=1000 BEX_DASHBOARD_RANDOM=200 BEX_JOIN_ATTACHES=10000 BEX_JOIN_PARTS=10000 NEXTEST_PROFILE=nightly scripts/test

sim: ## seeded runs of Completers, tees, store and sandboxes; SIM_SEED=n plays one again, SIM_SEEDS=n so many
	@SIM_SEED='$(SIM_SEED)' SIM_SEEDS='$(SIM_SEEDS)' cargo test -p bex-sim --quiet seeds:: -- --nocapture

chaos: ## half an hour of sessions while everything under them is killed, cut off or full; BEX_CHAOS_SEED=n plays faults again, BEX_CHAOS_SECONDS=n so long
	@scripts/setup postgres
	@cargo build --workspace --bins --all-features --quiet
	@BEX_CHAOS_SECONDS=$${BEX_CHAOS_SECONDS:-1800} $(BIN)/bex-chaos

clients: ## the AI SDK's clients, oldest and newest, read stored transcripts, timed; pages in jsdom and Chromium watch sessions
	@BEX_CLIENTS_MEASURED=true scripts/clients

dashboard: ## the page under /ui, into dashboard/dist; needs Node
	@scripts/dashboard build

test-dashboard: ## the page in Chromium against the real system: live, lost networks, drains, keys, axe; screenshots into target/dashboard
	@scripts/test dashboard

chart: ## the Helm chart without a cluster: schemas, who reaches whom, who may what
	@scripts/chart

images: ## images of api, gateway and driver by buildah, no daemon, no registry; prints their sizes
	@scripts/images

bench: ## the figures of the README, each beside its floor
	@scripts/setup postgres nginx
	@cargo build --release --workspace --bins --all-features --quiet
	@$(CARGO_TARGET_DIR)/release/bex-bench

redact-bench: ## redactor and gate over 64 MiB beside gitleaks, 1 MiB of what each rule likes least, the time of a part
	@scripts/redact-bench

harvest: ## 16 MiB out of a pod of a double of a cluster, through its WebSocket and the exec listener, beside its floor
	@cargo build --release --workspace --bins --all-features --quiet
	@cargo bench --workspace --all-features --bench harvest --quiet

crowd: ## viewers by the thousand, slow ones among them: memory, latency and ends, each beside its floor
	@scripts/setup postgres nginx nchan
	@cargo build --release --workspace --bins --all-features --quiet
	@$(CARGO_TARGET_DIR)/release/bex-crowd

fmt: ## formats
	@cargo fmt --all

lint: ## clippy and shellcheck
	@scripts/test lint
