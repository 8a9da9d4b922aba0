"""What docs/studies.md shows works as it stands."""

import re
import shlex
from pathlib import Path

import pads.studies
from pads.cli import make_parser
from pads.studies import STUDIES

TEXT = (Path(__file__).parents[2] / "docs" / "studies.md").read_text()


def test_every_command_is_one_that_the_parser_takes():
    lines = re.findall(r"^pads study .*$", TEXT, re.MULTILINE)
    assert len(lines) > 4
    for line in lines:
        options = make_parser().parse_args(shlex.split(line, comments=True)[1:])
        assert options.list or options.study in [*STUDIES, "claims"]
        assert set(options.arms) <= {arm.name for arm in STUDIES[options.study].arms} if options.arms else True


def test_the_study_of_ones_own_runs(quick, monkeypatch, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    real = pads.studies.run_study
    monkeypatch.setattr(
        pads.studies,
        "run_study",
        lambda study, **options: real(study, **{**options, **quick, "seeds": (0,), "epochs": 1}),
    )
    exec(code, {"__name__": "__main__"})
    out = capsys.readouterr().out
    assert "multipliers, folder" in out
    assert "softer" in out
