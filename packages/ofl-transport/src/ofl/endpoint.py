"""The endpoint grammar.  Pure.

tcp://host:port?bind=address     also tcp://host:port@address
rdma://host:port?bind=address    the same, over RDMA
shm://name                       a server on this host, by name
"""

import ipaddress
import re
from dataclasses import dataclass

from ofl.errors import EndpointError

SCHEMES = ("tcp", "rdma", "shm")
FORMS = "tcp://host:port?bind=address, rdma://host:port?bind=address or shm://name"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BRACKETED = re.compile(r"\[([^\[\]]*)\]")
_HOST_AND_PORT = re.compile(r"(\[[^\[\]]*\]|[^:]*)(?::(.*))?", re.DOTALL)
_HOST = re.compile(r"(?=.{1,253}\Z)(?=[A-Za-z0-9])([A-Za-z0-9-]{1,63}\.)*[A-Za-z0-9-]{0,62}[A-Za-z0-9]\Z")
"""Labels of 1 to 63 characters, 253 in all: a resolver takes no others."""
_ZONE = re.compile(r"[A-Za-z0-9._-]{1,15}\Z")
"""The name of a network interface; the kernel allows more, no URL does."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")


@dataclass(frozen=True)
class Endpoint:
    """A parsed endpoint.

    host: address or name; of shm the server's name.  port: 0 to 65535; of shm 0.  bind: local address, or None.
    """

    scheme: str
    host: str
    port: int = 0
    bind: str | None = None

    def __str__(self) -> str:
        if self.scheme == "shm":
            return f"shm://{self.host}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        tail = f"?bind={self.bind}" if self.bind else ""
        return f"{self.scheme}://{host}:{self.port}{tail}"

    @property
    def connectable(self) -> bool:
        """False for port 0, which can be listened on but not connected to."""
        return self.scheme == "shm" or self.port != 0


def parse_endpoint(text: str) -> Endpoint:
    """Parse one endpoint; raises EndpointError naming the part at fault, with the grammar."""
    if _CONTROL.search(text):
        raise _wrong(text, "it has a control character")
    scheme, separator, rest = text.partition("://")
    if not separator:
        raise _wrong(text, "it has no scheme://")
    if scheme not in SCHEMES:
        raise _wrong(text, f"scheme {scheme!r} is unknown")
    if scheme == "shm":
        return Endpoint(scheme, _shm_name(text, rest))
    main, binds = _binds(text, rest)
    if len(binds) > 1:
        raise _wrong(text, "bind is given twice")
    host, port = _host_and_port(text, main)
    return Endpoint(scheme, host, port, _address(text, binds[0]) if binds else None)


def _shm_name(text: str, name: str) -> str:
    if not _NAME.match(name):
        raise _wrong(text, f"name {name!r} is not 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'")
    return name


def _binds(text: str, rest: str) -> tuple[str, list[str]]:
    """What comes before the options, and the values of bind.  Values stand as they are: nothing is unquoted."""
    head, at, bind = rest.partition("@")
    main, question, query = head.partition("?")
    if "/" in main or "#" in rest:
        raise _wrong(text, "it has a path or fragment")
    binds = [bind] if at else []
    for option in query.split("&") if question else ():
        key, equals, value = option.partition("=")
        if not equals or key != "bind":
            raise _wrong(text, f"option {option if not equals else key!r} is unknown")
        binds.append(value)
    return main, binds


def _host_and_port(text: str, main: str) -> tuple[str, int]:
    parts = _HOST_AND_PORT.fullmatch(main)
    assert parts is not None, "both alternatives together match every text"
    host, port = parts.groups()
    if not host:
        raise _wrong(text, "the host is missing")
    if port is None:
        raise _wrong(text, "the port is missing")
    if not (port.isascii() and port.isdigit() and int(port[:6]) <= 65535 and len(port) <= 5):
        raise _wrong(text, f"port {port!r} is not a number from 0 to 65535")
    return _host(text, host), int(port)


def _host(text: str, host: str) -> str:
    if "[" in host or host.replace(".", "").isdigit():
        return _address(text, host, "host")
    if not _HOST.match(host):
        raise _wrong(text, f"host {host!r} is neither an address nor a name")
    return host.lower()


def _address(text: str, value: str, part: str = "bind") -> str:
    bracketed = _BRACKETED.fullmatch(value)
    bare = bracketed.group(1) if bracketed else value
    zone = bare.partition("%")[2]
    try:
        address = str(ipaddress.ip_address(bare))
    except ValueError:
        raise _wrong(text, f"{part} {value!r} is not an IP address") from None
    if zone and not _ZONE.match(zone):
        raise _wrong(text, f"{part} {value!r} has a zone that is no name of an interface")
    return address


def _wrong(text: str, clause: str) -> EndpointError:
    return EndpointError(f"endpoint {text!r}: {clause} (form: {FORMS})")
