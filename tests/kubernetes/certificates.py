"""The cluster's certificate authority, the certificates of its parts, and their kubeconfig files."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=30)


class Certificates:
    """Writes ``<name>.crt`` and ``<name>.key`` into a folder, all signed by the authority in ``ca.crt``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, mode=0o700)
        self._key = _new_key()
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "airflow_delta_merge tests")])
        builder = _builder(self._name, self._name, self._key.public_key())
        authority = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.authority = folder / "ca.crt"
        self.authority.write_bytes(authority.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def issue(self, name: str, user: str, *, group: str | None = None, reached_at: Sequence[str] = ()) -> None:
        """Make a certificate.

        :param user: who Kubernetes takes the owner for.
        :param group: the user's group.
        :param reached_at: the addresses and names of a server.
        """
        key = _new_key()
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        if group is not None:
            attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        builder = _builder(x509.Name(attributes), self._name, key.public_key())
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if reached_at:
            builder = builder.add_extension(x509.SubjectAlternativeName(map(_alternative, reached_at)), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        self.certificate(name).write_bytes(certificate.public_bytes(Encoding.PEM))
        self._write_key(name, key)

    def issue_key_pair(self, name: str) -> None:
        """Make ``<name>.key`` and ``<name>.pub``, which sign and check the tokens of service accounts."""
        key = _new_key()
        self._write_key(name, key)
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (self.folder / f"{name}.pub").write_bytes(public)

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def write_kubeconfig(self, file: Path, name: str, server: str) -> None:
        """Write how the owner of a certificate reaches the API server. The file needs no other file."""
        cluster = {"server": server, "certificate-authority-data": _encoded(self.authority)}
        user = {
            "client-certificate-data": _encoded(self.certificate(name)),
            "client-key-data": _encoded(self.key(name)),
        }
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": name}}],
            "current-context": "tests",
        }
        file.touch(mode=0o600)
        file.write_text(json.dumps(content))

    def _write_key(self, name: str, key: rsa.RSAPrivateKey) -> None:
        file = self.key(name)
        file.touch(mode=0o600)
        file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _builder(subject: x509.Name, issuer: x509.Name, key: rsa.RSAPublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return (
        builder.serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
    )


def _alternative(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
