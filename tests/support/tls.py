"""A certificate for 127.0.0.1, made on the spot."""

import subprocess
from pathlib import Path


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """The paths of a self-signed certificate and of its key."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    subprocess.run(
        [*command.split(), *names, "-out", str(certificate), "-keyout", str(key)],
        check=True,
        capture_output=True,
    )
    return certificate, key
