"""The endpoint grammar: every text is an endpoint or an EndpointError that names the part at fault."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ofl.endpoint import Endpoint, parse_endpoint
from ofl.errors import EndpointError

PORTS = st.integers(0, 65535)
ADDRESSES = st.ip_addresses().map(str)
NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?(\.[a-z][a-z0-9]{0,5}){0,2}", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("tcp://10.0.0.1:18620", Endpoint("tcp", "10.0.0.1", 18620)),
        ("tcp://host.example:1?bind=10.0.0.2", Endpoint("tcp", "host.example", 1, "10.0.0.2")),
        ("tcp://10.0.0.1:18620@10.0.0.2", Endpoint("tcp", "10.0.0.1", 18620, "10.0.0.2")),
        ("tcp://[fd00::1]:0", Endpoint("tcp", "fd00::1", 0)),
        ("tcp://[fd00::1]:7@[fd00::2]", Endpoint("tcp", "fd00::1", 7, "fd00::2")),
        ("tcp://[fd00:0:0::1]:7?bind=fd00::2", Endpoint("tcp", "fd00::1", 7, "fd00::2")),
    ],
)
def test_the_documented_forms_parse(text: str, endpoint: Endpoint) -> None:
    assert parse_endpoint(text) == endpoint


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("", "no scheme"),
        ("10.0.0.1:1", "no scheme"),
        ("udp://10.0.0.1:1", "scheme 'udp' is unknown"),
        ("rdma://10.0.0.1:1", "not built yet"),
        ("shm://name", "not built yet"),
        ("tcp://10.0.0.1", "port is missing"),
        ("tcp://:1", "host is missing"),
        ("tcp://10.0.0.1:65536", "port out of range"),
        ("tcp://10.0.0.1:-1", "port"),
        ("tcp://10.0.0.1:x", "port"),
        ("tcp://10.0.0.256:1", "host '10.0.0.256' is not an IP address"),
        ("tcp://a b:1", "host 'a b'"),
        ("tcp://h:1/path", "path"),
        ("tcp://h:1#part", "fragment"),
        ("tcp://h:1#", "fragment"),
        ("tcp://h:1\n", "control character"),
        ("tcp://h\t:1", "control character"),
        ("tcp://h:1?bind=10.0.0.2\r", "control character"),
        ("tcp://h:1@[fd00::2", "bind '[fd00::2' is not an IP address"),
        ("tcp://h:1@fd00::2]", "bind 'fd00::2]' is not an IP address"),
        ("tcp://h:1@[[fd00::2]]", "bind '[[fd00::2]]' is not an IP address"),
        ("tcp://h:1?bind=h", "bind 'h' is not an IP address"),
        ("tcp://h:1?bind=", "bind '' is not an IP address"),
        ("tcp://h:1?bnd=10.0.0.1", "option 'bnd' is unknown"),
        ("tcp://h:1?bind=10.0.0.1&bind=10.0.0.2", "bind is given twice"),
        ("tcp://h:1?bind=10.0.0.1@10.0.0.2", "bind is given twice"),
    ],
)
def test_what_is_wrong_is_named(text: str, clause: str) -> None:
    with pytest.raises(EndpointError, match="endpoint ") as caught:
        parse_endpoint(text)
    assert clause in str(caught.value)
    assert "\n" not in str(caught.value)


@given(
    st.one_of(
        st.text(),
        st.text().map("tcp://".__add__),
        st.text(alphabet="tcp:/[]@?=&.019afbindx%").map("tcp://".__add__),
    )
)
def test_any_text_is_an_endpoint_or_an_endpoint_error(text: str) -> None:
    try:
        endpoint = parse_endpoint(text)
    except EndpointError:
        return
    assert parse_endpoint(str(endpoint)) == endpoint


@given(st.one_of(ADDRESSES, NAMES), PORTS, st.one_of(st.none(), ADDRESSES))
def test_every_endpoint_survives_its_own_text(host: str, port: int, bind: str | None) -> None:
    endpoint = Endpoint("tcp", host, port, bind)
    assert parse_endpoint(str(endpoint)) == endpoint


@given(ADDRESSES, PORTS, ADDRESSES)
def test_both_spellings_of_bind_mean_the_same(host: str, port: int, bind: str) -> None:
    main = str(Endpoint("tcp", host, port))
    assert parse_endpoint(f"{main}@{bind}") == parse_endpoint(f"{main}?bind={bind}")
