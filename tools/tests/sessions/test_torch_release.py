"""Which torch the gate and the demo get."""

from __future__ import annotations

import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest

from sessions import torch_release
from sessions.package import packages
from sessions.torch_release import choose_torch, release_share, releases
from sessions.workspace import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _nothing_around(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clear pip's settings, and replace PyTorch's index by one that does not answer."""
    for name in ("UV_TORCH_BACKEND", "UV_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch_release, "CPU_INDEX", "http://127.0.0.1:9/torch/")
    torch_release._cpu_index_answers.cache_clear()
    yield
    torch_release._cpu_index_answers.cache_clear()


@pytest.fixture
def answering_index(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replace PyTorch's index by a server on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setattr(torch_release, "CPU_INDEX", f"http://127.0.0.1:{server.server_port}/torch/")
    yield
    server.shutdown()
    thread.join()
    server.server_close()


def _lay_out(folder: Path, version: str, *, tag: str | None = None) -> dict[str, str]:
    python = tag or f"cp{sys.version_info.major}{sys.version_info.minor}"
    machine = os.uname().machine
    name = f"torch-{version}+cpu-{python}-{python}-manylinux_2_28_{machine}.whl"
    folder.joinpath(name).touch()
    return {"UV_FIND_LINKS": f"/nowhere,{folder}"}


def test_releases_run_from_the_engines_pin_to_the_newest() -> None:
    versions = [tuple(int(part) for part in release.torch.split(".")) for release in releases()]
    assert versions == sorted(versions)
    assert versions[0][:2] == (2, 10)
    assert all(each.torch_npu.startswith(each.torch) for each in releases())
    assert len({release.name for release in releases()}) == len(versions)


def test_without_wheels_the_newest_of_the_default_index_is_used() -> None:
    choice = choose_torch({})
    assert choice.release == releases()[-1]
    assert choice.settings == {}


def test_a_cpu_build_in_a_folder_is_taken_with_its_version(tmp_path: Path) -> None:
    choice = choose_torch(_lay_out(tmp_path, "2.13.0"))
    assert choice.release.torch == "2.13.0"
    assert choice.settings == {}


def test_the_newest_of_several_builds_in_a_folder_is_taken(tmp_path: Path) -> None:
    _lay_out(tmp_path, "2.11.0")
    assert choose_torch(_lay_out(tmp_path, "2.12.0")).release.torch == "2.12.0"


@pytest.mark.parametrize(("version", "tag"), [("2.13.0", "cp39"), ("1.13.0", None)])
def test_a_build_for_another_python_or_of_another_release_is_not_taken(
    tmp_path: Path, version: str, tag: str | None
) -> None:
    assert choose_torch(_lay_out(tmp_path, version, tag=tag)).release == releases()[-1]


@pytest.mark.usefixtures("answering_index")
def test_the_cpu_index_is_taken_where_it_answers() -> None:
    choice = choose_torch({})
    assert choice.release == releases()[-1]
    assert choice.settings == {"UV_TORCH_BACKEND": "cpu"}


@pytest.mark.usefixtures("answering_index")
def test_settings_of_uv_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_TORCH_BACKEND", "cu130")
    assert choose_torch({}).settings == {}


def test_every_package_has_a_share_of_tests_that_exist() -> None:
    share = release_share()
    assert set(share) == {package.name for package in packages(ROOT)}
    files = [package.folder / test for package in packages(ROOT) for test in share[package.name]]
    assert all(file.is_file() for file in files)
