# The two commands of the README, and the steps that they are made of.
PYTHON := python3

.PHONY: help demo demo-down test lint crds bench

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: ## a cluster, the operator, one OasisDeployment, one question answered
	@$(PYTHON) -m testbed demo

demo-down: ## take the demo down, leaving nothing behind
	@$(PYTHON) -m testbed down --purge

test: ## every test, with all that it needs; prints the time of each stage and one closing line
	@$(PYTHON) -m tests.run

lint: ## ruff and mypy only
	@$(PYTHON) -m tests.run lint

crds: ## generate crds/ and the chart's copy from the operator's models
	@$(PYTHON) -m tests.run crds

bench: ## every figure of bench/README.md, in about an hour on an idle machine
	@$(PYTHON) bench/all.py
