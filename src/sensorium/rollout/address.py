"""Check that a server answers at an address: JAX and Ray themselves would wait for minutes, or abort."""

import socket

PATIENCE = 5.0  # seconds


def answers(address: str) -> bool:
    """Check whether a connection to `address`, a host and a port, can be made."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()
    except (OSError, ValueError):
        return False
    return True
