"""Exercise 15: each trace contradicts every name but the right one, which is never given away."""

from __future__ import annotations

import pytest

from notebooks.exercises import bugs
from notebooks.exercises.evidence import AGAINST, Run


@pytest.mark.parametrize("letter", bugs.BUGS)
def test_every_name_but_one_is_contradicted_and_the_right_one_is_not_given_away(letter, tmp_path):
    run, right = Run(bugs.outcome(letter)), bugs.BUGS[letter].name
    assert [name for name in bugs.NAMES if not AGAINST[name](run)] == [right]
    for wrong in set(bugs.NAMES) - {right}:
        finding = bugs.against(letter, wrong, tmp_path)
        assert finding.mistake == f"trace {letter}: not {wrong}" and finding.got
        assert right not in repr(finding)


def test_events_are_numbered_as_in_the_trace_that_is_written(tmp_path):
    """And so as in the step-through: at each position the same kind."""
    import tracing

    bugs.write("a", tmp_path)
    kinds = tracing.load(tmp_path / "a.trace").events["kind"].tolist()
    assert kinds == [event[2] for event in bugs.outcome("a").events]
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_the_traces_are_the_same_every_time(tmp_path):
    files = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        bugs.outcome.cache_clear()
        bugs.write("d", folder)
        files.append({path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()})
    assert files[0] == files[1] and len(files[0]) > 2


def test_a_trace_does_not_contain_its_name(tmp_path):
    for letter in ("d", "e"):
        bugs.write(letter, tmp_path)
        text = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.suffix != ".png" and path.is_file())
        assert bugs.BUGS[letter].name.encode() not in text


@pytest.mark.parametrize("letter", bugs.BUGS)
def test_picture_and_report_of_a_trace_say_the_same(letter, tmp_path):
    """How many batches in what time, of how much; and that a worker was killed."""
    import tracing
    from tracing.trace.words import duration

    bugs.write(letter, tmp_path)
    trace = tracing.load(tmp_path / f"{letter}.trace")
    report = str(tracing.report(trace))
    pictured = all_text(bugs.picture(trace))
    title = next(line for line in pictured if line.startswith("DataLoader with"))
    assert f"{(trace.tasks['yielded'] >= 0).sum()} batch" in title
    assert title.endswith(duration(trace.duration))
    killed = "worker 0 is killed" in pictured
    assert killed == ("It is dead" in report) == bool(trace.about["killed"])
    assert killed == (letter == "b")
    if killed:
        assert "in 800 µs of 915 s" in title and "had made no progress for 915 s" in " ".join(report.split())
    idle = [int(line.split()[-1].rstrip("%")) for line in report.splitlines() if line.startswith("  worker ")]
    assert len(idle) == 2 and all(0 <= share <= 100 for share in idle)


def all_text(figure) -> list[str]:
    from matplotlib.text import Text

    return [each.get_text() for each in figure.findobj(Text)]
