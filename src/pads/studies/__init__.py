"""Every experiment of the paper as a study, with the controls that the paper lacks."""

from pads.studies.arms import BASES, Arm, Needs, Study, base_config, pads, static, udist, with_options
from pads.studies.plan import Result
from pads.studies.report import print_report, write_report
from pads.studies.runner import run_study
from pads.studies.tables import STUDIES

__all__ = [
    "BASES",
    "STUDIES",
    "Arm",
    "Needs",
    "Result",
    "Study",
    "base_config",
    "pads",
    "print_report",
    "run_study",
    "static",
    "udist",
    "with_options",
    "write_report",
]
