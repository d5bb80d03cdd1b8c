#!/usr/bin/env bash
# Builds Jaeger 1.76 (the last version that Go modules can fetch; its binary is v2.13) into .cache/jaeger, about ten minutes once.
# Its UI is a placeholder page; the API is whole. Needs Go 1.24.6 or newer.
set -euo pipefail
cd "$(dirname "$0")/.."
target=.cache/jaeger
[ -x "$target/jaeger" ] && exit 0
command -v go >/dev/null || { echo "jaeger: there is no Go here; set JAEGER_BIN to a Jaeger of your own" >&2; exit 1; }
mkdir -p "$target/module"
cd "$target/module"
[ -f go.mod ] || go mod init jaegertool
go get -tool github.com/jaegertracing/jaeger/cmd/jaeger@v1.76.0
go build -o ../jaeger github.com/jaegertracing/jaeger/cmd/jaeger
