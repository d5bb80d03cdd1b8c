#!/usr/bin/env bash
# A Jaeger on this machine, in the foreground: STORAGE=memory (the default) or badger (kept in .cache/jaeger/badger).
# It is $JAEGER_BIN, else the one that tests/jaeger.sh builds where Go is, else the container image. Then:
#   OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 fairtrial run -- …      and look at http://127.0.0.1:16686
# One that was built with Go has the whole API and no pages (docs/jaeger.md); the image has both.
set -euo pipefail
cd "$(dirname "$0")/../.."
storage=${STORAGE:-memory}
case "$storage" in
  memory) backend='{memory: {max_traces: 100000}}' ;;
  badger) backend='{badger: {directories: {keys: %s/keys, values: %s/values}, ephemeral: false, ttl: {spans: 336h}}}' ;;
  *) echo "jaeger: STORAGE=$storage is not known; say memory or badger" >&2; exit 2 ;;
esac
folder=$PWD/.cache/jaeger
mkdir -p "$folder/badger"
config=$folder/$storage.yaml

write_config() { # the address to listen on, the folder of badger
  # shellcheck disable=SC2059 # the folder stands twice in the form
  local kept; kept=$(printf "$backend" "$2" "$2")
  cat >"$config" <<YAML
service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines: {traces: {receivers: [otlp], exporters: [jaeger_storage_exporter]}}
  telemetry: {resource: {service.name: jaeger}, metrics: {level: none}, traces: {level: none}}
extensions:
  jaeger_storage: {backends: {kept: $kept}}
  jaeger_query: {storage: {traces: kept}, http: {endpoint: "$1:16686"}, grpc: {endpoint: "$1:16685"}}
receivers:
  otlp: {protocols: {grpc: {endpoint: "$1:4317"}, http: {endpoint: "$1:4318"}}}
exporters:
  jaeger_storage_exporter: {trace_storage: kept}
YAML
}

said() { echo "jaeger ($storage): http://127.0.0.1:16686 once it is up; OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318; Ctrl-C ends it" >&2; }

program=${JAEGER_BIN:-$folder/jaeger}
if [ ! -x "$program" ] && command -v go >/dev/null; then
  echo "jaeger: building it once, some minutes" >&2
  bash tests/jaeger.sh
fi
if [ -x "$program" ]; then
  write_config 127.0.0.1 "$folder/badger"
  said
  exec "$program" --config "$config"
fi
command -v docker >/dev/null || { echo "jaeger: no JAEGER_BIN, no Go to build one, no docker to run its image" >&2; exit 1; }
write_config 0.0.0.0 /badger
said
exec docker run --rm --user 0 -v "$folder/badger:/badger" -v "$config:/etc/jaeger.yaml:ro" \
  -p 127.0.0.1:16686:16686 -p 127.0.0.1:4317:4317 -p 127.0.0.1:4318:4318 \
  jaegertracing/jaeger:2.13.0 --config /etc/jaeger.yaml
