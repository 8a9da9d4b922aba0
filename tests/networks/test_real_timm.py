"""The real timm, where it can be imported: `pytest -m timm` (minutes on a CPU)."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parent.parent.parent / "tools" / "check_timm.py"


@pytest.mark.timm
def test_real_models_train_load_and_take_weights_from_a_file():
    done = subprocess.run([sys.executable, str(TOOL)], capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    assert "resnet18.a1_in1k" in done.stdout
