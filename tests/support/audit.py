"""Compare the core installation with known vulnerabilities, and the licences of all installed packages with a
short list. ``make audit`` runs it. It needs a package index that answers questions on vulnerabilities, or a
report that pip-audit wrote elsewhere: ``make audit REPORT=FILE``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PERMITTED = frozenset(
    "0bsd apache-2.0 bsd bsd-2-clause bsd-3-clause bsl-1.0 cc0-1.0 cnri-python isc mit mit-0 mit-cmu mpl-2.0 "
    "psf-2.0 zlib".split()
)
"""Licences that let anybody use this package under its own. MPL-2.0 binds only changes to its own files."""

SPELLINGS = (
    r"apache( software)?( license)?(,? version)?[ -]?(2\.0)?( license)?",
    r"(3-clause )?bsd license",
    r"mit license",
    r"isc license( \(iscl\))?",
    r"mozilla public license 2\.0( \(mpl 2\.0\))?",
    r"python software foundation license",
)
"""What packages write instead of the SPDX identifiers on the list."""

KNOWN = {"axe-playwright-python": "MIT"}
"""Licences of packages whose metadata lack them, as their files say."""

IGNORED = ("dfsg approved", "osi approved", "llvm-exception")


def installed() -> dict[str, Distribution]:
    """The packages of this environment by canonical name, without this one.

    setuptools, once imported, appends its private copies of other packages to ``sys.path``. They are part of
    its own distribution, so they are not counted again.
    """
    folders = [folder for folder in sys.path if Path(folder).parts[-2:] != ("setuptools", "_vendor")]
    packages = {canonicalize_name(package.name): package for package in distributions(path=folders)}
    packages.pop("selfreflect", None)
    return packages


def licence(package: Distribution) -> str:
    """The licence that a package's metadata state, in its own words; empty without one."""
    metadata = package.metadata
    if metadata.get("License-Expression"):
        return str(metadata["License-Expression"])
    classifiers = [one for one in metadata.get_all("Classifier") or [] if one.startswith("License ::")]
    if classifiers:
        return " AND ".join(one.rpartition(" :: ")[2] for one in classifiers)
    return str(metadata.get("License") or KNOWN.get(canonicalize_name(package.name), "")).partition("\n")[0]


def is_permitted(text: str) -> bool:
    """Whether all licences of a statement are on the list, or one of those that it lets choose from."""
    parts = re.split(r"\s+(?:AND|WITH)\s+|\s*;\s*", text.strip())
    choices = [re.sub(r"^\((.*)\)$", r"\1", part).split(" OR ") for part in parts]
    return all(any(map(_is_listed, names)) for names in choices)


def _is_listed(name: str) -> bool:
    name = " ".join(name.lower().split())
    return name in PERMITTED or name in IGNORED or any(re.fullmatch(one, name) for one in SPELLINGS)


def core(name: str = "selfreflect") -> list[Distribution]:
    """The installed packages that a core installation needs, without the package itself."""
    needed: dict[str, Distribution] = {}
    waiting: list[tuple[str, frozenset[str]]] = [(name, frozenset())]
    while waiting:
        package, extras = waiting.pop()
        for text in distribution(package).requires or []:
            requirement = Requirement(text)
            environments: list[dict[str, str]] = [{"extra": extra} for extra in extras or {""}]
            if requirement.marker and not any(map(requirement.marker.evaluate, environments)):
                continue
            key = canonicalize_name(requirement.name)
            if key not in needed or requirement.extras:
                is_new = key not in needed
                needed[key] = distribution(requirement.name)
                if is_new or requirement.extras:
                    waiting.append((requirement.name, frozenset(requirement.extras)))
    return list(needed.values())


def vulnerabilities(report: dict[str, Any]) -> tuple[list[str], list[str]]:
    """What a report of pip-audit says that must be mended, and what can only be noted.

    A package that could not be compared must be mended too: nothing is known of it.
    """
    errors = []
    notes = []
    skipped = [package["name"] for package in report["dependencies"] if "skip_reason" in package]
    if skipped:
        errors.append(f"not compared, because nothing is said about them: {', '.join(skipped)}")
    if len(skipped) == len(report["dependencies"]):
        errors = [
            "nothing was compared: this package index has no data on vulnerabilities. Where pypi.org can be "
            "reached, run: pip-audit -r constraints.txt --no-deps --disable-pip --format json --output "
            "report.json. Then here: make audit REPORT=report.json"
        ]
    for package in report["dependencies"]:
        for flaw in package.get("vulns", []):
            line = f"{package['name']} {package['version']}: {flaw['id']}"
            if flaw["fix_versions"]:
                errors.append(f"{line}, mended in {', '.join(flaw['fix_versions'])}")
            else:
                notes.append(f"{line}, not mended yet")
    return errors, notes


def audited(packages: Iterable[Distribution]) -> dict[str, Any]:
    """The report of pip-audit on exactly these versions."""
    with tempfile.TemporaryDirectory() as folder:
        pins = Path(folder) / "pins.txt"
        lines = [f"{package.name}=={package.version.partition('+')[0]}\n" for package in packages]
        pins.write_text("".join(lines), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "pip_audit",
            "--requirement",
            str(pins),
            "--no-deps",
            "--disable-pip",
        ]
        command += ["--format", "json", "--progress-spinner", "off"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        sys.exit(f"pip-audit made no report, so nothing was compared:\n{done.stderr[-2000:]}")
    return report


def reported(path: Path, packages: Iterable[Distribution]) -> dict[str, Any]:
    """The part on exactly these versions of a report that pip-audit wrote elsewhere."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        rows = {(canonicalize_name(row["name"]), row.get("version")): row for row in report["dependencies"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"{path} is not a report of pip-audit in JSON: {error!r}")
    chosen = []
    for package in packages:
        name, version = package.name, package.version.partition("+")[0]
        missing = {"name": f"{name} {version}", "skip_reason": "not in the report"}
        chosen.append(rows.get((canonicalize_name(name), version), missing))
    return {"dependencies": chosen}


def main() -> int:
    packages = installed()
    errors = []
    for name, package in sorted(packages.items()):
        stated = licence(package)
        print(f"{name} {package.version}: {stated or 'no licence stated'}")
        if not is_permitted(stated):
            errors.append(f"{name}: the licence {stated!r} is not on the list in tests/support/audit.py")
    needed = core()
    report = reported(Path(sys.argv[1]), needed) if sys.argv[1:] else audited(needed)
    found, notes = vulnerabilities(report)
    errors += found
    for line in [*notes, *errors]:
        print(line, file=sys.stderr)
    print(f"{len(packages)} licences, {len(needed)} packages of a core installation, {len(errors)} errors")
    return min(len(errors), 1)


if __name__ == "__main__":
    sys.exit(main())
