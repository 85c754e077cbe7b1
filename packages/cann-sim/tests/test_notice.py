"""NOTICE describes the sources correctly, and it is part of the package."""

from __future__ import annotations

import re
from pathlib import Path

from cann_sim.building.native_library import NATIVE

PACKAGE = Path(__file__).parents[1]
NOTICE = (PACKAGE / "NOTICE").read_text(encoding="utf-8")
OF_CANN = re.compile(r"#include <((?:acl|third_party|ge|graph|aclnn|hccl)/[^>]+)>")


def texts() -> list[str]:
    files = [file for file in NATIVE.rglob("*") if file.suffix in {".h", ".cpp"}]
    return [file.read_text(encoding="utf-8") for file in files]


def test_notice_names_every_header_of_cann_that_is_included() -> None:
    included = {name for text in texts() for name in OF_CANN.findall(text)}
    assert len(included) >= 8
    assert {name for name in included if name.removeprefix("acl/") not in NOTICE} == set()


def test_notice_names_the_commit_of_every_document_of_the_tables() -> None:
    made = {
        found
        for text in texts()
        for found in re.findall(r"documents of (ops-\w+) at\n// ([0-9a-f]{40})", text)
    }
    assert {name for name, _ in made} == {"ops-cv", "ops-math", "ops-nn", "ops-transformer"}
    for name, commit in made:
        assert re.search(rf"{name} +{commit}", NOTICE)


def test_notice_names_only_files_that_exist() -> None:
    named = re.findall(r"native/[\w/.-]+\w", NOTICE)
    assert len(named) >= 6
    assert [name for name in named if not (NATIVE.parent / name).exists()] == []


def test_no_file_of_the_package_carries_the_licence_of_cann() -> None:
    assert [text for text in texts() if "Huawei Technologies" in text] == []


def test_notice_is_in_the_wheel_and_in_the_source_distribution() -> None:
    project = (PACKAGE / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r"^license-files = \[.*\"NOTICE\"", project, re.MULTILINE)
    assert re.search(r"^include = \[.*\"NOTICE\"", project, re.MULTILINE)
