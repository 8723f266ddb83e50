"""The endpoint grammar: `scheme://host:port?bind=addr`, also `scheme://host:port@bind`.  Pure."""

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from ofl.errors import EndpointError

SCHEMES = ("tcp",)
PLANNED_SCHEMES = ("rdma", "shm")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BRACKETED = re.compile(r"\[([^\[\]]*)\]")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?\Z")


@dataclass(frozen=True)
class Endpoint:
    """A parsed endpoint.  host: address or name; port: 0 to 65535; bind: local address, or None."""

    scheme: str
    host: str
    port: int
    bind: str | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        tail = f"?bind={self.bind}" if self.bind else ""
        return f"{self.scheme}://{host}:{self.port}{tail}"


def parse_endpoint(text: str) -> Endpoint:
    """Parse one endpoint; raises EndpointError naming the part at fault, with the grammar."""
    if _CONTROL.search(text):  # urlsplit drops some of them without a word
        raise _wrong(text, "it has a control character")
    scheme, separator, rest = text.partition("://")
    if not separator:
        raise _wrong(text, "it has no scheme://")
    if scheme in PLANNED_SCHEMES:
        raise _wrong(text, f"scheme {scheme!r} is not built yet; use tcp")
    if scheme not in SCHEMES:
        raise _wrong(text, f"scheme {scheme!r} is unknown")
    main, at, bind_text = rest.partition("@")
    try:
        parts = urlsplit(f"//{main}")
        host, port = parts.hostname, parts.port
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise _wrong(text, str(error).lower()) from None
    if parts.path or parts.username or "#" in rest:
        raise _wrong(text, "it has a path, fragment or user")
    if not host:
        raise _wrong(text, "the host is missing")
    if port is None:
        raise _wrong(text, "the port is missing")
    binds = [bind_text] if at else []
    for key, value in options:
        if key != "bind":
            raise _wrong(text, f"option {key!r} is unknown")
        binds.append(value)
    if len(binds) > 1:
        raise _wrong(text, "bind is given twice")
    bind = _address(text, binds[0]) if binds else None
    return Endpoint(scheme, _host(text, host), port, bind)


def _host(text: str, host: str) -> str:
    if ":" in host or host.replace(".", "").isdigit():
        return _address(text, host, "host")
    if not _HOST.match(host):
        raise _wrong(text, f"host {host!r} is neither an address nor a name")
    return host


def _address(text: str, value: str, part: str = "bind") -> str:
    bracketed = _BRACKETED.fullmatch(value)
    try:
        return str(ipaddress.ip_address(bracketed.group(1) if bracketed else value))
    except ValueError:
        raise _wrong(text, f"{part} {value!r} is not an IP address") from None


def _wrong(text: str, clause: str) -> EndpointError:
    return EndpointError(f"endpoint {text!r}: {clause} (form: tcp://host:port?bind=address)")
