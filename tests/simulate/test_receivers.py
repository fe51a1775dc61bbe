"""The stand-ins for the providers see what a provider would have seen."""

import socket

from watchtower.simulate.receivers import Receiver


def test_a_request_that_breaks_off_half_way_was_never_a_message() -> None:
    with Receiver() as receiver:
        host, port = receiver.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=5) as sock:
            sock.sendall(
                b'POST /services/T/B/x HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{"text": "half'
            )
            sock.shutdown(socket.SHUT_WR)
            assert sock.recv(100) == b""
        assert (receiver.accepted, receiver.refused) == ([], [])
