"""The whole demo with its bounds: `make slow`."""

import json
import subprocess
import sys
import time

import pytest


@pytest.mark.slow
def test_the_demo_reaches_its_bounds_within_three_minutes(tmp_path):
    started = time.monotonic()
    command = [sys.executable, "-m", "pads", "train", "emoji-pads", "--run", str(tmp_path / "run")]
    table = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert time.monotonic() - started < 180
    test = json.loads((tmp_path / "run" / "metrics.json").read_text())["test"]
    trained, untrained, raw = (test[row]["recall@1"] for row in ("trained", "untrained", "raw pixels"))
    assert trained >= 2.5 * untrained
    assert trained >= raw + 0.14
    for row, recall in (("raw pixels", raw), ("untrained", untrained), ("trained", trained)):
        assert any(line.strip().startswith(row) and f"{100 * recall:.1f}" in line for line in table.splitlines()), row
