#!/usr/bin/env python3
"""The parts that are shipped: known vulnerabilities, a list of them (SBOM), and their licences.

    supply_chain.py audit                  known vulnerabilities of the pinned packages
    supply_chain.py sbom FILE              a CycloneDX list of them, checked
    supply_chain.py licences [--check]     THIRD_PARTY_LICENSES.txt, written or compared

Runs in the environment that `make lint` makes: requirements-dev.txt has the tools.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements.txt"
LICENCES = ROOT / "THIRD_PARTY_LICENSES.txt"
HEADING = """\
The container image of LLM-PO ships the packages below, each under its own licence, unchanged. psycopg and
psycopg-binary are under the LGPL 3: they are separate files in site-packages, and may be replaced by other
versions of them. The GPL 3, to which the LGPL refers, is in the image as /usr/share/common-licenses/GPL-3.

`make licences` writes this file from the installed packages.
"""
# Messages of pip-audit without a connection. Any other failure is an error of ours.
_UNREACHABLE = re.compile(
    r"ConnectionError|ConnectTimeout|ReadTimeout|NewConnectionError|Max retries exceeded|Name or "
    r"service not known|"
    r"Temporary failure in name resolution|ProxyError|SSLError|HTTPError: (403|404|407|5\d\d)|ServiceError"
)


def pins(requirements: str) -> dict[str, str]:
    """The packages of a requirements file with their versions."""
    return dict(re.findall(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", requirements, re.MULTILINE))


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def verdict(code: int, out: str, err: str) -> tuple[int, str]:
    """The exit status of the audit and what to say, from what pip-audit did.

    0 where all packages were looked up and none has a known vulnerability, and where the database could not
    be reached at all. 1 where a vulnerability is known, or only some packages could be looked up.
    """
    try:
        packages = json.loads(out)["dependencies"]
    except (ValueError, KeyError, TypeError):
        if code and _UNREACHABLE.search(err):
            return (
                0,
                f"NOT AUDITED: the advisory database cannot be reached. {err.strip().splitlines()[-1][:200]}",
            )
        return 1, f"pip-audit failed with status {code}: {err.strip()[-2000:]}"
    found = [
        (
            f"{each['name']} {each['version']}: {vulnerability['id']}, mended in "
            f"{', '.join(vulnerability['fix_versions']) or 'no version yet'}"
        )
        for each in packages
        for vulnerability in each.get("vulns", [])
    ]
    skipped = [each for each in packages if "skip_reason" in each]
    if found:
        return 1, "Known vulnerabilities:\n" + "\n".join(found)
    if packages and len(skipped) == len(packages):
        return 0, f"NOT AUDITED: the advisory database knows no package at all. {skipped[0]['skip_reason']}"
    if skipped:
        return 1, "Not audited: " + ", ".join(f"{each['name']} ({each['skip_reason']})" for each in skipped)
    if code or not packages:
        return 1, f"pip-audit failed with status {code}: {err.strip()[-2000:]}"
    return 0, f"{len(packages)} packages, no known vulnerability."


def audit() -> int:
    done = subprocess.run(
        [tool("pip-audit"), "--requirement", REQUIREMENTS, "--require-hashes", "--disable-pip",
         "--format", "json", "--progress-spinner", "off", "--desc", "off"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    status, message = verdict(done.returncode, done.stdout, done.stderr)
    line = "!" * 100
    print(f"{line}\n{message}\n{line}" if message.startswith("NOT AUDITED") else message)
    return status


def sbom(file: Path) -> int:
    file.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [tool("cyclonedx-py"), "requirements", REQUIREMENTS, "--pyproject", ROOT / "pyproject.toml",
         "--output-reproducible", "--output-format", "JSON", "--output-file", file],
        check=True,
    )  # fmt: skip
    missing = missing_from(file.read_text(), REQUIREMENTS.read_text())
    if missing:
        print(f"{file} lacks {', '.join(missing)}.")
        return 1
    print(f"{file}: {len(pins(REQUIREMENTS.read_text()))} packages.")
    return 0


def missing_from(document: str, requirements: str) -> list[str]:
    """The pinned packages that a CycloneDX document does not list in just that version, with a hash."""
    said = json.loads(document)
    if said.get("bomFormat") != "CycloneDX":
        return ["everything: it is no CycloneDX document"]
    listed = {
        (normalized(each["name"]), each.get("version"))
        for each in said.get("components", [])
        if any(reference.get("hashes") for reference in each.get("externalReferences", []))
        or each.get("hashes")
    }
    return [
        f"{name} {version}"
        for name, version in pins(requirements).items()
        if (normalized(name), version) not in listed
    ]


def licences(*, check: bool) -> int:
    text = licence_text(REQUIREMENTS.read_text())
    if not check:
        LICENCES.write_text(text)
        return 0
    if not LICENCES.exists() or LICENCES.read_text() != text:
        print(f"{LICENCES.name} is not that of the pinned packages. Run `make licences` and commit it.")
        return 1
    print(f"{LICENCES.name} is current.")
    return 0


def licence_text(requirements: str) -> str:
    done = subprocess.run(
        [tool("pip-licenses"), "--python", sys.executable, "--format", "json", "--with-system", "--with-urls",
         "--with-license-file", "--with-notice-file", "--no-license-path", "--packages", *pins(requirements)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    packages = sorted(json.loads(done.stdout), key=lambda each: normalized(each["Name"]))
    installed = {normalized(each["Name"]): each["Version"] for each in packages}
    wanted = {normalized(name): version for name, version in pins(requirements).items()}
    if installed != wanted:
        differ = sorted({name for name, _ in installed.items() ^ wanted.items()})
        sys.exit(
            f"These packages are not installed as pinned: {', '.join(differ)}. Install requirements-dev.txt."
        )
    return HEADING + "".join(map(_entry, packages))


def _entry(package: dict[str, str]) -> str:
    texts = [package[name].strip() for name in ("LicenseText", "NoticeText") if package[name] != "UNKNOWN"]
    title = f"{normalized(package['Name'])}=={package['Version']}"
    parts = [f"{'=' * 100}\n{title}\n{package['License']}\n{package['URL']}", *texts]
    # Line ends of other systems and trailing spaces would not survive an editor.
    whole = "\n\n".join(parts).replace("\r\n", "\n").replace("\r", "\n")
    return "\n" + "\n".join(line.rstrip() for line in whole.split("\n")) + "\n"


def tool(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("audit")
    commands.add_parser("sbom").add_argument("file", type=Path)
    commands.add_parser("licences").add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.command == "audit":
        return audit()
    if arguments.command == "sbom":
        return sbom(arguments.file)
    return licences(check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
