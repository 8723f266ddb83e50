"""The two kinds of failure of the session core."""

from ofl.contract.dspark_v1 import HelloReply, Status


class LocalError(Exception):
    """We misused the core (a connection reported twice, say): a defect of this process, never the peer's."""


class RemoteError(Exception):
    """The peer sent what this service refuses; becomes a refusal with these words.

    status: never OK.  field: what is at fault, as the contract spells it.  detail: one clause, with values.
    hello: what the worker offers, with a MISMATCH.
    """

    def __init__(self, status: Status, field: str, detail: str, hello: HelloReply | None = None) -> None:
        super().__init__(f"{status.name} {field}: {detail}")
        self.status = status
        self.field = field
        self.detail = detail
        self.hello = hello
