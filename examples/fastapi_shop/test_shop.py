"""Tests of the shop with pgsched.testing: no database of pgsched, no worker."""

import pytest
import shop
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session

from pgsched.testing import assert_enqueued, refute_enqueued


@pytest.fixture
def client():
    shop.Base.metadata.create_all(shop.engine)
    return TestClient(shop.web, raise_server_exceptions=False)  # without `with`: no lifespan, so no worker


def test_an_order_enqueues_its_invoice(client, pgsched_recorder):
    answer = client.post("/orders", params={"mail": "ada@example.org", "cents": 320}).json()
    run = assert_enqueued(shop.invoice, args={"order": answer["order"]})
    assert run.id == answer["run"]
    assert client.get(f"/runs/{run.id}").json()["state"] == "queued"


def test_an_order_that_is_rolled_back_enqueues_nothing(client, pgsched_recorder):
    with Session(shop.engine) as session:
        shop.take_order("ada@example.org", 320, session)
        session.rollback()
    refute_enqueued(shop.invoice)


def test_the_invoice_has_the_number_of_its_order(client, pgsched_inline):
    answer = client.post("/orders", params={"mail": "ada@example.org", "cents": 320}).json()
    assert client.get(f"/runs/{answer['run']}/result").json() == {"result": f"invoice-{answer['order']}.pdf"}
