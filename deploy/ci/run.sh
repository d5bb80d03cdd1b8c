#!/usr/bin/env bash
# Runs one command under `fairtrial run --gate`. Its exit status is the command's own; 75 when a retry is worth it.
#
#   FTCI_DIR      a folder outside of the workspace (install.sh has put venv/ there); the store is kept in it
#   FTCI_COMMAND  the command, as a line or script of bash
#   FTCI_FAIRTRIAL  a fairtrial that is installed already (default: $FTCI_DIR/venv/bin/fairtrial)
#   FTCI_RUN FTCI_TASK FTCI_TRY   what the trial is called;  FTCI_ADAPT=true  --adapt;  FTCI_GATE=false  no --gate
#   FTCI_ARGUMENTS  further options of `fairtrial run`, one a line, such as --upstream=anthropic=https://gateway.example
#   FTCI_RETRY=true   leave with 0 instead of 75: another job decides (the retry of agent.yml)
#
# None of these reach the command: they are taken out of its environment. What is given in FTCI_COMMAND is run by bash, so it
# is the workflow author's text; a title, a body or a branch name goes into a variable of its own and is quoted there:
#   env: {PROMPT: …}   command: claude -p "$PROMPT"
set -euo pipefail

dir=${FTCI_DIR:?FTCI_DIR is not set: name a folder outside of the workspace}
command=${FTCI_COMMAND:?FTCI_COMMAND is not set: there is no command to run}
fairtrial=${FTCI_FAIRTRIAL:-$dir/venv/bin/fairtrial}
retry=${FTCI_RETRY:-false}
mkdir -p "$dir"
chmod 0700 "$dir"
rm -rf "$dir/status" "$dir/trial.json" "$dir/report"

options=(--store "$dir/store.db" --json "$dir/trial.json")
[ "${FTCI_GATE:-true}" = false ] || options+=(--gate)
[ "${FTCI_ADAPT:-false}" != true ] || options+=(--adapt)
[ -z "${FTCI_RUN:-}" ] || options+=(--run "$FTCI_RUN")
[ -z "${FTCI_TASK:-}" ] || options+=(--task "$FTCI_TASK")
[ -z "${FTCI_TRY:-}" ] || options+=(--try "$FTCI_TRY")
while IFS= read -r line; do [ -z "$line" ] || options+=("$line"); done <<<"${FTCI_ARGUMENTS:-}"
unset "${!FTCI_@}"

# A plain line (words, quotes, variables) is started as it is, so that fairtrial knows which agent it starts and reads its
# settings files. All else is a script for bash, with the flags that the runner itself uses.
command=${command%$'\n'}
plain='^[-A-Za-z0-9_./:,@%+"'"' "'{}$]+$'
odd='\$[^A-Za-z_{]|\$\{[^}]*[^A-Za-z0-9_}]|\$$|(^|[^$])\{' # `$(`, `$$`, `${x:-…}`, `{a,b}`
argv=()
if [[ $command != *$'\n'* && $command =~ $plain && ! $command =~ $odd ]]; then
  set -f
  eval "argv=( $command )" || argv=()
  set +f
fi
if [ ${#argv[@]} -eq 0 ] || ! type -P -- "${argv[0]}" >/dev/null; then
  printf '%s\n' "$command" >"$dir/command.sh"
  argv=(bash --noprofile --norc -eo pipefail "$dir/command.sh")
fi

status=0
"$fairtrial" run "${options[@]}" -- "${argv[@]}" || status=$?
echo "$status" >"$dir/status"

again=no
[ "$status" -ne 75 ] || again=yes
if [ -n "${GITHUB_OUTPUT:-}" ]; then printf 'exit-code=%s\nretry=%s\n' "$status" "$again" >>"$GITHUB_OUTPUT"; fi
if [ "$again" = yes ] && [ "$retry" = true ]; then exit 0; fi
exit "$status"
