"""The address of an engine's API, read and checked.  Pure."""

from dataclasses import dataclass
from urllib.parse import urlsplit

PORTS = {"http": 80, "https": 443}


class AddressError(ValueError):
    """The text is no address of an API; the message says why."""


@dataclass(frozen=True)
class Address:
    """Where an API is.  path: what stands before `/v1/...`, without a slash at its end; mostly empty."""

    scheme: str
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def parse_address(text: str) -> Address:
    """An address from `http://host:port`, with or without `/v1` at its end.  Raises AddressError."""
    shown = repr(text)
    if not text.isascii() or not text.isprintable() or " " in text:
        raise AddressError(f"{shown} holds characters that no address has")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise AddressError(f"{shown} is no address ({error})") from None
    if parts.scheme not in PORTS or not parts.hostname:
        raise AddressError(f"{shown} is no address such as http://127.0.0.1:8000")
    if parts.username is not None or parts.password is not None:
        raise AddressError("an address holds no name or password; a key of the API goes by VLLM_API_KEY")
    if parts.query or parts.fragment:
        raise AddressError(f"{shown} has a query or a fragment, which an API's address has not")
    if port == 0:
        raise AddressError(f"{shown} has port 0, where nobody listens")
    path = parts.path.rstrip("/").removesuffix("/v1")
    return Address(parts.scheme, parts.hostname, port or PORTS[parts.scheme], path)
