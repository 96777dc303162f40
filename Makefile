# The environment is .venv, made by bin/bootstrap from uv.lock; nothing else is installed outside this folder.
PYTHON := .venv/bin/python
.DEFAULT_GOAL := help
.PHONY: help run test quick nightly lint bench accuracy quality fit seeds samples vectors glossary clean
# Each start of the application would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

run: ## start the application; PORT=8080, ASAP_HOME=/path (docs/operation.md)
	@bin/bootstrap run
	@exec .venv/bin/asap run

test: ## run the tests in four processes, of attacks and faults a sample; ARGS="-n 0 tests/launcher -k port" for some in one
	@bin/bootstrap dev
	@bin/test-tools
	@$(PYTHON) -m pytest -n 4 -m "not nightly" $(ARGS)

quick: ## run the fast tests: excludes browser, application, workers and other slow ones
	@bin/bootstrap dev
	@$(PYTHON) -m pytest -n 2 -m "not slow and not nightly" $(ARGS)

nightly: ## run all tests, with ten times as many odd requests
	@bin/bootstrap dev
	@bin/test-tools
	@$(PYTHON) -m pytest -n 4 --timeout 3000 --fuzz 10 $(ARGS)

lint: ## ruff, mypy, import-linter, djade, Django's checks
	@bin/bootstrap dev
	@bin/lint

bench: ## measure this installation, with the test tools: bench.load needs Locust
	@bin/bootstrap dev
	@for file in bench/[a-z]*.py; do name=$$(basename $$file .py); echo "== $$name"; $(PYTHON) -m bench.$$name || exit 1; done

accuracy: ## regenerate the accuracy pages: diagnoses, proposals, retrieval, failures, campaigns, calibration, single GPU, profiles
	@bin/bootstrap dev
	@$(PYTHON) -m evaluation.steps.evaluate
	@$(PYTHON) -m evaluation.proposing.evaluate
	@$(PYTHON) -m evaluation.retrieval.evaluate
	@$(PYTHON) -m evaluation.failures.evaluate
	@$(PYTHON) -m evaluation.campaigns.evaluate
	@$(PYTHON) -m evaluation.calibration_report
	@$(PYTHON) -m evaluation.single_gpu
	@$(PYTHON) -m evaluation.compiled_report
	@$(PYTHON) -m evaluation.transfer
	@$(PYTHON) -m evaluation.effects
	@$(PYTHON) -m evaluation.real_profiles

quality: ## answer the question set for grading (docs/dialogue.md); ARGS="QUESTIONS RUNS ANSWERS [--endpoint]"
	@bin/bootstrap dev
	@$(PYTHON) -m evaluation.quality.evaluate $(ARGS)

fit: ## fit memory, step times, confidence and ranking to the measured runs; ARGS=--ablate
	@bin/bootstrap dev
	@$(PYTHON) -m evaluation.memory_report --fit
	@$(PYTHON) -m evaluation.fit $(ARGS)
	@$(PYTHON) -m evaluation.fit_confidence
	@$(PYTHON) -m evaluation.proposals_on_sweeps
	@$(PYTHON) -m evaluation.campaigns.fit

seeds: ## regenerate the seed records from the published tables and the measured sweeps
	@bin/bootstrap run
	@$(PYTHON) -m evaluation.seeds.build
	@$(PYTHON) -m evaluation.history_from_sweeps

samples: ## write the shipped profiles anew; ARGS="KEY ..." for some
	@bin/bootstrap run
	@$(PYTHON) -m evaluation.samples $(ARGS)

vectors: ## compute the vectors of the shipped passages and records, which a first start reads
	@bin/bootstrap run
	@$(PYTHON) -m evaluation.shipped_vectors

palette: ## fit which computation a text asks for, from evaluation/questions
	@bin/bootstrap run
	@$(PYTHON) -m evaluation.fit_palette

glossary: ## write docs/glossary.md from what the application shows
	@bin/bootstrap run
	@$(PYTHON) -m evaluation.glossary

clean: ## remove the environment and all caches; the data folder stays
	rm -rf .venv .uv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis test-results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
