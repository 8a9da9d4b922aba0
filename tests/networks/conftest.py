"""The marker `timm`: tests that need the real timm, run by `pytest -m timm` and left out otherwise."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "timm: needs the real timm, run by hand with `pytest -m timm`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "timm" in str(config.option.markexpr):
        return
    left_out = [item for item in items if item.get_closest_marker("timm")]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
