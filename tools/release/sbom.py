"""The list of parts (SBOM) in CycloneDX's format: what Carpool needs, in the versions that it was tested with."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from tools.release.problem import Problem
from tools.release.source import Source
from tools.release.vendor import LIST, SHIPPED

LOCKED = re.compile(r"^([\w.-]+)==(\S+)((?:.*\\\n.*--hash=sha256:\w+)+)", re.MULTILINE)


def write_sbom(source: Source, archives: Sequence[Path], out: Path) -> Path:
    """The same for the same source and archives.  Raises Problem if a part is not locked."""
    carpool = _carpool(source, archives)
    made = BomMetaData(component=carpool, timestamp=datetime.fromtimestamp(source.time, UTC))
    serial = uuid5(NAMESPACE_URL, f"carpool {source.version} {source.commit}")
    parts = [*_parts(source.root), *_vendored(source.root)]
    bom = Bom(components=parts, metadata=made, serial_number=serial)
    bom.register_dependency(carpool, parts)
    file = out / f"carpool-{source.version}.cdx.json"
    file.write_text(JsonV1Dot6(bom).output_as_string(indent=2) + "\n")
    return file


def _carpool(source: Source, archives: Sequence[Path]) -> Component:
    hashes = {archive.name: sha256(archive.read_bytes()).hexdigest() for archive in archives}
    return Component(
        name="carpool",
        version=source.version,
        type=ComponentType.APPLICATION,
        licenses=[DisjunctiveLicense(id="Apache-2.0")],
        purl=PackageURL("pypi", name="carpool", version=source.version),
        external_references=[_distribution(name, [digest]) for name, digest in hashes.items()],
    )


def _parts(root: Path) -> Iterator[Component]:
    """Those of ``requirements/carpool.txt``: what users install with Carpool, not what it is developed with."""
    locked = _locked(root / "requirements/carpool.lock")
    listed = (root / "requirements/carpool.txt").read_text()
    for name, version in re.findall(r"^([\w.-]+)==(\S+)$", listed, re.MULTILINE):
        if (_plain(name), version) not in locked:
            raise Problem(f"carpool.lock has no hashes of {name} {version}: make lock, commit, and tag again")
        files = _distribution(f"https://pypi.org/project/{name}/{version}/", locked[_plain(name), version])
        package = PackageURL("pypi", name=_plain(name), version=version)
        yield Component(name=name, version=version, purl=package, external_references=[files])


def _vendored(root: Path) -> Iterator[Component]:
    """Packages of npm of which the wheel has files."""
    for package in json.loads((root / SHIPPED / LIST).read_text())["packages"]:
        algorithm, _, digest = package["integrity"].partition("-")
        assert algorithm == "sha512"
        yield Component(
            name=package["name"],
            version=package["version"],
            licenses=[DisjunctiveLicense(id=package["license"])],
            purl=PackageURL("npm", name=package["name"], version=package["version"]),
            hashes=[HashType(alg=HashAlgorithm.SHA_512, content=base64.b64decode(digest).hex())],
        )


def _locked(lock: Path) -> dict[tuple[str, str], list[str]]:
    """The hashes of each package and version.  Raises Problem."""
    if not lock.is_file():
        raise Problem(f"the tag has no {lock.name}: make lock, commit, and tag again")
    found = LOCKED.findall(lock.read_text())
    return {(_plain(name), version): re.findall(r"sha256:(\w+)", hashes) for name, version, hashes in found}


def _distribution(where: str, digests: Sequence[str]) -> ExternalReference:
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in digests]
    return ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(where), hashes=hashes)


def _plain(name: str) -> str:
    """As indexes spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()
