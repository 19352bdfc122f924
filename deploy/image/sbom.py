"""Lists the contents of an image as SPDX 2.3 in JSON: Coxswain's programs, Debian's packages, NVIDIA's packages, the crates.

The caller gives the time, and the namespace follows from the content, so the same files give the same bytes.
"""
import hashlib
import json
import re
from datetime import datetime, timezone

# Debian's licence names (DEP 5) that SPDX spells differently; the pattern GNU handles the GNU licences.
SPDX = {"expat": "MIT", "mit": "MIT", "mit/x11": "MIT", "x11": "X11", "isc": "ISC", "zlib": "Zlib", "apache-2.0": "Apache-2.0", "apache-2": "Apache-2.0",
        "bsd-2-clause": "BSD-2-Clause", "bsd-3-clause": "BSD-3-Clause", "curl": "curl", "openldap": "OLDAP-2.8",
        "openldap-2.8": "OLDAP-2.8", "mpl-2.0": "MPL-2.0", "unicode": "Unicode-DFS-2016", "0bsd": "0BSD", "cc0-1.0": "CC0-1.0",
        "cc0": "CC0-1.0", "oldap-2.8": "OLDAP-2.8"}
GNU = re.compile(r"(A?GPL|LGPL|GFDL)-?v?(\d)(?:\.(\d))?(\+?)$", re.I)


def iso(epoch):
    return datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def spdx_name(name):
    """Returns the SPDX id for one of Debian's licence names, or LicenseRef-Debian-…"""
    m = GNU.match(name)
    if m:
        return f"{m[1].upper()}-{m[2]}.{m[3] or 0}-" + ("or-later" if m[4] else "only")
    return SPDX.get(name.lower()) or "LicenseRef-Debian-" + (re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip("-") or "unnamed")


def debian_licences(text):
    """Returns the licences named in a machine-readable copyright file; empty for a prose file."""
    if not re.match(r"\s*Format(-Specification)?:", text):
        return []
    found = set()
    for line in re.findall(r"^License:[ \t]*(\S.*)$", text, re.M):
        for part in re.split(r",?\s+(?:and|or|with .*? exceptions?)\b,?\s*|,\s+|\s*\|\s*", line.strip(), flags=re.I):
            if part:
                found.add(spdx_name(part))
    return sorted(found)


def package(ident, name, version, supplier, licence, purl, **more):
    return {"SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", ident), "name": name, "versionInfo": version,
            "supplier": supplier, "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
            "licenseConcluded": "NOASSERTION", "licenseDeclared": licence, "copyrightText": "NOASSERTION",
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}], **more}


def debian_package(p, distribution, copyright_text):
    licences = debian_licences(copyright_text)
    purl = f"pkg:deb/debian/{p.name}@{p.version.replace('+', '%2B').replace(':', '%3A')}?arch={p.architecture}&distro={distribution}"
    return package(f"deb-{p.name}", p.name, p.version, "Organization: Debian", " AND ".join(licences) or "NOASSERTION", purl,
                   sourceInfo=f"built from the Debian source package {p.source}",
                   licenseComments=f"from the copyright file of the package, in the image at /usr/share/doc/{p.name}/copyright",
                   checksums=[{"algorithm": "SHA256", "checksumValue": p.sha256}])


def document(name, version, epoch, parts):
    """Returns the document's text. `parts` are results of package() and debian_package(), without Coxswain's own programs."""
    ours = package("coxswain", "coxswain", version, "NOASSERTION", "Apache-2.0", f"pkg:generic/coxswain@{version}",
                   primaryPackagePurpose="APPLICATION")
    packages = [ours, *sorted(parts, key=lambda p: p["SPDXID"])]
    refs = sorted({r for p in packages for r in re.findall(r"LicenseRef-[\w.-]+", p["licenseDeclared"])})
    content = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": name,
        "creationInfo": {"created": iso(epoch), "creators": ["Tool: coxswain-deploy-image"]},
        "packages": packages,
        "relationships": [
            {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": ours["SPDXID"]},
            *({"spdxElementId": ours["SPDXID"], "relationshipType": "DEPENDS_ON", "relatedSpdxElement": p["SPDXID"]}
              for p in packages[1:])],
        "hasExtractedLicensingInfos": [
            {"licenseId": r, "name": r, "extractedText": "as the copyright files say that name it: /usr/share/doc/*/copyright"}
            for r in refs]}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    content["documentNamespace"] = f"https://spdx.org/spdxdocs/{name}-{digest}"
    return json.dumps(content, indent=1, sort_keys=True) + "\n"
