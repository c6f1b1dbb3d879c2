"""Certificates for the sites of tests."""

import datetime as dt
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class Authority:
    """Signs for names, and is believed by nobody but these tests."""

    def __init__(self, folder: Path, *names: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a test")])
        now = dt.datetime.now(dt.UTC)
        hour = dt.timedelta(hours=1)
        alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        builder = x509.CertificateBuilder(
            issuer_name=name,
            subject_name=name,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - hour,
            not_valid_after=now + hour,
        ).add_extension(alternatives, critical=False)
        certificate = builder.sign(key, hashes.SHA256())
        self.file = folder / "certificate.pem"
        pem = serialization.Encoding.PEM
        secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        self.file.write_bytes(certificate.public_bytes(pem) + secret)
        self.asked: list[str | None] = []
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(self.file)
        self.server.sni_callback = lambda _, name, __: self.asked.append(name)
        self.client = ssl.create_default_context(cafile=self.file)
