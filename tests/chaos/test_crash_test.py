"""`anchorwatch crash-test`, as the author of a pack runs it: it reports exactly the packs that break their guarantees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.mesh.credentials import SERVICES
from anchorwatch.testing.demo.stage import of_session

from tests.support.waiting import until

SERVICES_AND_MORE = len(SERVICES) + 1
ROOT = Path(__file__).resolve().parents[2]
TMP = "tmp" * 40
STEPS = [[["set", "a", "ok"], ["build", "b", "lost_once"]], [["fire", "c", "ok"], ["set", "d", "artifact"]]]


def install(directory: Path) -> dict[str, str]:
    """An environment with the packs of the tests, as `pip` installs them."""
    info = directory / "packs_of_the_tests-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: packs-of-the-tests\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[anchorwatch.packs]\nscripted = tests.support.scripted:SCRIPTED\ncareless = tests.support.bad_packs:CARELESS\n"
        "hasty = tests.support.bad_packs:HASTY\n"
    )
    # So deep that no socket's path would fit into it.
    temporary = directory.with_name(TMP)
    temporary.mkdir()
    return {**os.environ, "PYTHONPATH": f"{directory}{os.pathsep}{ROOT}", "TMPDIR": str(temporary)}


def agent_file(tmp_path: Path, pack: str) -> Path:
    """An agent of the pack whose exercises use each class of effect."""
    file = tmp_path / "agent.toml"
    file.write_text(
        f'name = "keeper"\npack = "{pack}"\ngrants = ["look", "set", "build", "fire"]\n'
        f'subscriptions = ["scripted.>"]\n[config]\ndirectory = "{tmp_path / "world"}"\n'
        f"[[exercise]]\nmessage = '{json.dumps(STEPS)}'\n"
        '[[exercise]]\nevent = "scripted.keeper.note"\ndata = { size = 3 }\n'
    )
    return file


def command(*words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "anchorwatch.cli.main", "crash-test", *words]


def crash_test(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words), capture_output=True, text=True, check=False, env=install(tmp_path / "site"), cwd=tmp_path, timeout=580,
    )  # fmt: skip


def outcome(ran: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert ran.stdout, f"it said nothing, exit {ran.returncode}: {ran.stderr}"
    report: dict[str, Any] = json.loads(ran.stdout)
    return report


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_pack_that_keeps_its_guarantees_passes(tmp_path: Path) -> None:
    file = agent_file(tmp_path, "scripted")
    ran = crash_test(tmp_path, "--agent", str(file), "--seeds", "1", "--json")
    report = outcome(ran)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    assert (report["ok"], report["lost"], report["duplicated"], report["guessed"]) == (True, 0, 0, 0)
    assert report["kills"] >= len(report["edges"]["reached"]) > 40
    assert report["seeds"][0]["turns"] > 6, "its exercises are not all swallowed by one turn"
    assert report["worst"] is None
    assert {each["tool"]: each["interrupted"] > 0 for each in report["tools"]} == {
        "look": False, "set": True, "build": True, "fire": True,
    }  # fmt: skip
    assert report["not_checked"][0] == "look (read): it was never called"
    # A death between the claim and the call blocks the one resource of `fire`: then no call of it ever starts.
    assert set(report["not_checked"][1:]) <= {"fire (irreversible): its executor died before each call"}
    assert (tmp_path / "world" / "effects.jsonl").exists()
    assert list((tmp_path / TMP).iterdir()) == [], "its own directory is gone"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_agent_that_may_do_nothing_fails_the_test(tmp_path: Path) -> None:
    file = agent_file(tmp_path, "scripted")
    granted = 'grants = ["look", "set", "build", "fire"]'
    file.write_text(file.read_text().replace(granted, "grants = []"))
    ran = crash_test(tmp_path, "--agent", str(file), "--seeds", "1")
    assert ran.returncode == 1, ran.stderr + ran.stdout
    assert "FAILED: effects were started: expected 1 or more; seen: 0" in ran.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_pack_that_breaks_its_guarantees_is_reported(tmp_path: Path) -> None:
    file, guessed = agent_file(tmp_path, "careless"), 0
    # Which call is in flight at a death depends on the machine, too: a seed may have none of `build`.
    for seed in ("3", "4", "5"):
        kept = tmp_path / f"kept-{seed}"
        ran = crash_test(
            tmp_path, "--pack", "careless", "--agent", str(file), "--seeds", "1", "--seed", seed, "--json",
            "--data-dir", str(kept),
        )  # fmt: skip
        report = outcome(ran)
        assert ran.returncode == 1, ran.stderr + ran.stdout
        assert report["duplicated"] > 0, "its `set` does it again under the same key"
        assert report["worst"]["seed"] == int(seed)
        assert report["worst"]["again"].startswith(
            f"anchorwatch crash-test --pack careless --agent {file} --seed {seed}"
        )
        assert report["data_dir"] == str(kept)
        guessed += report["guessed"]
        if guessed:
            break
    assert guessed > 0, "its `build` is recorded as succeeded, but was not done"
    assert (kept / "seed-3" / "calls.jsonl").exists()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_pack_defect_that_only_a_running_executor_shows_is_found(tmp_path: Path) -> None:
    file = agent_file(tmp_path, "hasty")
    # Each call is done, and its answer lost, once: in the storm, most are cut short by a death, and run again.
    steps = json.dumps([[["set", "a", "lost_once"]]])
    file.write_text(file.read_text().replace(json.dumps(STEPS), steps))
    ran = crash_test(tmp_path, "--agent", str(file), "--seeds", "1", "--seed", "3", "--json")
    report = outcome(ran)
    assert ran.returncode == 1, ran.stderr + ran.stdout
    assert (report["lost"], report["duplicated"]) == (0, 0)
    assert report["guessed"] > 0, "its `set` is recorded as failed, but was done"


def test_killed_itself_it_leaves_nothing_running(tmp_path: Path) -> None:
    with subprocess.Popen(
        command("--agent", str(agent_file(tmp_path, "scripted"))), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=install(tmp_path / "site"), cwd=tmp_path, start_new_session=True,
    ) as running:  # fmt: skip
        until(lambda: len(of_session(running.pid)) > SERVICES_AND_MORE, 60, "its processes run")
        running.kill()
        running.wait()
        until(lambda: of_session(running.pid) == [], 10, "all of them are gone")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--pack", "nobody"], "unknown pack 'nobody'"),
        (["--pack", "scripted"], "needs an agent: the bench needs a directory"),
        (["--agent", "missing.toml"], "file missing.toml does not exist"),
        (["--seeds", "0"], "--seeds"),
        (["--pack", "fleet", "--agent", "agent.toml"], "is an agent of the pack scripted, not of fleet"),
        (["--agent", "odd.toml"], "an [[exercise]] table is not valid"),
        (["--data-dir", "."], "is not empty"),
        (["--url", "http://x"], "it uses no running mesh"),
    ],
)  # fmt: skip
def test_unusable_input_is_reported_and_nothing_starts(tmp_path: Path, words: list[str], said: str) -> None:
    text = agent_file(tmp_path, "scripted").read_text()
    (tmp_path / "odd.toml").write_text(text + '[[exercise]]\nmessage = "x"\nevent = "a.b"\n')
    ran = crash_test(tmp_path, *words)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
