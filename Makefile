# The commands of the README. Everything they need is installed by scripts/setup.
JOBS ?= $(shell nproc)
PRESET ?= dev
export CTEST_PARALLEL_LEVEL ?= $(JOBS)

.PHONY: help setup setup-demo demo test nightly bench fuzz format clean build

help:
	@echo "make demo    set up, build, run the main job on this machine"
	@echo "make test    set up, build, run the whole test suite"
	@echo "make nightly the same tests with a hundred times as many random cases (hours; TESTS=REGEX chooses)"
	@echo "make bench   benchmarks as JSON in build/bench-results"
	@echo "make fuzz    libFuzzer targets, FUZZ_SECONDS each (default 60)"
	@echo "make format  format the sources"
	@echo "make clean   remove build/"

setup:
	scripts/setup all

setup-demo:
	scripts/setup build

build:
	cmake --preset $(PRESET)
	cmake --build --preset $(PRESET) -j $(JOBS)

demo: setup-demo
	scripts/demo

test: setup
	$(MAKE) build PRESET=dev
	ctest --preset dev --schedule-random

nightly: setup
	$(MAKE) build PRESET=nightly
	ctest --preset nightly $(if $(TESTS),-R '$(TESTS)')

bench:
	scripts/bench

fuzz:
	scripts/fuzz

format:
	git ls-files '*.hpp' '*.cpp' '*.h' '*.cu' | xargs clang-format-14 -i

clean:
	rm -rf build
