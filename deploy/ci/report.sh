#!/usr/bin/env bash
# What a run left behind, for people and for the CI server; to be called whether the run passed or not, also after a cancel.
#
#   FTCI_DIR   as for run.sh;  FTCI_FAIRTRIAL  as for run.sh
#   FTCI_OUT   where the files go (default: $FTCI_DIR/report): trial.json (run.json, when the command held several
#              trials), junit.xml, summary.md, otlp.jsonl
#
# Under GitHub Actions also the job summary, at most ten annotations, and the outputs of the step.
# Its status is 0: what failed has said so already, and a report that cannot be written must not fail a job.
set -uo pipefail

dir=${FTCI_DIR:?FTCI_DIR is not set}
out=${FTCI_OUT:-$dir/report}
fairtrial=${FTCI_FAIRTRIAL:-$dir/venv/bin/fairtrial}
unset "${!FTCI_@}"
mkdir -p "$out"
if [ -n "${GITHUB_OUTPUT:-}" ]; then echo "report=$out" >>"$GITHUB_OUTPUT"; fi
say() { echo "fairtrial: $*" >&2; }

# The record names the trial; a run that was cancelled has none, and its trial is the last of this store.
# A command that held several trials (a harness) left a record of the run, a trial a line: all of them are told.
what=last
trials=(last)
record=trial.json
if [ -s "$dir/trial.json" ]; then
  if grep -q '^{"schema":"fairtrial.run/1"' "$dir/trial.json"; then record=run.json; fi
  what=$out/$record
  cp "$dir/trial.json" "$what"
  mapfile -t trials < <(sed -n -e 's/^  "trial": "\([0-9a-f-]\{36\}\)",\{0,1\}$/\1/p' \
    -e 's/^{"schema":"fairtrial.trial\/1","trial":"\([0-9a-f-]\{36\}\)".*/\1/p' "$what")
  [ ${#trials[@]} -gt 0 ] || trials=(last)
fi
status=$(cat "$dir/status" 2>/dev/null) || status=

if [ ! -e "$dir/store.db" ]; then
  text="fairtrial did not observe this run (its exit status: ${status:-not known}); the log of the step says why."
  say "$text"
  echo "## ⚪ not observed: $text" >"$out/summary.md"
  if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then cat "$out/summary.md" >>"$GITHUB_STEP_SUMMARY"; fi
  exit 0
fi

ask() { "$fairtrial" "$@" --store "$dir/store.db"; }
# After a cancel the run may still be ending.
for _ in 1 2 3 4 5 6 7 8 9 10; do
  ask report "$what" --format markdown --output "$out/summary.md" 2>"$dir/report.log" && break
  sleep 1
done
[ -e "$out/summary.md" ] || say "no summary was written: $(cat "$dir/report.log")"
ask report "$what" --format junit --output "$out/junit.xml" || say "no JUnit file was written"
ask export "${trials[@]}" --jsonl --output "$out/otlp.jsonl" || say "no OTLP JSON was written"
[ -e "$out/$record" ] || ask show last --json >"$out/$record" || say "no record was written"
if [ -n "${GITHUB_ACTIONS:-}" ]; then ask report "$what" --format github || say "no annotations were written"; fi
if [ "$status" = 75 ]; then
  advice="Exit status 75: what ended this trial is proved and may be the infrastructure's, so it is worth a retry, on a fresh machine or checkout: what this try wrote is still here."
  if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then printf '\n> %s\n' "$advice" >>"$GITHUB_STEP_SUMMARY"; else say "$advice"; fi
fi
exit 0
