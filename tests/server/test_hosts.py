"""Only pages and clients that name this server's own hosts, whole and exactly, are served."""

from __future__ import annotations

import itertools

import pytest

from deep_agent_mcp.server.settings.hosts import ServedHosts, host_name

PORT = 8123
SERVED = ServedHosts(("agent.example.com", "fd00::1", "my_box"))
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
NAMED = ("agent.example.com", "[fd00::1]", "my_box")
OWN = (f"127.0.0.1:{PORT}",)


def product(*choices: tuple[object, ...]) -> list[tuple[object, ...]]:
    return list(itertools.product(*choices))


def status(hosts: tuple[str, ...], origins: tuple[str, ...] = ()) -> int:
    refusal = SERVED.refusal(hosts, origins)
    return 200 if refusal is None else refusal.status


@pytest.mark.parametrize("name", [*LOOPBACK, *NAMED])
def test_a_served_name_is_accepted_in_any_case_and_with_any_port(name: str) -> None:
    for port in ("", f":{PORT}", ":1", ":65535"):
        for given in (name + port, name.upper() + port, name.title() + port):
            assert status((given,)) == 200, given


@pytest.mark.parametrize(
    ("name", "origin"), product(LOOPBACK, ("http://{}", "HTTP://{}", "https://{}"))
)
def test_pages_of_this_machine_are_served_on_the_port_they_come_from(
    name: str, origin: str
) -> None:
    page = origin.format(name)
    assert status(OWN, (f"{page}:{PORT}",)) == 200
    assert status(("localhost",), (page,)) == 200
    assert status(("localhost:443",), (page,)) == (200 if "https" in page else 403)
    assert status(OWN, (f"{page}:{PORT + 1}",)) == 403
    assert status(OWN, (page,)) == 403


@pytest.mark.parametrize(("name", "port"), product(NAMED, ("", f":{PORT}", ":443", ":65535")))
def test_pages_of_a_host_that_the_operator_named_are_served(name: str, port: str) -> None:
    for host in (name + port, *OWN):  # a proxy may put its own name for the server there
        assert status((host,), (f"https://{name}{port}",)) == 200


def test_other_ports_of_this_machine_are_served_once_it_is_named() -> None:
    assert ServedHosts(("localhost",)).refusal(OWN, ("http://localhost:3000",)) is None


WRONG_AUTHORITIES = (
    "{}:{port}.evil.example",
    "{}.evil.example:{port}",
    "evil.example.{}:{port}",
    "evil{}:{port}",
    "{}evil:{port}",
    "{}.:{port}",
    ".{}:{port}",
    "{}..:{port}",
    "user@{}:{port}",
    "user:{port}@{}",
    "{}:{port}@evil.example",
    "{}@evil.example:{port}",
    "{}:",
    "{}:{port}:{port}",
    "{}:{port}x",
    "{}:x",
    "{}:-1",
    "{}:+{port}",
    "{}: {port}",
    "{}:0",
    "{}:0{port}",
    "{}:65536",
    "{}:99999999999999999999",
    "{}:\u0661\u0662",
    "{}:1e3",
    "{}:0x10",
    "{}:*",
    "{}:{port}/",
    "{}:{port}/x",
    "{}:{port}?x",
    "{}:{port}#x",
    "{}:{port}\\",
    "{}:{port}%00",
    "{}:{port}\n",
    " {}:{port}",
    "{}:{port} ",
    "{}:{port},evil.example",
    "{}:{port},{}:{port}",
    "{}:{port} {}:{port}",
    "[{}]:{port}",
    "{}%25eth0:{port}",
    "evil.example",
    "*",
    "",
)


@pytest.mark.parametrize("wrong", WRONG_AUTHORITIES)
def test_what_only_looks_like_a_served_name_is_refused(wrong: str) -> None:
    for name in ("localhost", "[::1]", "my_box"):
        text = wrong.format(name, name, port=PORT)
        assert status((text,)) == 421, text
        assert status(OWN, (f"http://{text}",)) == 403, text
        assert status(OWN, (f"https://{text}",)) == 403, text


@pytest.mark.parametrize(
    "address",
    ["[0:0:0:0:0:0:0:1]", "[::0001]", "[0::1]", "[::0.0.0.1]", "[FD00:0:0::1]", "[fd00:0::0001]"],
)
def test_an_ipv6_address_is_the_same_however_it_is_written(address: str) -> None:
    assert status((f"{address}:{PORT}",)) == 200
    assert status(OWN, (f"http://{address}:{PORT}",)) == 200


@pytest.mark.parametrize(
    "address",
    ["[::2]", "::1", "[::1", "::1]", "[[::1]]", "[]", "[:]", "[::1%eth0]", "[::ffff:127.0.0.1]"],
)
def test_other_addresses_and_open_brackets_are_refused(address: str) -> None:
    for port in ("", f":{PORT}"):
        assert status((address + port,)) == 421
        assert status(OWN, (f"http://{address}{port}",)) == 403


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://",
        "http:///",
        f"//127.0.0.1:{PORT}",
        f"127.0.0.1:{PORT}",
        f"ws://127.0.0.1:{PORT}",
        f"file://127.0.0.1:{PORT}",
        f"http:127.0.0.1:{PORT}",
        f"http:/127.0.0.1:{PORT}",
        f"http:\\\\127.0.0.1:{PORT}",
        f"xhttp://127.0.0.1:{PORT}",
        f"httpss://127.0.0.1:{PORT}",
        f"http://http://127.0.0.1:{PORT}",
        "http://127.1:8123",
        "http://2130706433:8123",
        "http://0x7f.1:8123",
        "http://0.0.0.0:8123",
        "vscode-webview://abc",
        "http://" + "a" * 10_000,
    ],
)
def test_origins_of_no_served_page_are_refused(origin: str) -> None:
    assert status(OWN, (origin,)) == 403


def test_a_header_that_comes_twice_is_refused() -> None:
    page = f"http://127.0.0.1:{PORT}"
    assert status(()) == 421
    assert status((*OWN, *OWN)) == 421
    assert status((*OWN, "evil.example")) == 421
    assert status(OWN, (page, page)) == 403
    assert status(OWN, (page, "http://evil.example")) == 403


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("Box.LAN", "box.lan"),
        ("fd00::1", "[fd00::1]"),
        ("[FD00:0::1]", "[fd00::1]"),
        ("10.0.0.7", "10.0.0.7"),
    ],
)
def test_a_host_to_allow_is_kept_in_one_spelling(given: str, name: str) -> None:
    assert host_name(given) == name


@pytest.mark.parametrize(
    "given",
    [
        "",
        "http://x",
        "x/y",
        "x:80",
        "[::1]:80",
        "*.lan",
        "a b",
        "u@x",
        "x.",
        "::g",
        "[x]",
        "m\xfcl",
    ],
)
def test_a_host_to_allow_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="bare host name"):
        host_name(given)
