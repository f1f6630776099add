# Weir. `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help

GO      ?= go
BIN     := bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# The e2e tests run built binaries, of which Go's test cache knows nothing: they are never taken from it.
UNIT     = $(shell $(GO) list ./... | grep -v /deploy/e2e$$)
LDFLAGS := -X github.com/weir-mcp/weir/deploy/process.Version=$(VERSION)

.PHONY: help
help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the binaries into bin/
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./controlplane/cmd/weir-controlplane ./dataplane/cmd/weir-dataplane ./deploy/standalone/cmd/weir-standalone ./deploy/standalone/cmd/weir-demo

.PHONY: run
run: build ## run both planes in one process before the demo backends; ARGS="--backend NAME=URL" for real ones
	@exec $(BIN)/weir-standalone $(ARGS)

.PHONY: test
test: ## run every test; WEIR_REQUIRE_REDIS=1 makes a missing redis-server a failure
	$(GO) test $(UNIT)
	$(GO) test -count=1 -parallel 4 -timeout 30m ./deploy/e2e

.PHONY: check
check: format vet staticcheck race ## format, vet, staticcheck, every test (e2e and docs too) under the race detector, which CI (.ci/run) leaves out for time

.PHONY: format
format: ## fail on files that gofmt would change
	@out=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); test -z "$$out" || { echo "gofmt would change:"; echo "$$out"; exit 1; }

.PHONY: vet
vet: ## go vet
	$(GO) vet ./...

.PHONY: staticcheck
staticcheck: ## staticcheck, at the version that go.mod pins
	$(GO) tool staticcheck ./...

.PHONY: race
race: ## every test under the race detector
	$(GO) test -race $(UNIT)
	$(GO) test -race -count=1 -timeout 30m ./deploy/e2e

.PHONY: conformance
conformance: build ## the official MCP conformance suite, direct and through Weir, and the difference (needs node and npm)
	$(GO) run ./deploy/conformance $(ARGS)

.PHONY: bench
bench: build ## the dataplane against a bare reverse proxy, in one run: ratios and a table for docs/performance.md
	$(GO) build -o $(BIN)/ ./deploy/bench
	$(BIN)/bench $(ARGS)

.PHONY: golden
golden: ## rewrite the golden files
	$(GO) test ./routes ./controlplane/internal/compile -update

.PHONY: clean
clean: ## remove what was built
	rm -rf $(BIN)
