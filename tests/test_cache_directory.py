"""Where the cache is."""

from __future__ import annotations

from pathlib import Path

import pytest

from selfreflect.cache_directory import cache_directory
from selfreflect.errors import BackendError


def test_own_variable_wins_and_nothing_is_created(monkeypatch, tmp_path):
    monkeypatch.setenv("SELFREFLECT_CACHE", str(tmp_path / "mine"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "mine"
    assert list(tmp_path.iterdir()) == []


def test_own_variable_may_be_relative_or_use_a_tilde(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SELFREFLECT_CACHE", "~/mine")
    assert cache_directory() == tmp_path / "mine"
    monkeypatch.setenv("SELFREFLECT_CACHE", "mine")
    assert cache_directory() == Path.cwd() / "mine"


@pytest.mark.parametrize("ignored", ["", "relative"])
def test_xdg_then_home(monkeypatch, tmp_path, ignored):
    monkeypatch.delenv("SELFREFLECT_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "selfreflect"
    monkeypatch.setenv("XDG_CACHE_HOME", ignored)
    assert cache_directory() == tmp_path / ".cache" / "selfreflect"


def test_who_has_no_home_is_told_which_variable_to_set(monkeypatch):
    monkeypatch.setenv("SELFREFLECT_CACHE", "~nobody-of-this-name/cache")
    with pytest.raises(BackendError, match="set SELFREFLECT_CACHE"):
        cache_directory()

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("SELFREFLECT_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(BackendError, match="set SELFREFLECT_CACHE"):
        cache_directory()
