#!/usr/bin/env bash
# Installs fairtrial from this checkout into a folder of its own, so that the agent's environment keeps what it has.
#
#   FTCI_DIR=/somewhere/outside/the/workspace deploy/ci/install.sh     ->  $FTCI_DIR/venv/bin/fairtrial
#
# The version is the checkout's; what it needs comes from the locked lists, by hash, from the registry that pip is set up for
# (its proxy and certificates: PIP_INDEX_URL, HTTPS_PROXY, PIP_CERT). Needs Python 3.11 or newer with venv. Not root. Idempotent.
set -euo pipefail

source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
venv=${FTCI_DIR:?FTCI_DIR is not set: name a folder outside of the workspace}/venv

fresh_enough() { "$1" -c 'import sys, ssl, sqlite3, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

python=
for candidate in python3 python3.14 python3.13 python3.12 python3.11 python; do
  # A name on PATH may be a shim that fails, or too old: each is run before it is believed.
  if command -v "$candidate" >/dev/null && fresh_enough "$candidate"; then python=$candidate && break; fi
done
if [ -z "$python" ]; then
  echo "fairtrial: no Python 3.11 or newer with venv was found on PATH; install one (GitHub: actions/setup-python; Debian: python3-venv)" >&2
  exit 69
fi

want=$(cat "$source_dir"/requirements/{runtime,build}.txt "$source_dir/fairtrial/__init__.py" | cksum)
if [ -x "$venv/bin/fairtrial" ] && [ "$(cat "$venv/.fairtrial-lock" 2>/dev/null)" = "$want" ]; then exit 0; fi

export PIP_DISABLE_PIP_VERSION_CHECK=1
mkdir -p "$FTCI_DIR"
chmod 0700 "$FTCI_DIR"
"$python" -m venv --clear "$venv"
"$venv/bin/python" -m pip install --quiet --require-hashes -r "$source_dir/requirements/runtime.txt" -r "$source_dir/requirements/build.txt"
# A copy is built: the checkout may be read-only, and nothing is written into it.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -R "$source_dir"/{pyproject.toml,README.md,LICENSE,fairtrial,middleware,collectors,exporters} "$copy/"
"$venv/bin/python" -m pip install --quiet --no-deps --no-build-isolation "$copy"
echo "$want" >"$venv/.fairtrial-lock"
"$venv/bin/fairtrial" --version
