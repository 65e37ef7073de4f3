"""Why a request got no answer."""

from __future__ import annotations

import errno

from tgi_bench.load_observation import RequestOutcome

_OUT_OF = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)


class FailedRequestError(Exception):
    """A connection could not be opened, or went away; `outcome` is that of its request."""

    def __init__(self, outcome: RequestOutcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome


def failure_of(error: OSError, doing: str) -> FailedRequestError:
    """The failure that an error of the system means. doing: "connect", "send", "read"."""
    text = f"{doing}: {error.strerror or error}"
    if error.errno in _OUT_OF:
        return FailedRequestError(RequestOutcome.CLIENT_LIMIT, text)
    if isinstance(error, TimeoutError):
        return FailedRequestError(RequestOutcome.TIMEOUT, text)
    if doing == "connect":
        return FailedRequestError(RequestOutcome.CONNECTION_REFUSED, text)
    return FailedRequestError(RequestOutcome.CONNECTION_RESET, text)
