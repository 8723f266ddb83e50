"""Addresses of an engine's API: what is one, and what is refused in a sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark_overlay.http_api.address import Address, AddressError, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://127.0.0.1:8000", Address("http", "127.0.0.1", 8000, "")),
        ("http://127.0.0.1:8000/", Address("http", "127.0.0.1", 8000, "")),
        ("http://spark:8000/v1", Address("http", "spark", 8000, "")),
        ("http://spark:8000/v1/", Address("http", "spark", 8000, "")),
        ("https://spark/engines/a/v1", Address("https", "spark", 443, "/engines/a")),
        ("http://[::1]:8000", Address("http", "::1", 8000, "")),
    ],
)
def test_an_address_with_or_without_v1_is_read(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address, "what is shown can be given again"


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("127.0.0.1:8000", "no address such as http://127.0.0.1:8000"),
        ("ftp://h:1", "no address such as"),
        ("http://", "no address such as"),
        ("http://h:99999", "no address (Port out of range"),
        ("http://h:0", "port 0"),
        ("http://[::1", "no address ("),
        ("http://name:word@h:1", "VLLM_API_KEY"),
        ("http://h:1/?a=b", "a query or a fragment"),
        ("http://h:1\n", "characters that no address has"),
        ("http://h :1", "characters that no address has"),
    ],
)
def test_what_is_no_address_is_said(text: str, clause: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse_address(text)
    assert clause in str(caught.value)
    assert "name:word" not in str(caught.value), "a password is not repeated"


@given(st.text(max_size=40) | st.from_regex(r"https?://[\[\]:@/?#a-z0-9.]{0,20}", fullmatch=True))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        parsed = parse_address(text)
    except AddressError:
        return
    assert parsed.scheme in ("http", "https")
    assert 0 < parsed.port < 65536
