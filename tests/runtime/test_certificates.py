"""Hosts of a run know each other by its certificate, and what they say is theirs alone."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from pathlib import Path

import pytest

from dtfm_lab.domain.errors import FileError
from dtfm_lab.runtime.protocol.certificates import require_private, write_certificates, write_private
from dtfm_lab.runtime.protocol.channels import Channel, ConnectionLost, Refused
from dtfm_lab.runtime.protocol.connections import Listener, authenticated
from dtfm_lab.runtime.worker.transport import PeerListener, connect_to_peer

pytest.importorskip("cryptography")
SECRET = "of this test"


def run_of(folder: Path):
    folder.mkdir()
    return write_certificates(folder)


@pytest.fixture
def own(tmp_path):
    return run_of(tmp_path / "run")


def echo(channel: Channel) -> None:
    said = channel.receive(10)
    channel.acknowledge()
    channel.send(said=said)


def test_the_key_is_its_owners_alone_and_a_secret_that_others_can_read_is_refused(own):
    assert own.key.stat().st_mode & 0o777 == 0o600
    require_private(own.key)
    own.key.chmod(0o644)
    with pytest.raises(FileError, match=r"others can read this secret \(mode 644\); wanted chmod 600 key\.pem"):
        Listener("127.0.0.1", 0, SECRET, echo, certificates=own)


def test_a_secret_is_never_in_a_file_that_others_can_read(tmp_path, monkeypatch):
    file = tmp_path / "spec.json"
    file.write_text("")
    file.chmod(0o644)
    monkeypatch.setattr(Path, "chmod", lambda *_: pytest.fail("private only afterwards"))
    write_private(file, b"secret")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"secret", 0o600)
    assert list(tmp_path.iterdir()) == [file]


def test_bytes_that_are_no_certificate_are_a_mistake_of_one_line(own):
    own.certificate.write_text("nonsense")
    with pytest.raises(FileError, match="do not belong together"):
        _ = own.server
    own.certificate.unlink()
    with pytest.raises(FileError, match=r"no certificate\.pem or key\.pem"):
        _ = own.client


def test_both_ends_must_hold_the_key_of_the_same_run(own, tmp_path):
    rejected: list[str] = []
    heard = threading.Event()

    def note(peer: str, why: str) -> None:
        rejected.append(why)
        heard.set()

    listener = Listener("127.0.0.1", 0, SECRET, echo, note, certificates=own)
    channel = authenticated(*listener.address, SECRET, certificates=own, hello={"n": 1})
    assert channel.receive(10) == {"said": {"n": 1}}
    with pytest.raises(Refused, match="not this run's"):
        authenticated(*listener.address, SECRET, certificates=run_of(tmp_path / "other"), hello={})
    with pytest.raises(ConnectionLost):
        authenticated(*listener.address, SECRET, hello={})  # in clear
    with pytest.raises(Refused):
        authenticated(*listener.address, "guessed", certificates=own, hello={})
    heard.clear()
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # knows the run's certificate, and shows none
    bare.check_hostname = False
    bare.load_verify_locations(own.certificate)
    with contextlib.suppress(OSError), socket.create_connection(listener.address) as plain:
        wrapped = bare.wrap_socket(plain)
        wrapped.settimeout(60)
        assert b"nonce" not in wrapped.recv(100)
    assert heard.wait(60)
    listener.close()


def test_a_message_of_megabytes_arrives_as_it_was_sent_and_the_last_words_before_the_end(own):
    listener = PeerListener("127.0.0.1", SECRET, own)
    near = connect_to_peer(listener.address, SECRET, 1, 0, own)
    far = listener.wait_for(1, 0)
    assert far is not None
    content = bytes(range(256)) * 16384
    sender = threading.Thread(target=near.sendall, args=(content,))
    sender.start()
    assert received(far, len(content)) == content
    sender.join()
    near.sendall(b"last words")
    near.shutdown(socket.SHUT_RDWR)
    near.close()
    assert received(far, 10) == b"last words"
    far.settimeout(60)
    assert far.recv(1) == b""


def received(connection: socket.socket, n_bytes: int) -> bytes:
    content = bytearray()
    connection.settimeout(60)
    while len(content) < n_bytes:
        content += connection.recv(1 << 16)
    return bytes(content)


class Relay:
    """A man in the middle: passes bytes on, and from ``tamper`` on changes what the first end says."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target, self.tampers = target, False
        self.seen = bytearray()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = self._server.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        near, _ = self._server.accept()
        far = socket.create_connection(self._target)
        for a, b in ((near, far), (far, near)):
            threading.Thread(target=self._carry, args=(a, b), daemon=True).start()

    def _carry(self, a: socket.socket, b: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := a.recv(1 << 16):
                self.seen += chunk
                if self.tampers:
                    chunk = chunk.replace(b"iterate", b"execute") if b"iterate" in chunk else chunk[:-1] + b"\0"
                b.sendall(chunk)
        with contextlib.suppress(OSError):
            b.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("encrypted", [True, False])
def test_a_relay_that_passes_the_handshake_on_and_swaps_an_order_is_found_out_where_there_is_tls(own, encrypted):
    certificates = own if encrypted else None
    heard: list[dict[str, object]] = []
    taken, over = threading.Event(), threading.Event()

    def listen(channel: Channel) -> None:
        channel.receive(10)
        channel.acknowledge()
        taken.set()
        try:
            heard.append(channel.receive(30))
        finally:
            over.set()

    listener = Listener("127.0.0.1", 0, SECRET, listen, certificates=certificates)
    relay = Relay(listener.address)
    channel = authenticated(*relay.address, SECRET, certificates=certificates, hello={"rank": 0})
    assert taken.wait(60)
    relay.tampers = True
    channel.send(do="iterate", text="a" * 100)
    assert over.wait(60)
    assert heard == ([] if encrypted else [{"do": "execute", "text": "a" * 100}])
    assert (json.dumps("iterate").encode() in relay.seen) is not encrypted
    assert SECRET.encode() not in relay.seen
    listener.close()
