"""Shared by the tests: real data beside the checkout, a small collection, and encoders that need no model."""

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the real test collections are not beside this checkout (../shared/data)")
    return SHARED
