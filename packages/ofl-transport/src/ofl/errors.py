"""What the transport raises.  Nothing here is ever raised for what a peer's *service* says."""


class TransportError(Exception):
    """Any failure of the wire.  Its text is one sentence for an operator."""


class EndpointError(TransportError, ValueError):
    """An endpoint that cannot be parsed, or that this build cannot serve; the text names the part."""


class AddressInUseError(TransportError):
    """Another process listens there already; the text names address and port."""


class DeadlineError(TransportError, TimeoutError):
    """The deadline passed first.  The call may still be under way at the peer until it is cancelled."""


class PeerLostError(TransportError, ConnectionError):
    """The peer is gone, frozen, or broke the framing; the connection is unusable and must be closed."""


class ConnectRefusedError(TransportError, ConnectionError):
    """The peer answered and said no (service, version, limits), or nobody listens there."""


class CancelledError(TransportError):
    """The call was cancelled by this side."""


class FrameTooLargeError(TransportError, ValueError):
    """A message over the limit that both sides agreed on; nothing was sent and the connection lives on."""


class ClosedError(TransportError):
    """The object was closed by this side; a misuse, or a wake-up of a waiter during shutdown."""


class QuarantinedError(TransportError):
    """The memory may still be written by a call that was cancelled; `Client.settled` says when no longer."""


class OverlapError(TransportError):
    """The memory, or a part of it, belongs to another open call."""


class SettingError(TransportError, ValueError):
    """An environment variable with a value that cannot be used; the text names the variable."""
