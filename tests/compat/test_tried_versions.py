"""Which versions of TensorFlow fastsup uses."""

from __future__ import annotations

import pytest

from fastsup.common.versions import ANY_VERSION, SUPPORTED_VERSIONS, is_supported, unsupported_reason


@pytest.mark.parametrize("version", ["2.16.2", "2.21.0-rc1", f"{SUPPORTED_VERSIONS[-1]}.1"])
def test_one_that_was_tried(version: str) -> None:
    assert is_supported(version)
    assert unsupported_reason(version) == ""


@pytest.mark.parametrize("version", ["2.99.0-dev20261026", "3.0.0"])
def test_a_newer_one_if_the_user_asks_for_it(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ANY_VERSION, raising=False)
    assert not is_supported(version)
    assert f"{version} isn't one of the tested versions: 2.16, " in unsupported_reason(version)
    assert f"{ANY_VERSION}=1" in unsupported_reason(version)
    monkeypatch.setenv(ANY_VERSION, "1")
    assert unsupported_reason(version) == ""


@pytest.mark.parametrize("version", ["1.15.0", "2.15.1", "2.2.0", "unknown", ""])
def test_never_an_older_one(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ANY_VERSION, "1")
    assert "isn't one of the tested versions" in unsupported_reason(version)
    assert ANY_VERSION not in unsupported_reason(version)
