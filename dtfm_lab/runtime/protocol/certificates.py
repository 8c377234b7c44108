"""The certificate of a run: one key pair, made when the run is exported, by which its hosts recognise each other.

Both ends of a connection show the same certificate and prove that they hold its key (TLS 1.3). A peer with any other
certificate is refused, however well signed. Host names and the system's certificate authorities play no part.
"""

import datetime
import os
import ssl
import stat
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.files.reading import explained, reason_of

CERTIFICATE_FILE = "certificate.pem"
KEY_FILE = "key.pem"
VALID = datetime.timedelta(days=365)
SKEW = datetime.timedelta(days=1)
"""How far the clocks of hosts may be behind the exporting host's clock."""
OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True)
class Certificates:
    """Paths of a run's certificate and private key, and the TLS contexts made from them.

    The contexts raise FileError if a file is missing or invalid, or if others may read the key.
    """

    certificate: Path
    key: Path

    @cached_property
    def server(self) -> ssl.SSLContext:
        """TLS context of the end that listens."""
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        context.num_tickets = 0  # no client resumes a session
        return context

    @cached_property
    def client(self) -> ssl.SSLContext:
        """TLS context of the end that connects."""
        return self._context(ssl.PROTOCOL_TLS_CLIENT)

    @cached_property
    def pinned(self) -> bytes:
        """The certificate in DER. The other end's must be equal."""
        return ssl.PEM_cert_to_DER_cert(self.certificate.read_text())

    def _context(self, protocol: int) -> ssl.SSLContext:
        where = self.certificate.parent.name
        try:
            require_private(self.key)
            context = ssl.SSLContext(protocol)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.check_hostname = False  # the run's key identifies a host, not its name
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_cert_chain(self.certificate, self.key)
            context.load_verify_locations(self.certificate)
            _ = self.pinned
        except FileNotFoundError:
            raise FileError(
                f"{where}: no {CERTIFICATE_FILE} or {KEY_FILE}; wanted both, as written with the run folder"
            ) from None
        except (ssl.SSLError, ValueError):
            wanted = f"{CERTIFICATE_FILE} and {KEY_FILE} of one run folder"
            raise FileError(f"{where}: its certificate and key do not belong together; wanted {wanted}") from None
        except OSError as error:
            raise FileError(f"{where}: its certificate cannot be read: {reason_of(error)}") from None
        return context


def certificates_in(folder: Path) -> Certificates:
    """Return the certificate of the run in this folder. Nothing is read yet."""
    return Certificates(folder / CERTIFICATE_FILE, folder / KEY_FILE)


def write_certificates(folder: Path) -> Certificates:
    """Make a key pair (P-256) and a self-signed certificate, and write both. Only the owner can read the key.

    Raises LabError if the package cryptography is missing, and FileError if the folder cannot be written.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise LabError("cryptography is not installed; wanted pip install 'dtfm_lab[hosts]'") from None
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "dtfm_lab run")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Hosts' clocks may differ.
        .not_valid_before(now - SKEW)
        .not_valid_after(now + VALID)
        # It signs nothing else, so it is not an authority.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = certificates_in(folder)
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    write_private(files.key, pem)
    with explained(str(folder)):
        files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return files


def write_private(file: Path, secret: bytes) -> None:
    """Write a file that only its owner can read, from its first byte on. Raises FileError if it cannot be written."""
    with explained(str(file)):
        file.unlink(missing_ok=True)
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(secret)


def require_private(file: Path) -> None:
    """Raise FileError if anyone but the owner has any permission on a file that holds a secret, as ssh does for its
    keys.

    A missing file is accepted, and so is every file on systems without POSIX permissions.
    """
    if os.name != "posix":
        return
    try:
        mode = file.stat().st_mode
    except OSError:
        return  # the code that reads it reports that
    if mode & OTHERS:
        found = stat.S_IMODE(mode)
        raise FileError(f"{file}: others can read this secret (mode {found:o}); wanted chmod 600 {file.name}")
