"""TLS over bytes in memory, so that the read, and with it the kernel's stamp, stays ours."""

from __future__ import annotations

import ssl

from tgi_bench.drive.connection import FailedRequestError
from tgi_bench.load_observation import RequestOutcome

_READ_BYTES = 1 << 16


class TlsLayer:
    """One connection's encryption. Each method returns the bytes to send, or what was decrypted.

    All of them raise FailedRequestError with the outcome TLS.
    """

    __slots__ = ("_incoming", "_outgoing", "_tls", "open")

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self.open = False

    def shake_hands(self, received: bytes) -> bytes:
        """Go on with the handshake; `open` is True once it is over."""
        self._incoming.write(received)
        try:
            self._tls.do_handshake()
            self.open = True
        except ssl.SSLWantReadError:
            pass  # more must come first
        except ssl.SSLError as error:
            raise _failure(error) from None
        return self._outgoing.read()

    def encrypted(self, data: bytes) -> bytes:
        """The records to send."""
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            raise _failure(error) from None
        return self._outgoing.read()

    def decrypted(self, received: bytes) -> bytes:
        """The plain text of what came; b"" where no whole record is there."""
        self._incoming.write(received)
        parts = []
        try:
            while part := self._tls.read(_READ_BYTES):
                parts.append(part)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass  # no more yet, or the end, which shows as the end of the connection too
        except ssl.SSLError as error:
            raise _failure(error) from None
        return b"".join(parts)


def _failure(error: ssl.SSLError) -> FailedRequestError:
    if isinstance(error, ssl.SSLCertVerificationError):
        what = f"the certificate does not verify: {error.verify_message}"
    else:
        what = f"TLS: {error.reason or error}"
    return FailedRequestError(RequestOutcome.TLS, what)
