"""What uv is told of pip's settings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sessions.installer_settings import installer_settings, pip_settings, wheel_folders
from sessions.workspace import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_")) or name in {"SSL_CERT_FILE", "ALL_PROXY"}:
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    pip_settings.cache_clear()
    yield
    pip_settings.cache_clear()


def test_pips_environment_variables_are_said_to_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example.org/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://a.example.org https://b.example.org")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels /more-wheels")
    monkeypatch.setenv("PIP_CERT", "/certificates.pem")

    settings = installer_settings()

    assert settings["UV_DEFAULT_INDEX"] == "https://index.example.org/simple"
    assert settings["UV_INDEX"] == "https://a.example.org https://b.example.org"
    assert settings["UV_FIND_LINKS"] == "/wheels,/more-wheels"
    assert settings["SSL_CERT_FILE"] == "/certificates.pem"


def test_pips_files_are_said_to_uv_and_the_environment_wins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "pip.conf"
    file.write_text("[global]\nindex-url = https://file.example.org\ntimeout = 50\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    monkeypatch.setenv("PIP_TIMEOUT", "70")

    settings = installer_settings()

    assert settings["UV_DEFAULT_INDEX"] == "https://file.example.org"
    assert settings["UV_HTTP_TIMEOUT"] == "70"


def test_settings_of_uv_itself_are_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://pip.example.org")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://uv.example.org")
    assert "UV_DEFAULT_INDEX" not in installer_settings()


def test_without_settings_no_index_is_named() -> None:
    assert not {"UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS"} & set(installer_settings())


def test_the_cache_is_in_the_tree_if_home_is_read_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/proc/nowhere")
    assert installer_settings()["UV_CACHE_DIR"] == str(ROOT / ".nox" / "uv-cache")


def test_only_folders_of_this_machine_are_looked_into(tmp_path: Path) -> None:
    settings = {"UV_FIND_LINKS": f"https://example.org/links,file://{tmp_path},/not/there"}
    assert wheel_folders(settings) == [tmp_path]
