from __future__ import annotations

from anchorwatch_fleet.runtime import notify_human, save_report


def test_notification_is_handed_to_the_notifier_by_its_record() -> None:
    args = {"title": "Dead", "text": "All are dead", "severity": "critical"}

    assert notify_human(args).data == {"notify": args}


def test_report_is_handed_over_as_an_artifact() -> None:
    result = save_report({"name": "incident-1.md", "text": "# Ünglück"})

    [artifact] = result.artifacts
    assert (artifact.name, artifact.media_type, artifact.data) == (
        "incident-1.md",
        "text/markdown",
        "# Ünglück".encode(),
    )
