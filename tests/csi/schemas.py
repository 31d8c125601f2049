"""Checks manifests against Kubernetes' own schemas, which the package kubernetes-validate carries."""

import sys

import kubernetes_validate
import yaml

path, *versions = sys.argv[1:]
# Of CRDs that a cluster gets from elsewhere.
FOREIGN = {"VolumeSnapshotClass"}
with open(path, encoding="utf-8") as file:
    documents = [document for document in yaml.safe_load_all(file) if document]
assert documents, "no documents"
for version in versions:
    for document in documents:
        if document["kind"] in FOREIGN:
            continue
        kubernetes_validate.validate(document, version, strict=True)
kinds = sorted({document["kind"] for document in documents})
print(f"measured: {len(documents)} documents are valid for Kubernetes {' and '.join(versions)}: {', '.join(kinds)}")
