"""`fairtrial run` around a harness that deletes a failed attempt: its files are kept, and come in by `import`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.e2e import clients
from tests.e2e.under import NO_DOCKER, fairtrial, run_under
from tests.middleware.harnesses.test_keep import HARBOR

# The observer is up some time after the command: wait for its view of folders, at most 30 s.
WAIT = """
import glob, os, time
def watched():
    for fd in glob.glob("/proc/[0-9]*/fd/*"):
        try:
            if os.readlink(fd) == "anon_inode:inotify":
                stat = open("/proc/" + fd.split("/")[2] + "/stat").read().rpartition(")")[2].split()
                if int(stat[1]) == os.getppid():
                    return True
        except OSError:
            pass
    return False
end = time.monotonic() + 30
while not watched() and time.monotonic() < end:
    time.sleep(0.02)
"""


@pytest.mark.parametrize("limit, kept", [(None, 2), ("0", 0)])
def test_failed_attempts_are_kept_beside_the_store_unless_switched_off(
    home: Path, project: Path, tmp_path: Path, limit: str | None, kept: int
) -> None:
    program = tmp_path / "harbor"
    arguments = ["jobs", "3"] if kept else ["jobs", "3", "nowait"]
    program.write_text(f"#!{sys.executable}\n{WAIT if kept else ''}import sys\nsys.argv[1:] = {arguments}\n{HARBOR}")
    program.chmod(0o755)
    more = NO_DOCKER if limit is None else {**NO_DOCKER, "FAIRTRIAL_STORE__KEEP_LIMIT_BYTES": limit}
    environment = clients.clean_environment(home, **more)
    under = run_under([str(program), "run", "-p", "tasks"], environment, project, kept=tmp_path / "kept")
    assert under.outcome.returncode == 0, under.told()
    folder = under.store.parent / "keep" / under.trial.trial
    assert len(list(folder.glob("*/*/result.json"))) == kept, under.told()
    assert ("kept the files of 2 attempts" in under.outcome.stderr) is bool(kept)
    store = ("--store", str(under.store))
    for path in (folder, project / "jobs") if kept else (project / "jobs",):
        said = fairtrial("import", "harbor", str(path), "--json", *store, environment=environment)
        assert said.returncode == 0, said.stderr
    told = json.loads(fairtrial("show", under.trial.trial, "--json", *store, environment=environment).stdout)
    assert (told["outcome"], told["outcome_source"]) == ("passed", "harbor")
