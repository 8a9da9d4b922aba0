"""Running a study: what is done is skipped, what was cut goes on, what fails does not lose the rest."""

import pytest

from pads.errors import UserError
from pads.studies import Arm, Study, pads, run_study, udist
from pads.studies.runner import read_rows
from pads.studies.tables import AGENTS, CONTROLS, FREQUENCY, TRANSFER, VALIDATION
from pads.studies.tables import CURRICULA as SCHEDULES

TWO = Study("two", "U-dist and PADS", (Arm("udist", udist), Arm("pads", pads)), reference="udist")


def rows(folder):
    return [(row["recipe"], row["seed"]) for row in read_rows(folder / "seeds.csv")]


@pytest.mark.parametrize("study", [AGENTS, CONTROLS, SCHEDULES, TRANSFER, VALIDATION], ids=lambda study: study.name)
def test_every_arm_of_a_study_runs_and_leaves_a_row(study, quick):
    result = run_study(study, **{**quick, "seeds": (0,), "epochs": 1})
    assert not result.failures
    assert {row["recipe"] for row in result.rows} == {arm.name for arm in study.arms}


def test_every_frequency_runs_but_those_that_settings_would_make_the_same(quick):
    settings = [setting for setting in quick["settings"] if "adapt_every" not in setting]
    assert not run_study(FREQUENCY, **{**quick, "seeds": (0,), "epochs": 1, "settings": settings}).failures
    with pytest.raises(UserError, match="M-10 and M-30 the same"):
        run_study(FREQUENCY, **{**quick, "out": quick["out"] / "other"})
    assert not (quick["out"] / "other").exists()
