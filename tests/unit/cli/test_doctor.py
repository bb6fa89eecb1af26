"""What the doctor calls durable, and what it refuses to call so."""

import json
import os
from pathlib import Path

import pytest
from anchorwatch.cli.doctor import judge_mesh, verdict
from anchorwatch.cli.doctor_bus import judge
from anchorwatch.mesh.files import DataDir
from anchorwatch.mesh.mesh_settings import MeshSettings, Value
from anchorwatch.mesh.roster import SCALABLE

from tests.unit.cli.conftest import Run


def server(*, sync_always: bool, cluster_size: int = 1) -> dict[str, object]:
    data: dict[str, object] = {"config": {"sync_always": sync_always, "sync_interval": 120_000_000_000}}
    if cluster_size > 1:
        data["meta_cluster"] = {"cluster_size": cluster_size}
    return {"data": data}


def test_one_server_with_sync_always_is_durable() -> None:
    check = judge([server(sync_always=True)], replicas=1)
    assert check.state == "passed"
    assert "a lost disk loses all data" in check.detail


@pytest.mark.parametrize("size", [1, 3])
def test_server_without_sync_always_is_not_durable(size: int) -> None:
    check = judge([server(sync_always=False, cluster_size=size)], replicas=3)
    assert check.state == "failed"
    assert "every 120 s" in check.detail
    assert "sync_interval: always" in check.hint


def test_cluster_with_single_copies_is_not_durable() -> None:
    assert judge([server(sync_always=True, cluster_size=3)], replicas=1).state == "failed"
    assert judge([server(sync_always=True, cluster_size=3)], replicas=3).state == "passed"


def test_one_unsynced_server_of_three_fails_the_check() -> None:
    lazy = {**server(sync_always=False, cluster_size=3), "server": {"name": "n2"}}
    check = judge([server(sync_always=True, cluster_size=3), lazy], replicas=3)
    assert check.state == "failed"
    assert "server n2 syncs" in check.detail


@pytest.mark.parametrize("answer", [{}, {"data": {}}, {"data": {"config": {}}}, {"error": {"code": 503}}])
def test_server_without_sync_settings_is_not_durable(answer: dict[str, object]) -> None:
    assert judge([answer], replicas=1).state == "failed"


def services(*names: str, ready: bool = True) -> dict[str, object]:
    of = {"ready": ready, "announced": ready, "heard_at": None}
    processes = [{"service": name, "instance": f"{name}-1", **of} for name in names]
    return {"processes": processes, "started_at": "2026-03-17T18:56:43+00:00"}


def test_service_without_a_process_fails_the_check(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    assert judge_mesh(services(*SCALABLE), data).state == "passed"
    check = judge_mesh(services("observer", "planner", "notifier"), data)
    assert check.state == "failed"
    assert "no executor (`anchorwatch scale executor 1` starts one)" in check.detail
    assert judge_mesh(services(*SCALABLE, ready=False), data).state == "failed"


def test_doctor_without_a_mesh_exits_1(run: Run) -> None:
    ran = run("doctor", "--json")
    assert ran.code == 1
    checks = {check["name"]: check["state"] for check in json.loads(ran.out)["checks"]}
    assert checks["python"] == checks["nats-server"] == checks["disk"] == "passed"
    assert checks["mesh"] == "failed"
    assert checks["model"] == "note"


def test_readable_secrets_fail_the_check(run: Run) -> None:
    data = DataDir.at(Path("d"))
    data.make()
    run("init", "--data-dir", "d")
    data.credentials.chmod(0o644)
    ran = run("doctor", "--data-dir", "d")
    assert (
        f"FAILED   data directory: other users can read {data.credentials} (chmod go= {data.credentials})"
        in ran.out
    )
    assert not os.access(data.root / "mesh.json", os.F_OK)


def test_llm_without_a_name_fails_the_check(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANCHORWATCH_MODEL", "openai")
    out = run("doctor").out
    assert "FAILED   model: the model `openai` requires a model name" in out
    assert "set ANCHORWATCH_MODEL_NAME" in out
    monkeypatch.setenv("ANCHORWATCH_MODEL_NAME", "gpt-x")
    monkeypatch.setenv("ANCHORWATCH_MODEL_KEY", "sk-s3cret")
    out = run("doctor").out
    assert "ok       model: gpt-x at https://api.openai.com/v1, with a key" in out
    assert "s3cret" not in out


def test_doctor_judges_the_model_of_the_last_start(run: Run) -> None:
    data = DataDir.at(Path("d"))
    data.make()
    kept = {"ANCHORWATCH_MODEL": "openai", "ANCHORWATCH_MODEL_NAME": "m-1"}
    MeshSettings({name: Value(value) for name, value in kept.items()}).save(data)
    assert (
        "ok       model: m-1 at https://api.openai.com/v1, without a key"
        in run("doctor", "--data-dir", "d").out
    )


def test_unknown_variable_is_a_warning(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANCHORWATCH_MODEL_NAM", "m")
    ran = run("doctor")
    assert (
        "WARNING  variables: ANCHORWATCH_MODEL_NAM is set, but is not a setting; did you mean ANCHORWATCH_MODEL_NAME?"
        in ran.out
    )
    assert ran.out.splitlines()[-1] == "1 check failed, 1 warning"


@pytest.mark.parametrize(
    ("signature", "state", "detail"),
    [
        ('"bearer"\nsecret = "0123456789abcdef"', "passed", "/hooks/alerts (grafana, bearer)"),
        ('"open"', "warning", "/hooks/alerts (grafana, open)"),
        ('"none"', "failed", "hook.0.signature must be"),
    ],
)
def test_hooks_of_the_last_start_are_listed(run: Run, signature: str, state: str, detail: str) -> None:
    data = DataDir.at(Path(".anchorwatch"))
    data.make()
    file = Path("hooks.toml").absolute()
    file.write_text(f'[[hook]]\nname = "alerts"\nkind = "grafana"\nsignature = {signature}\n')
    MeshSettings({"ANCHORWATCH_HOOKS": Value(str(file))}).save(data)
    checks = {each["name"]: each for each in json.loads(run("doctor", "--json").out)["checks"]}
    assert checks["hooks"]["state"] == state
    assert detail in checks["hooks"]["detail"]


def test_all_is_well_only_without_a_warning() -> None:
    assert verdict(0, 0) == "all checks passed"
    assert verdict(0, 2) == "no check failed, 2 warnings"
    assert verdict(1, 0) == "1 check failed"
