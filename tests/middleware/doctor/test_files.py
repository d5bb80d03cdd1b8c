"""Files of a project: each kind is told by its content, a bad one is one sentence and stops no other."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairtrial.middleware.doctor.declared import all_flags
from fairtrial.middleware.doctor.files import FileReport, examine_files, looks_like_files, print_files
from tests.middleware.cli.test_cli import fairtrial

GIB = 1 << 30
KEYS = re.findall(
    r"\S+",
    "services jobs on apiVersion kind spec template containers resources limits requests memory cpu deploy mem_limit "
    "agents tasks environment steps script timeout timeout-minutes container options metadata items default job",
)


def read(folder: Path, name: str, text: str) -> FileReport:
    (folder / name).write_text(text)
    (report,) = examine_files([str(folder / name)])
    return report


@pytest.mark.parametrize(
    "name, text, words",
    [
        ("a.yaml", "a: [1\nb: {", "is no valid YAML: expected ',' or ']'"),
        ("a.yaml", "a: 1\na: 2\n", "is no valid YAML: found duplicate key"),
        ("task.toml", "a = = 1", "is no valid TOML"),
        ("a.yaml", "services: [1]", "services is no table but a list"),
        ("a.yaml", "services: {x: {mem_limit: lots}}", "services.x.mem_limit: 'lots' is no size such as 512m"),
        ("a.yaml", "apiVersion: v1\nkind: Pod\nspec: {containers: {}}", "spec.containers is no list"),
        ("a.yaml", "on: push\njobs: {a: {timeout-minutes: soon}}", "jobs.a.timeout-minutes: 'soon' is no number"),
        ("a.yaml", "agents: []\ntasks: []\nenvironment: {memory_enforcement_policy: soft}", "none of auto, limit"),
    ],
)
def test_a_bad_file_is_one_sentence_that_names_the_place(tmp_path: Path, name: str, text: str, words: str) -> None:
    assert words in (read(tmp_path, name, text).problem or "")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "compose.yml")
    assert [r.problem for r in examine_files([f"{tmp_path}/compose.yml"])] == ["is no regular file"]
    assert [r.problem for r in examine_files([f"{tmp_path}/"])] == ["is no regular file"]


@pytest.mark.parametrize("size", ["inf", "nan", "1e400"])
def test_a_size_that_is_no_amount_is_one_sentence(tmp_path: Path, size: str) -> None:
    report = read(tmp_path, "task.toml", f"[environment]\nmemory_mb = {size}\n[agent]\ntimeout_sec = {size}\n")
    assert report.problem is not None
    assert "is no number" in report.problem


def test_a_file_that_is_not_there_or_not_text_is_said(tmp_path: Path) -> None:
    (report,) = examine_files([str(tmp_path / "none.yaml")])
    assert report.problem == "cannot be read: No such file or directory"
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    (report,) = examine_files([str(tmp_path / "b.yaml")])
    assert report.problem == "is no text in UTF-8"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, deadline=None)
@given(
    tree=st.recursive(
        st.one_of(
            st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.sampled_from(["1Gi", "512m", "auto"])
        ),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(KEYS),
                inner,
                max_size=5,
            ),
        ),
        max_leaves=30,
    )
)
def test_no_document_whatever_breaks_a_reader(tmp_path: Path, tree: object) -> None:
    (tmp_path / "x.yaml").write_text(json.dumps(tree))
    (report,) = examine_files([str(tmp_path / "x.yaml")])
    for declared in report.declared:
        list(all_flags(declared))
    json.dumps(report.record())


def test_of_a_folder_only_what_is_known_or_broken_is_told(tmp_path: Path) -> None:
    (tmp_path / "tasks" / "a").mkdir(parents=True)
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "tasks" / "a" / "task.toml").write_text("[environment]\nmemory_mb = 1024\n")
    (tmp_path / "tasks" / "values.yaml").write_text("a: 1\n")
    (tmp_path / "tasks" / "broken.yml").write_text("a: [")
    (tmp_path / "node_modules" / "compose.yaml").write_text("services: {x: {}}")
    told = {Path(report.path).name: report.kind for report in examine_files([str(tmp_path)])}
    assert told == {"task.toml": "Harbor task", "broken.yml": None}


def test_a_stream_of_documents_is_read_whole(tmp_path: Path) -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: c}]}\n"
    report = read(tmp_path, "pods.yaml", f"{pod % 'a'}---\n# nothing\n---\n{pod % 'b'}")
    assert [declared.name for declared in report.declared] == ["a/c", "b/c"]


def test_words_are_files_by_their_shape_and_a_command_stays_a_command(tmp_path: Path) -> None:
    assert looks_like_files(["task.toml", "x/y.yaml"])
    assert looks_like_files([str(tmp_path)])
    assert looks_like_files(["nosuchfolder/", "."])
    assert looks_like_files(["/nosuchfolder/deploy"])
    assert not looks_like_files([])
    assert not looks_like_files(["claude", "-p", "task.toml"])
    assert not looks_like_files(["python"])


def test_what_exists_is_a_path_without_a_slash_too_unless_it_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("k", "sh"):
        (tmp_path / folder).mkdir()
    (tmp_path / "Dockerfile").touch()
    (tmp_path / "run.sh").touch(mode=0o755)
    assert looks_like_files(["k", "Dockerfile"])
    assert not looks_like_files(["sh"])
    assert looks_like_files(["sh/"])
    assert not looks_like_files(["./run.sh"])
    assert not looks_like_files(["k", "--flag"])
    (tmp_path / "k" / "c.yaml").write_text("services: {x: {mem_limit: 1g}}")
    done = fairtrial(tmp_path, "doctor", "k")
    assert (done.returncode, "k/c.yaml (compose)" in done.stdout) == (0, True), done.stdout + done.stderr


def test_the_screen_names_floor_ceiling_headroom_and_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.yaml").write_text("services: {x: {mem_limit: 1g, cpus: 1}}")
    print_files(examine_files([str(tmp_path / "c.yaml"), str(tmp_path / "none.yaml")]))
    said = capsys.readouterr().out
    assert "(compose)" in said
    assert "x: memory: floor not guaranteed, ceiling 1.0 GiB" in said
    assert "! swap: up to 1.0 GiB more" in said
    assert said.splitlines()[-1] == "1 declared, 1 flags, 1 could not be read"


def test_the_command_reads_files_and_its_status_says_whether_it_could(tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_text("[environment]\nmemory_mb = 1024\n")
    told = fairtrial(tmp_path, "doctor", "task.toml", "--json")
    assert told.returncode == 0, told.stderr
    (report,) = json.loads(told.stdout)
    assert report["declared"][0]["memory"]["ceiling"] == GIB
    assert fairtrial(tmp_path, "doctor", "task.toml", "none.toml").returncode == 1


@pytest.mark.parametrize(
    "name, text, words",
    [
        ("chart.yaml", "kind: Pod\nspec: {containers: [{name: {{ .Values.x }} }]}", "is a template"),
        ("chart.yaml", "{{- if .Values.on }}\nkind: Pod\n{{- end }}\n", "is a template"),
        ("a.yaml", b"\xff\xfea", "is no text in UTF-8"),
    ],
)
def test_a_file_that_is_no_yaml_yet_says_what_it_is(tmp_path: Path, name: str, text: str | bytes, words: str) -> None:
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    (report,) = examine_files([str(tmp_path / name)])
    assert words in (report.problem or "")


def test_tags_that_ci_services_and_compose_know_are_no_errors(tmp_path: Path) -> None:
    report = read(tmp_path, ".gitlab-ci.yml", "job:\n  script:\n    - !reference [.t, script]\n  timeout: 1h\n")
    assert (report.problem, [one.name for one in report.declared]) == (None, ["job"])
    report = read(
        tmp_path, "c.yaml", "services:\n  a:\n    ports: !reset []\n    x: !override {b: 1}\n    mem_limit: 1g\n"
    )
    assert [one.memory_ceiling for one in report.declared] == [GIB]


def test_a_variable_costs_its_service_alone_and_a_default_counts(tmp_path: Path) -> None:
    text = """
    x-small: &small {mem_limit: 512m, cpus: 1}
    services:
      anchored: {<<: *small}
      extended: {extends: {service: anchored}, cpus: 2, profiles: [debug]}
      given: {mem_limit: "${MEM:-1g}", cpus: 1}
      unknown: {mem_limit: "${MEM}"}
      elsewhere: {extends: {file: o.yaml, service: a}}
      ring: {extends: ring}
    """
    report = read(tmp_path, "c.yaml", text)
    assert report.problem is None
    found = {one.name: (one.memory_ceiling, one.cpu_ceiling) for one in report.declared}
    assert found["anchored"] == (GIB // 2, 1.0)
    assert found["extended"] == (GIB // 2, 2.0)
    assert found["given"] == (GIB, 1.0)
    flags = {one.name: " ".join(flag.text for flag in one.flags) for one in report.declared}
    assert "taken as 1g, another where MEM is set" in flags["given"]
    assert "services.unknown.mem_limit is ${MEM}: known only when it runs" in flags["unknown"]
    assert "extends o.yaml, service a" in flags["elsewhere"]
    assert "extends service ring" in flags["ring"]


def test_limits_that_a_pod_or_a_ci_service_gives_are_found(tmp_path: Path) -> None:
    pod = "{apiVersion: v1, kind: Pod, spec: {resources: {limits: {memory: 2Gi}}, containers: [{name: a}]}}"
    (container,) = read(tmp_path, "p.yaml", pod).declared
    assert container.memory_ceiling == 2 * GIB
    text = """
    on: push
    jobs:
      a:
        container: "node:20"
        services: {db: {image: pg, options: --memory 256m}, plain: {image: x}}
      b:
        container: {image: x, options: "${{ matrix.options }}"}
    """
    boxes = {one.name: one for one in read(tmp_path, "w.yaml", text).declared}
    assert set(boxes) == {"a", "a/db", "b"}
    assert (boxes["a"].limited, boxes["a/db"].memory_ceiling, boxes["b"].limited) == (True, GIB // 4, False)
    text = """
    variables: {KUBERNETES_MEMORY_LIMIT: 2Gi}
    .t: {script: [x], timeout: 3h}
    job: {extends: [.none, .t], variables: {KUBERNETES_MEMORY_REQUEST: {value: 1Gi}}}
    pages: {script: [x], variables: {KUBERNETES_MEMORY_LIMIT: $SIZE}}
    """
    jobs = {one.name: one for one in read(tmp_path, ".gitlab-ci.yml", text).declared}
    assert (jobs["job"].memory_floor, jobs["job"].memory_ceiling, jobs["job"].times) == (GIB, 2 * GIB, {"job": 10_800})
    assert not jobs["pages"].limited
