from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from npu_graph_runtime.errors import DeviceError, UnknownDeviceError
from npu_graph_runtime.failures.error_codes import ERROR_CODES, MESSAGES, unknown


def test_error_codes_rows_are_complete() -> None:
    for code, row in ERROR_CODES.items():
        assert row.code == code
        assert issubclass(row.error, DeviceError)
        assert row.meaning
        assert row.remedy


@pytest.mark.parametrize("code", [107027, 107030, 107033, 207000, 207001, 207005, 207008, 507000])
def test_error_codes_known_from_engines_are_listed(code: int) -> None:
    assert code in ERROR_CODES


def test_error_codes_table_is_read_only() -> None:
    with pytest.raises(TypeError):
        ERROR_CODES[1] = unknown(1)  # type: ignore[index]


def test_messages_refer_to_listed_codes() -> None:
    assert all(code in ERROR_CODES for _, code in MESSAGES)


def test_unknown_code_is_an_unknown_device_error() -> None:
    assert unknown(507999).error is UnknownDeviceError


def test_every_code_of_the_header_of_cann_is_listed() -> None:
    headers = list(_torch_npu().glob("include/**/error_codes/rt_error_codes.h"))
    assert headers
    codes: dict[int, str] = {}
    for header in headers:
        found = re.findall(r"(ACL_ERROR_\w+)\s*=?\s*(\d{6})\b", header.read_text(errors="replace"))
        codes.update({int(code): name for name, code in found})
    assert len(codes) > 100
    assert {code: name for code, name in codes.items() if code not in ERROR_CODES} == {}


def _torch_npu() -> Path:
    (folder,) = importlib.util.find_spec("torch_npu").submodule_search_locations or []  # type: ignore[union-attr]
    return Path(folder)
