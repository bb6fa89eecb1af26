"""Every error is one line on stderr that says the way out, with the exit code of its kind; never a traceback."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from anchorwatch.cli.api import Api
from anchorwatch.core.errors import Unavailable

from tests.unit.cli.conftest import Ran, Run
from tests.unit.cli.gateways import Gateway


def is_one_line(ran: Ran) -> bool:
    return ran.out == "" and ran.err.startswith("anchorwatch: ") and ran.err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["nope"],
        ["up", "--nope"],
        ["up", "--port", "x"],
        ["up", "--port", "70000"],
        ["scale", "executor"],
        ["scale", "executor", "-1"],
        ["show"],
        ["show", "Not A Name", "--url", "http://127.0.0.1:1", "--token", "x"],
        ["show", "../secret", "--url", "http://127.0.0.1:1", "--token", "x"],
        ["show", "fleet/1.2", "--url", "http://127.0.0.1:1", "--token", "x"],
        ["sessions", "create", "x"],
        ["sessions", "--json", "create", "x", "--agent", "y"],
        ["agents", "--data-dir", "elsewhere", "list"],
        ["agents", "show", "a@b", "--url", "http://127.0.0.1:1", "--token", "x"],
        ["publish", "fleet", "x", "--data", "{not json", "--url", "http://127.0.0.1:1", "--token", "x"],
        ["up", "--scale", "executor"],
        ["up", "--scale", "executor=x"],
        ["sessions", "--url", "http://127.0.0.1:1", "--data-dir", "x", "--token", "y"],
        ["sessions", "--url", "127.0.0.1:1", "--token", "y"],
        ["sessions", "--url", "http://127.0.0.1:1"],
        ["sessions", "--url", "http://[::", "--token", "x"],
        ["sessions", "--url", "http://", "--token", "x"],
        ["sessions", "--url", "http://127.0.0.1:x", "--token", "x"],
        ["sessions", "--url", "http://127.0.0.1:70000", "--token", "x"],
        ["sessions", "--url", "http://a\nb", "--token", "x"],
        ["sessions", "--url", "http://127.0.0.1:1", "--token", "é"],
        ["sessions", "--url", "http://127.0.0.1:1", "--token", "x\ny"],
        ["fleet", "jobs", "add", "0"],
        ["serve"],
    ],
)
def test_usage_errors_exit_2(run: Run, words: list[str]) -> None:
    ran = run(*words)
    assert ran.code == 2
    assert is_one_line(ran)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["fleet", "status", "--url", "x"], "`fleet status` takes no --url: it connects to NATS"),
        (["fleet", "jobs", "add", "3", "--url", "x"], "`fleet jobs add` takes no --url: it connects to NATS"),
        (["--url", "x", "doctor"], "`doctor` takes no --url: it connects to NATS"),
        (["doctor", "--token", "x"], "`doctor` takes no --token: it connects to NATS"),
        (["up", "--url", "x"], "`up` takes no --url: it manages a mesh on this machine"),
        (["up", "--json"], "`up` takes no --json: it prints no JSON"),
        (["credentials", "--url", "x"], "`credentials` takes no --url: it manages a mesh on this machine"),
        (["down", "--workspace", "x"], "`down` takes no --workspace: it manages a mesh on this machine"),
        (["demo", "--url", "x"], "`demo` takes no --url: it uses no running mesh"),
        (["models", "probe", "x", "--url", "x"], "`models probe` takes no --url: it uses no running mesh"),
        (["--data-dir", "x", "crash-test"], "`crash-test` takes no --data-dir: it uses no running mesh"),
    ],
)
def test_common_option_that_has_no_meaning_is_refused(run: Run, words: list[str], why: str) -> None:
    ran = run(*words)
    assert ran.code == 2
    assert is_one_line(ran)
    assert why in ran.err
    assert ran.err.endswith(")\n")


@pytest.mark.parametrize(
    "words",
    [
        ["sessions"],
        ["status"],
        ["scale", "executor", "2"],
        ["tail", "fleet"],
        ["fleet", "status"],
        ["say", "fleet", "hello"],
    ],
)
def test_missing_mesh_exits_3_and_names_anchorwatch_up(run: Run, words: list[str]) -> None:
    ran = run(*words)
    assert ran.code == 3
    assert is_one_line(ran)
    assert "`anchorwatch up`" in ran.err


def test_down_without_a_mesh_has_nothing_to_stop(run: Run) -> None:
    ran = run("down")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith(".anchorwatch: nothing to stop\n")
    assert json.loads(run("down", "--json").out) == {"pid": None}
    assert not Path(".anchorwatch").exists()


@pytest.mark.parametrize("words", [["scale", "executor", "-1"], ["scale", "executor", "33"]])
def test_number_of_processes_has_bounds(run: Run, words: list[str]) -> None:
    ran = run(*words)
    assert ran.code == 2
    assert f"{words[-1]} is not a valid number of processes (choose 0 to 32)" in ran.err


def test_gateway_that_does_not_answer_is_unreachable(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anchorwatch.cli.api.RETRY_S_MAX", 0.0)
    ran = run("sessions", "--url", "http://127.0.0.1:1", "--token", "x")
    assert ran.code == 3
    assert is_one_line(ran)
    assert "no gateway answers at http://127.0.0.1:1" in ran.err


def test_silent_gateway_is_named_as_such() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with (
            Api(url, "x", retry_s=0.0) as api,
            pytest.raises(Unavailable, match="did not answer in time"),
        ):
            api.post("/api/sessions/fleet/trigger", {}, timeout_s=0.05)


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [
        (400, "bad_request", 2),
        (422, "bad_input", 2),
        (413, "too_large", 2),
        (401, "unauthorized", 5),
        (403, "denied", 5),
        (404, "not_found", 4),
        (409, "conflict", 5),
        (410, "session_deleted", 5),
        (500, "internal", 1),
    ],
)
def test_gateway_status_becomes_the_exit_code(
    run: Run, remote: Gateway, status: int, code: str, exit_code: int
) -> None:
    remote.answer(
        "GET /api/sessions/fleet", (status, {"code": code, "message": "so it is", "hint": "do this"})
    )
    ran = run("show", "fleet")
    assert ran.code == exit_code
    assert ran.err == "anchorwatch: so it is (do this)\n"


def test_error_of_several_lines_becomes_one(run: Run, remote: Gateway) -> None:
    remote.answer("GET /api/sessions/fleet", (404, {"code": "not_found", "message": "a\nb", "hint": ""}))
    assert run("show", "fleet").err == "anchorwatch: a b\n"


@pytest.mark.parametrize(
    "answer", [(200, "<html>"), (404, "<html>"), (404, {"detail": "Not Found"}), (502, "bad gateway")]
)
def test_another_server_is_not_a_gateway(
    run: Run, remote: Gateway, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, object]
) -> None:
    monkeypatch.setattr("anchorwatch.cli.api.RETRY_S_MAX", 0.0)
    remote.answer("GET /api/sessions/fleet", answer)
    ran = run("show", "fleet")
    assert ran.code == 3
    assert is_one_line(ran)


def test_internal_error_is_one_line(run: Run, remote: Gateway) -> None:
    remote.answer("GET /api/sessions", (200, {"data": 3, "next": None}))
    ran = run("sessions")
    assert ran.code == 1
    assert is_one_line(ran)
    assert "ANCHORWATCH_TRACEBACK=1" in ran.err


def test_bad_settings_are_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANCHORWATCH_LEASE_S", "soon")
    ran = run("config")
    assert ran.code == 2
    assert is_one_line(ran)
    assert "ANCHORWATCH_LEASE_S" in ran.err


def test_bad_settings_file_is_named(run: Run) -> None:
    Path("anchorwatch.toml").write_text("lease_s = = 3")
    ran = run("config")
    assert ran.code == 2
    assert "anchorwatch.toml cannot be read" in ran.err


def test_misspelt_setting_in_the_file_is_refused(run: Run) -> None:
    Path("anchorwatch.toml").write_text("lease = 3")
    ran = run("config")
    assert ran.code == 2
    assert "anchorwatch.toml: unknown setting 'lease'; did you mean lease_s?" in ran.err


@pytest.mark.parametrize(("name", "value", "report"), [
    ("MODEL_NAME", "", "ANCHORWATCH_MODEL_NAME"),
    ("MODEL_URL", "nonsense", "ANCHORWATCH_MODEL_URL"),
    ("MODEL_URL", "http://user:s3cret@127.0.0.1/v1", "ANCHORWATCH_MODEL_URL"),
    ("MODEL_KEY", "two words", "ANCHORWATCH_MODEL_KEY"),
])  # fmt: skip
def test_mesh_with_an_unusable_model_is_not_started(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str, value: str, report: str
) -> None:
    monkeypatch.setenv("ANCHORWATCH_MODEL", "openai")
    monkeypatch.setenv("ANCHORWATCH_MODEL_NAME", "gpt-x")
    monkeypatch.setenv(f"ANCHORWATCH_{name}", value)
    ran = run("up", "--port", "0", "--nats-port", "0", "--detach")
    assert ran.code == 2
    assert is_one_line(ran)
    assert report in ran.err
    assert "s3cret" not in ran.err
    assert not Path(".anchorwatch").exists()


def test_mesh_with_an_unusable_file_of_hooks_is_not_started(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "hooks.toml").write_text('[[hook]]\nname = "alerts"\nkind = "grafana"\n')
    monkeypatch.setenv("ANCHORWATCH_HOOKS", str(tmp_path / "hooks.toml"))
    ran = run("up", "--port", "0", "--nats-port", "0", "--detach")
    assert ran.code == 2
    assert is_one_line(ran)
    assert "has no signature" in ran.err
    assert not Path(".anchorwatch").exists()


def test_missing_verb_shows_help(run: Run) -> None:
    ran = run()
    assert ran.code == 2
    assert "Usage: anchorwatch" in ran.out


def test_closed_pipe_is_not_an_error() -> None:
    command = f"{sys.executable} -m anchorwatch.cli.main config | head -1"
    ended = subprocess.run(command, shell=True, capture_output=True, check=True)  # noqa: S602 - our own words
    assert ended.stderr == b""


def test_pipe_closed_during_output_is_not_an_error(remote: Gateway) -> None:
    entry = {"sequence": 1, "at": "2026-03-17T18:56:43Z", "what": "x" * 4096, "who": "", "why": ""}
    remote.answer("GET /api/sessions/fleet/timeline", (200, {"data": [entry] * 100, "next": None}))
    command = [sys.executable, "-m", "anchorwatch.cli.main", "timeline", "fleet", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as verb:
        assert verb.stdout is not None
        assert verb.stderr is not None
        assert verb.stdout.read(1) == b"["
        verb.stdout.close()
        assert verb.stderr.read() == b""
        assert verb.wait(30) == 0


def test_verb_imports_only_the_modules_it_needs() -> None:
    """The libraries that take long to import are for the verbs that speak to a mesh."""
    look = (
        "import sys, atexit\n"
        "slow = ('nats', 'openai', 'fastapi', 'tiktoken', 'httpx2', 'rich')\n"
        "atexit.register(lambda: print([name for name in slow if name in sys.modules]))\n"
        "from anchorwatch.cli.main import main\n"
        "sys.argv = ['anchorwatch', 'version']\n"
        "main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True)
    assert ended.stdout.splitlines()[-1] == "[]"
