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
        ("tcp://[fe80::1%eth0]:7?bind=fe80::2%ab", Endpoint("tcp", "fe80::1%eth0", 7, "fe80::2%ab")),
        ("tcp://Host.Example:1", Endpoint("tcp", "host.example", 1)),
        (f"tcp://{'a' * 63}.b-c.d:1", Endpoint("tcp", f"{'a' * 63}.b-c.d", 1)),
        (f"tcp://{'a.' * 126}a:1", Endpoint("tcp", f"{'a.' * 126}a", 1)),
        ("rdma://10.0.0.1:18620?bind=10.0.0.2", Endpoint("rdma", "10.0.0.1", 18620, "10.0.0.2")),
        ("rdma://[fe80::1%eth0]:0", Endpoint("rdma", "fe80::1%eth0", 0)),
        ("shm://drafter-0.a_B", Endpoint("shm", "drafter-0.a_B")),
        ("shm://.", Endpoint("shm", ".")),
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
        ("TCP://10.0.0.1:1", "scheme 'TCP' is unknown"),
        ("rdma://10.0.0.1", "port is missing"),
        ("shm://", "name ''"),
        ("shm://a/b", "name 'a/b'"),
        ("shm://a:1", "name 'a:1'"),
        ("shm://a?bind=10.0.0.1", "name 'a?bind=10.0.0.1'"),
        ("shm://" + "a" * 65, "is not 1 to 64"),
        ("shm://a\n", "control character"),
        ("shm://\u00e9", "is not 1 to 64"),
        ("tcp://10.0.0.1", "port is missing"),
        ("tcp://:1", "host is missing"),
        ("tcp://10.0.0.1:65536", "port '65536' is not a number from 0 to 65535"),
        ("tcp://10.0.0.1:" + "0" * 5000, "is not a number"),
        ("tcp://10.0.0.1:-1", "port '-1'"),
        ("tcp://10.0.0.1:x", "port 'x'"),
        ("tcp://10.0.0.1:\u0663", "port '\u0663'"),
        ("tcp://10.0.0.1:", "port ''"),
        ("tcp://fd00::1:7", "port ':1:7'"),
        ("tcp://[fd00::1]x:7", "port ':1]x:7'"),
        ("tcp://]:7", "host ']'"),
        ("tcp://user@10.0.0.1:1", "port is missing"),
        ("tcp://10.0.0.256:1", "host '10.0.0.256' is not an IP address"),
        ("tcp://a b:1", "host 'a b'"),
        ("tcp://a..b:1", "host 'a..b'"),
        (f"tcp://{'a' * 64}.example:1", "is neither an address nor a name"),
        (f"tcp://{'a.' * 126}ab:1", "is neither an address nor a name"),
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
        ("tcp://h:1?key_file=/k", "option 'key_file' is unknown"),
        ("tcp://h:1?", "option '' is unknown"),
        ("tcp://[fe80::1%a b]:1", "zone"),
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
        st.text(alphabet="aZ09._-/?:@").map("shm://".__add__),
    )
)
def test_any_text_is_an_endpoint_or_an_endpoint_error(text: str) -> None:
    try:
        endpoint = parse_endpoint(text)
    except EndpointError:
        return
    assert parse_endpoint(str(endpoint)) == endpoint


@given(st.sampled_from(["tcp", "rdma"]), st.one_of(ADDRESSES, NAMES), PORTS, st.one_of(st.none(), ADDRESSES))
def test_every_endpoint_survives_its_own_text(scheme: str, host: str, port: int, bind: str | None) -> None:
    endpoint = Endpoint(scheme, host, port, bind)
    assert parse_endpoint(str(endpoint)) == endpoint
    assert endpoint.connectable == (port != 0)


@given(st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True))
def test_every_shm_name_survives_its_own_text(name: str) -> None:
    endpoint = Endpoint("shm", name)
    assert parse_endpoint(str(endpoint)) == endpoint
    assert endpoint.connectable


@given(ADDRESSES, PORTS, ADDRESSES)
def test_both_spellings_of_bind_mean_the_same(host: str, port: int, bind: str) -> None:
    main = str(Endpoint("tcp", host, port))
    assert parse_endpoint(f"{main}@{bind}") == parse_endpoint(f"{main}?bind={bind}")
