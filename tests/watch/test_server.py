import http.client
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from stoker.errors import Problem
from stoker.watch import guard, server
from tests.watch.made_up import made, train, training
from tests.watch.servers import PATIENCE_SECONDS, ask, free_port, served, started

TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("watched")
    made(found / "a", steps=40)
    made(found / "b", steps=20)
    return found


@pytest.fixture(scope="module")
def open_page(folder: Path) -> Iterator[str]:
    with served(folder) as address:
        yield address


@pytest.fixture(scope="module")
def closed_page(folder: Path) -> Iterator[str]:
    with served(folder, token=TOKEN) as address:
        yield address


class Stream:
    """A client that listens."""

    def __init__(self, address: str, query: str = "", *, seen: str = "") -> None:
        self.connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=PATIENCE_SECONDS)
        self.connection.request("GET", f"/events{query}", headers={"Last-Event-ID": seen} if seen else {})
        self.answer = self.connection.getresponse()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.answer.close()
        self.connection.close()

    def event(self) -> dict[str, str]:
        """The next event."""
        found: dict[str, str] = {}
        while line := self.answer.readline().decode().rstrip("\n"):
            name, _, value = line.partition(": ")
            found[name] = value
        return found

    def news(self) -> tuple[str, dict[str, Any]]:
        """The next news, and how much has then been seen."""
        while (event := self.event()).get("event") != "news":
            pass
        return event["id"], json.loads(event["data"])


def test_the_page_and_its_parts_are_served_with_headers_that_keep_others_out(open_page: str):
    status, headers, text = ask(f"{open_page}/")
    assert status == 200 and "<title>Stoker" in text
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self';" in policy and "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
    for name in ("page.css", "page.js", "list.js", "detail.js", "charts.js", "text.js", "look.json"):
        assert ask(f"{open_page}/{name}")[0] == 200
    assert "max-age" in ask(f"{open_page}/vega.js")[1]["cache-control"]


@pytest.mark.parametrize(
    "path",
    ["/server.py", "/a/record.json", "/../pyproject.toml", "/%2e%2e/server.py", "/..%2fserver.py", "/page.html%00"],
)
def test_nothing_else_is_served(open_page: str, path: str):
    assert ask(open_page + path)[0] == 404


def test_a_name_that_was_made_to_lead_here_is_refused(open_page: str):
    assert ask(f"{open_page}/", Host="evil.example:8770")[0] == 400
    assert ask(f"{open_page}/events", Host="evil.example")[0] == 400
    assert ask(f"{open_page}/", Host="localhost:1234")[0] == 200


def test_a_stream_tells_all_runs_and_the_parts_of_the_one_looked_at(open_page: str):
    with Stream(open_page) as stream:
        _, news = stream.news()
    runs = {value["name"]: value for value in news["values"].values()}
    assert news["whole"] and set(runs) == {"a", "b"} and runs["a"]["step"] == 40
    parts = dict[str, Any]()
    with Stream(open_page, f"?run={runs['a']['id']}") as stream:
        while f"part/{runs['a']['id']}/why" not in parts:
            parts |= stream.news()[1]["values"]
    assert parts[f"part/{runs['a']['id']}/lines"][0].startswith("Epoch [0][ 2/10]")


@pytest.mark.parametrize("run", ["../a", "a", "%2e%2e%2f", "x" * 5000, "<script>"])
def test_a_run_is_named_by_its_id_alone(open_page: str, run: str):
    with Stream(open_page, f"?run={run}") as stream:
        _, news = stream.news()
    assert all(key.startswith("run/") for key in news["values"])


def test_who_comes_back_is_told_only_what_has_changed_since(tmp_path: Path):
    run = made(tmp_path / "a", status="running", steps=20)
    made(tmp_path / "b", steps=20)
    with training(run), served(tmp_path) as address:
        with Stream(address) as stream:
            seen, _ = stream.news()
        train(run, 20, 40)
        with Stream(address, seen=seen) as stream:
            _, news = stream.news()
        assert not news["whole"] and [(v["name"], v["step"]) for v in news["values"].values()] == [("a", 40)]
        with Stream(address, seen="another.7") as stream:
            _, anew = stream.news()
        assert anew["whole"] and len(anew["values"]) == 2


@pytest.mark.parametrize("path", ["/", "/page.js", "/events", "/vega.js", "/look.json", "/nothing"])
def test_without_the_token_there_is_nothing(closed_page: str, path: str):
    for address in (f"{closed_page}{path}", f"{closed_page}{path}?token=wrong"):
        status, headers, text = ask(address)
        assert status == 401 and "?token=" in text and TOKEN not in text
        assert "default-src 'none'" in headers["content-security-policy"]


def test_the_token_goes_from_the_address_into_a_cookie(closed_page: str):
    status, headers, _ = ask(f"{closed_page}/?token={TOKEN}")
    assert status == 303 and headers["location"] == "/"
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie
    assert ask(f"{closed_page}/", Cookie=cookie.split(";")[0])[0] == 200
    assert ask(f"{closed_page}/", Cookie=cookie.split("=")[0] + "=wrong")[0] == 401


def test_a_program_sends_the_token_as_bearer(closed_page: str):
    assert ask(f"{closed_page}/look.json", Authorization=f"Bearer {TOKEN}")[0] == 200
    assert ask(f"{closed_page}/look.json", Authorization=f"Basic {TOKEN}")[0] == 401
    assert ask(f"{closed_page}/look.json", Authorization="Bearer wörng".encode().decode("latin-1"))[0] == 401


def test_the_token_does_not_open_the_page_to_other_names(closed_page: str):
    assert ask(f"{closed_page}/", Host="evil.example", Authorization=f"Bearer {TOKEN}")[0] == 400


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "box.example"])
def test_a_network_sees_nothing_without_a_token(folder: Path, host: str):
    with pytest.raises(Problem) as caught:
        server.serve(folder, host=host, port=8770, token=None)
    assert "ssh -L 8770:127.0.0.1:8770" in caught.value.fix and f"--host {host} --token auto" in caught.value.fix


def test_a_token_that_can_be_guessed_is_refused(folder: Path):
    with pytest.raises(Problem, match="can be guessed") as caught:
        server.serve(folder, host="127.0.0.1", port=8770, token="1234")
    assert "--token auto" in caught.value.fix


def test_a_token_that_is_made_is_told_on_stderr_and_is_in_no_list_of_processes(folder: Path):
    port = free_port()
    command = [sys.executable, "-m", "stoker", "watch", str(folder), "--port", str(port), "--token", "auto"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = next(line for line in process.stderr if line.startswith("open "))
        address, _, token = said.split()[-1].partition("/?token=")
        assert address == f"http://127.0.0.1:{port}" and len(token) >= 20
        assert ask(f"{address}/")[0] == ask(f"{address}/?token=auto")[0] == 401
        assert ask(f"{address}/", Authorization=f"Bearer {token}")[0] == 200
        if (listed := Path(f"/proc/{process.pid}/cmdline")).exists():
            assert b"watch" in listed.read_bytes() and token.encode() not in listed.read_bytes()
    finally:
        process.kill()
        process.communicate()


def test_a_made_token_is_told_also_by_a_program_that_is_quiet(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(server, "served", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    for _ in range(2):
        server.serve(folder, host="127.0.0.1", port=free_port(), token="auto", show=False)
    tokens = re.findall("token=(.*)", capsys.readouterr().err)
    assert len(set(tokens)) == 2, "and is another each time"


def test_the_address_that_it_listens_on_is_a_name_of_its_own(folder: Path):
    asked = {
        "type": "http", "method": "GET", "path": "/look.json", "query_string": b"",
        "headers": [(b"host", b"127.0.0.2:8770")],
    }  # fmt: skip
    for host, expected in (("127.0.0.2", 200), ("127.0.0.1", 400)):
        answers = list[Any]()

        async def send(message: Any, answers: list[Any] = answers) -> None:
            answers.append(message)

        anyio.run(server.app(server.Hub(folder), token=None, host=host), asked, None, send)
        assert answers[0]["status"] == expected
    said = "\n".join(server.greeting(folder, host="127.0.0.2", port=8770, token=None))
    assert "ssh -L 8770:127.0.0.2:8770" in said and "and open http://127.0.0.1:8770/" in said


def test_a_port_that_is_taken_is_told_with_one_that_is_free(folder: Path):
    with server.listening_on("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Problem, match=f"port {port} of 127.0.0.1 is taken") as caught:
            server.serve(folder, host="127.0.0.1", port=port, token=None)
    free = int(caught.value.fix.split("--port ")[1])
    server.listening_on("127.0.0.1", free).close()
    assert free != port


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 99999), ("localhost.invalid", 8770)])
def test_an_address_that_is_none_is_a_problem(folder: Path, host: str, port: int):
    with pytest.raises(Problem):
        server.serve(folder, host=host, port=port, token=TOKEN)


def test_a_folder_that_is_not_there_is_a_problem(tmp_path: Path):
    with pytest.raises(Problem, match="is no folder"):
        server.serve(tmp_path / "nowhere", host="127.0.0.1", port=8770, token=None)


def test_ctrl_c_ends_it_though_somebody_listens(folder: Path):
    port = free_port()
    process = started(folder, port)
    with Stream(f"http://127.0.0.1:{port}") as stream:
        stream.news()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port))


def test_the_greeting_says_what_to_open_here_and_from_elsewhere(tmp_path: Path):
    said = "\n".join(server.greeting(tmp_path, host="127.0.0.1", port=8770, token=None))
    assert "http://127.0.0.1:8770/" in said and "ssh -L 8770:127.0.0.1:8770" in said
    said = "\n".join(server.greeting(tmp_path, host="0.0.0.0", port=8770, token=TOKEN))
    assert f":8770/?token={TOKEN}" in said and "0.0.0.0" not in said and "ssh" not in said


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("10.0.0.1", False)],
)
def test_a_loopback_address_is_known(host: str, expected: bool):
    assert guard.is_loopback(host) is expected
