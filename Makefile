# Short names for the scripts; `make help` lists them.
.DEFAULT_GOAL := build
.PHONY: help build test asan tsan fuzz fmt lint up clean
help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile
build: ## release build in build/release/bin
	scripts/build release
test: ## set-up, build, every test
	scripts/test
asan: ## the tests under AddressSanitizer and UBSan
	scripts/test --preset asan
tsan: ## the tests under ThreadSanitizer
	scripts/test --preset tsan
fuzz: ## every fuzzer, 60 s each
	scripts/fuzz --seconds 60
fmt: ## format our C
	git ls-files -co --exclude-standard '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' | xargs .venv/bin/clang-format -i
lint: ## layers, sizes, format, clang-tidy with its analyzer
	scripts/lint --analyze
up: ## a local cluster
	scripts/quickstart
clean:
	rm -rf build
