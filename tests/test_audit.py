"""What `make audit` accepts and refuses; the comparison itself needs a package index."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import audit
import pytest
from packaging.utils import canonicalize_name


@pytest.mark.parametrize(
    "text",
    [
        "MIT",
        "Apache 2.0",
        "Apache Software License",
        "Apache License, Version 2.0",
        "BSD License",
        "GPL-3.0 OR MIT",
        "Apache-2.0 AND Apache-2.0 WITH LLVM-exception AND BSD-2-Clause",
        "DFSG approved AND MIT License",
        "MPL-2.0 AND (Apache-2.0 OR MIT)",
    ],
)
def test_licences_on_the_list_pass_in_every_spelling(text: str) -> None:
    assert audit.is_permitted(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GPL-3.0",
        "GNU General Public License v3 (GPLv3)",
        "MIT AND GPL-3.0",
        "Apache-2.0 AND (GPL-2.0 OR LGPL-3.0)",
        "Proprietary",
        "Apache-2.0-nonsense",
    ],
)
def test_other_licences_and_none_fail(text: str) -> None:
    assert not audit.is_permitted(text)


def test_every_installed_package_has_a_licence_on_the_list() -> None:
    packages = audit.installed()
    assert {name for name, one in packages.items() if not audit.is_permitted(audit.licence(one))} == set()
    needed = {canonicalize_name(one.name) for one in audit.core()}
    assert {"torch", "jinja2", "markupsafe", "typer"} <= needed
    assert needed.isdisjoint({"fastapi", "pytest", "openai"})
    assert len(needed) < 60


def test_private_copies_of_setuptools_are_not_packages_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "setuptools" / "_vendor"
    (private / "secretive-1.0.dist-info").mkdir(parents=True)
    (private / "secretive-1.0.dist-info" / "METADATA").write_text("Name: secretive\nVersion: 1.0\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(private)])
    assert "torch" in audit.installed()
    assert "secretive" not in audit.installed()


def test_only_a_flaw_that_can_be_mended_and_a_package_that_was_not_compared_fail() -> None:
    flaw = {"id": "CVE-1", "fix_versions": ["2.11"]}
    report = {
        "dependencies": [
            {"name": "sound", "version": "1", "vulns": []},
            {"name": "old", "version": "2.10", "vulns": [flaw]},
            {"name": "open", "version": "3", "vulns": [{"id": "CVE-2", "fix_versions": []}]},
            {"name": "unknown", "skip_reason": "not there"},
        ]
    }
    errors, notes = audit.vulnerabilities(report)
    assert notes == ["open 3: CVE-2, not mended yet"]
    assert errors == [
        "not compared, because nothing is said about them: unknown",
        "old 2.10: CVE-1, mended in 2.11",
    ]


def test_an_index_without_data_is_named_with_the_way_out() -> None:
    report = {"dependencies": [{"name": name, "skip_reason": "not there"} for name in "ab"]}
    [error], _ = audit.vulnerabilities(report)
    assert "nothing was compared" in error
    assert "make audit REPORT=report.json" in error


def test_a_report_made_elsewhere_must_be_about_the_installed_versions(tmp_path: Path) -> None:
    packages = [audit.installed()[name] for name in ("jinja2", "rich", "typer")]
    versions = [packages[0].version, packages[1].version, "0.0.1"]
    rows = [
        {"name": one.name, "version": version, "vulns": []}
        for one, version in zip(packages, versions, strict=True)
    ]
    path = tmp_path / "report.json"
    path.write_text(json.dumps({"dependencies": rows}), encoding="utf-8")
    errors, _ = audit.vulnerabilities(audit.reported(path, packages))
    assert errors == [f"not compared, because nothing is said about them: typer {packages[2].version}"]
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(SystemExit, match="is not a report of pip-audit"):
        audit.reported(path, packages)
