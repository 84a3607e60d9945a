"""Two hosts send each other bytes at the same time, by plain TCP: prints how many a second.

Usage: tcp_rate.py NUMBER ADDRESS PORT BYTES, on hosts 0 and 1; ADDRESS: of host 0.
"""

import contextlib
import socket
import sys
import threading
import time


def connected(number, address):
    if number == 0:
        with socket.create_server(address) as listening:
            return listening.accept()[0]
    end = time.monotonic() + 10
    while time.monotonic() < end:
        with contextlib.suppress(ConnectionError):
            return socket.create_connection(address)
        time.sleep(0.05)
    raise TimeoutError(f"nobody listens at {address}")


def main():
    address = sys.argv[2]
    number, port, num_bytes = (int(sys.argv[n]) for n in (1, 3, 4))
    with connected(number, (address, port)) as peer:
        begin = time.monotonic()
        sending = threading.Thread(target=lambda: peer.sendall(bytes(num_bytes)))
        sending.start()
        left = num_bytes
        while left > 0:
            left -= len(peer.recv(min(left, 1 << 20)))
        sending.join()
        print(num_bytes / (time.monotonic() - begin))


if __name__ == "__main__":
    main()
