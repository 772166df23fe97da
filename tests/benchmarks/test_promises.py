"""The benchmark of promises tries what the report promises. No test here judges a speed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.promises import measuring
from tests.benchmarks.promises.measuring import Tried, measure

WAITS = """
import argparse, json, time
from torch.utils.data import DataLoader

class Waits(list):
    def __getitem__(self, key):
        time.sleep(0.08)
        return key

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--options", type=json.loads, default={})
    list(DataLoader(Waits(range(20)), **{"num_workers": 0} | parser.parse_args().options))

if __name__ == "__main__":
    main()
"""


def tried(promised: float, before: list[float], after: list[float]) -> Tried:
    return Tried("a load", 4.0, {"num_workers": 4}, promised, before=before, after=after)


def test_a_gain_is_a_difference_of_medians() -> None:
    one = tried(2.0, [5.0, 6.0, 6.5], [4.0, 3.0, 3.5])
    assert one.gained == 2.5 and one.row[3:6] == ("2.00", "2.50", "1.25")


def test_runs_half_of_which_differ_by_more_than_a_quarter_of_the_gain_are_marked() -> None:
    assert tried(2.0, [5.0, 5.4, 5.8], [3.0, 3.0, 3.0]).steady
    assert not tried(2.0, [5.0, 5.8, 6.6], [3.0, 3.0, 3.0]).steady
    assert not tried(2.0, [5.0, 5.0, 5.0], [3.0, 3.6, 4.2]).steady
    assert tried(2.0, [5.0, 5.1, 5.2, 5.1, 9.0], [3.0, 3.0, 3.0]).steady


@pytest.mark.parametrize(
    ("promised", "gained", "verdict"),
    [
        (2.0, 2.4, "as promised"),
        (2.0, 1.4, "off"),
        (0.15, 0.02, "negligible"),
        (1.0, -0.3, "LOSS"),
        (0.1, -0.1, "negligible"),
    ],
)
def test_what_a_gain_counts_as(promised: float, gained: float, verdict: str) -> None:
    one = tried(promised, [5.0], [5.0 - gained])
    assert one.verdict == verdict


def test_a_load_that_fails_is_reported(tmp_path: Path) -> None:
    script = tmp_path / "01_fails.py"
    script.write_text("raise SystemExit('no data')")
    (one,) = measure(script)
    assert one.why.startswith("FAILED: ") and one.verdict == "no promise"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_real_load_runs_with_what_was_promised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "FEWEST", 2)
    monkeypatch.setattr(measuring, "MOST", 2)
    monkeypatch.setattr(measuring, "KINDS", 1)
    script = tmp_path / "01_waits.py"
    script.write_text(WAITS)
    found = measure(script)
    assert any(each.options.get("num_workers", 0) > 1 and each.promised > 0.3 for each in found), found
    assert [len(each.before) == len(each.after) == 2 for each in found] == [True] * len(found)
