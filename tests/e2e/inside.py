"""One whole CI job inside a container: a stand-in, and the demo's agent under `fairtrial run`.  Run there as a program.

In: a JSON object on the command line: `tools` (shell lines of the agent's one turn), `check` (its check), `after` (a
shell line that the command becomes once the agent is through), `options` of `fairtrial run`.  Out: one JSON object on
stdout: `status` (of `fairtrial run`), `said` (its stderr), `record`, `doctor` (its findings).  Nothing here asserts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fairtrial.middleware.demo.script import say, shell
from fairtrial.middleware.demo.standin import running_standin

WATCHED = (
    f"n=0; until [ $n = 100 ] || {sys.executable} -m fairtrial show last --json 2>/dev/null"
    """ | grep -q '"cgroup": "on"'; do n=$((n+1)); sleep 0.1; done"""
)
"""Until the observer has its first reading of the counters: a command that dies before it is another case."""


def main(asked: dict[str, object]) -> dict[str, object]:
    """The job."""
    folder = Path(tempfile.mkdtemp())
    os.environ["HOME"] = str(folder)
    agent = [sys.executable, "-m", "fairtrial.middleware.demo.agent", "--check", str(asked.get("check", "true"))]
    after = asked.get("after")
    command = agent if after is None else ["sh", "-c", f'"$@" || true; {WATCHED}; {after}', "sh", *agent]
    options = [str(option) for option in asked.get("options", [])]  # type: ignore[attr-defined]
    tools = [str(line) for line in asked["tools"]]  # type: ignore[attr-defined]
    with running_standin([shell(*tools), say("Done.")]) as server:
        environ = {**os.environ, "ANTHROPIC_BASE_URL": server.url}
        record = folder / "trial.json"
        line = [sys.executable, "-m", "fairtrial", "run", "--json", str(record), *options, "--", *command]
        done = subprocess.run(line, env=environ, cwd=folder, capture_output=True, text=True, check=False)
        doctor = [sys.executable, "-m", "fairtrial", "doctor", "--json"]
        looked = subprocess.run(doctor, env=environ, cwd=folder, capture_output=True, text=True, check=False)
    return {
        "status": done.returncode,
        "said": done.stderr,
        "out": done.stdout,
        "record": json.loads(record.read_text()) if record.exists() else None,
        "doctor": json.loads(looked.stdout or "null"),
        "doctor_said": looked.stderr,
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
