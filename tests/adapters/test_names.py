"""What `pads.adapters` offers, and that a library is wanted only by the names that need it."""

import subprocess
import sys

import pytest

from pads import adapters

NEEDS = {
    "AdaptiveMiner": ("pytorch_metric_learning", 'pip install "pads-dml[pml]"'),
    "RuleMiner": ("pytorch_metric_learning", 'pip install "pads-dml[pml]"'),
    "AdaptiveSampling": ("lightning", "pip install lightning"),
    "EmbeddingRetrieval": ("torchmetrics", "pip install torchmetrics"),
}


def in_a_new_process(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("name", adapters.__all__)
def test_every_name_is_there(name):
    assert getattr(adapters, name).__name__ == name
    assert name in dir(adapters)


def test_a_name_that_is_not_there_is_said_to_be_missing():
    with pytest.raises(AttributeError, match=r"module 'pads\.adapters' has no attribute 'AdaptiveMinr'"):
        adapters.AdaptiveMinr


def test_what_is_not_installed_is_named_with_how_to_get_it_and_the_rest_works():
    hidden = sorted({package for package, _ in NEEDS.values()})
    code = f"""
import sys
sys.modules.update(dict.fromkeys({hidden}))
from pads import adapters
for name in adapters.__all__:
    try:
        getattr(adapters, name)
        print(name, "works")
    except ValueError as error:
        print(name, error)
"""
    answers = dict(line.split(" ", 1) for line in in_a_new_process(code).splitlines())
    assert answers.keys() == set(adapters.__all__)
    for name, answer in answers.items():
        assert answer.endswith(NEEDS[name][1]) if name in NEEDS else answer == "works"


def test_importing_the_package_imports_neither_torch_nor_the_libraries():
    code = "import sys, pads.adapters; print({'torch', 'lightning', 'torchmetrics'} & set(sys.modules))"
    assert in_a_new_process(code) == "set()"
