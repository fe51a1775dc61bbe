"""What the daemon answers over HTTP, to whom, and what it refuses."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.reads import FakeReads, incident
from watchtower.web.access import Access
from watchtower.web.app import make_app
from watchtower.web.settings import WebSettings

HERE = "127.0.0.1"


class Caller:
    """Asks one application as this or that peer."""

    def __init__(self, settings: WebSettings | None = None, token: str | None = None) -> None:
        self.reads = FakeReads()
        self._app = make_app(self.reads, Access(settings or WebSettings(), token))

    async def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        peer: str = HERE,
        host: str = "127.0.0.1:9478",
        **headers: str,
    ) -> httpx.Response:
        transport = httpx.ASGITransport(app=self._app, client=(peer, 1234), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return await client.request(method, path, headers=named)


async def answer(path: str) -> Any:
    response = await Caller().ask(path)
    assert response.status_code == 200, response.text
    return response.json()


async def test_status_holds_all_at_a_glance_without_the_ranks() -> None:
    said = await answer("/api/v1/status")
    assert said["watcher"]["agents_fresh"] == 2
    assert [agent["node"] for agent in said["agents"]] == ["gpu-a", "gpu-b"]
    run = said["runs"][0]
    assert (run["run_id"], run["state"], run["incident"]["told"]) == (
        "slurm-4411",
        "deadlocked",
        ["slack", "pagerduty"],
    )
    assert "ranks" not in run


async def test_runs_one_run_and_its_transitions() -> None:
    assert [run["run_id"] for run in (await answer("/api/v1/runs"))["runs"]] == ["slurm-4411", "slurm-5000"]
    assert len((await answer("/api/v1/runs/slurm-4411"))["run"]["ranks"]) == 16
    changes = (await answer("/api/v1/runs/slurm-4411/transitions?limit=2"))["transitions"]
    assert [change["previous"] for change in changes] == ["progressing", "progressing"]


async def test_a_run_whose_id_holds_odd_signs_is_found() -> None:
    caller = Caller()
    odd = "torchrun-a/b c%"
    caller.reads.views = tuple(
        type(view)(**{f: getattr(view, f) for f in view.__struct_fields__} | {"run_id": odd})
        for view in caller.reads.views[:1]
    )
    response = await caller.ask("/api/v1/runs/torchrun-a%2Fb%20c%25")
    assert response.json()["run"]["run_id"] == odd


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/runs/nobody", 404),
        ("/api/v1/incidents/99", 404),
        ("/api/v1/incidents/x", 404),
        ("/api/v1/incidents/abcdef99", 404),
        ("/api/v1/incidents?limit=0", 400),
        ("/api/v1/incidents?limit=many", 400),
        ("/api/v1/incidents?limit=%C2%B2", 400),
        (f"/api/v1/incidents?limit={'9' * 5000}", 400),
        (f"/api/v1/incidents/{'9' * 30}", 404),
        (f"/api/v1/incidents/{'9' * 5000}", 404),
        ("/api/v1/incidents/%C2%B2", 404),
        ("/nowhere", 404),
    ],
)
async def test_what_is_not_there_is_said_in_json(path: str, status: int) -> None:
    response = await Caller().ask(path)
    assert response.status_code == status
    assert response.json()["error"]


async def test_open_incidents_can_be_asked_for_alone() -> None:
    assert [one["id"] for one in (await answer("/api/v1/incidents"))["incidents"]] == [7, 3]
    assert [one["id"] for one in (await answer("/api/v1/incidents?open=1"))["incidents"]] == [7]


async def test_healthz_is_503_with_the_reason_and_needs_no_token() -> None:
    caller = Caller(WebSettings(token_file=Path("t")), "secret")
    assert (await caller.ask("/healthz")).status_code == 200
    caller.reads.problem = "the last round was 40 s ago"
    response = await caller.ask("/healthz")
    assert (response.status_code, response.json()["reason"]) == (503, "the last round was 40 s ago")


async def test_metrics_are_prometheus_text() -> None:
    response = await Caller().ask("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "watchtower_rounds_total" in response.text


@pytest.mark.parametrize("path", ["/api/v1/status", "/metrics", "/", "/api/v1/incidents/7"])
async def test_with_a_token_everything_else_asks_for_it(path: str) -> None:
    caller = Caller(WebSettings(token_file=Path("t")), "secret")
    refused = await caller.ask(path)
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert (await caller.ask(path, authorization="Bearer wrong")).status_code == 401
    assert (await caller.ask(path, authorization="Basic secret")).status_code == 401
    assert (await caller.ask(path, authorization="Bearer secret")).status_code == 200


async def test_an_acknowledgement_is_noted_with_its_name() -> None:
    caller = Caller()
    response = await caller.ask("/api/v1/incidents/7/ack", method="POST", x_watchtower_user="jlee")
    assert response.status_code == 200
    assert response.json()["incident"]["acked_by"] == "jlee"
    assert caller.reads.acked == [(7, "jlee")]


async def test_an_incident_is_also_known_by_the_reference_of_its_pages() -> None:
    caller = Caller()
    caller.reads.incident_by_number[7] = incident(uid="cffa9d50708d27b7")
    path = "/api/v1/incidents/CFFA9D50"
    assert (await caller.ask(path)).json()["id"] == 7
    acked = await caller.ask(f"{path}/ack", method="POST", x_watchtower_user="jlee")
    assert (acked.status_code, caller.reads.acked) == (200, [(7, "jlee")])


@pytest.mark.parametrize(
    ("number", "status"), [(99, 404), (3, 409)], ids=["no such incident", "already resolved"]
)
async def test_an_acknowledgement_of_nothing_open_is_refused(number: int, status: int) -> None:
    response = await Caller().ask(f"/api/v1/incidents/{number}/ack", method="POST", x_watchtower_user="jlee")
    assert response.status_code == status


async def test_without_a_token_only_this_machine_acknowledges_and_says_who() -> None:
    caller = Caller(WebSettings(listen="0.0.0.0:9478", insecure=True))
    path = "/api/v1/incidents/7/ack"
    assert (await caller.ask(path, method="POST", peer="10.0.0.9", x_watchtower_user="x")).status_code == 403
    assert (await caller.ask(path, method="POST")).status_code == 403
    assert (await caller.ask(path, method="POST", x_watchtower_user="\t ")).status_code == 403
    assert (await caller.ask(path, method="POST", peer="::1", x_watchtower_user="x")).status_code == 200
    assert len(caller.reads.acked) == 1


async def test_with_a_token_an_acknowledgement_needs_it_from_anywhere() -> None:
    caller = Caller(WebSettings(token_file=Path("t")), "secret")
    path = "/api/v1/incidents/7/ack"
    assert (await caller.ask(path, method="POST", x_watchtower_user="x")).status_code == 401
    done = await caller.ask(path, method="POST", peer="10.0.0.9", authorization="Bearer secret")
    assert done.status_code == 200
    assert caller.reads.acked == [(7, "somebody with the token")]


async def test_an_acknowledgement_is_not_a_get() -> None:
    assert (await Caller().ask("/api/v1/incidents/7/ack")).status_code == 405


async def test_a_foreign_name_pointed_at_this_machine_reads_nothing() -> None:
    caller = Caller(WebSettings(public_url="https://watch.site/"))
    assert (await caller.ask("/api/v1/status", host="evil.example:9478")).status_code == 403
    for host in ("localhost:9478", "127.0.0.1:9478", "[::1]:9478", "watch.site"):
        assert (await caller.ask("/api/v1/status", host=host)).status_code == 200


async def test_an_unexpected_error_shows_no_traceback() -> None:
    caller = Caller()
    caller.reads.status = lambda: 1 // 0  # type: ignore[method-assign, assignment, return-value]
    response = await caller.ask("/api/v1/status")
    assert response.status_code == 500
    assert "Traceback" not in response.text
