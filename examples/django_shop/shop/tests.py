"""Tests of the shop with Django's own runner; the work is done where it is enqueued."""

from django.db import transaction
from django.test import TestCase, TransactionTestCase

from pgsched.contrib.django import get_app
from pgsched.testing import assert_enqueued, drain, record
from shop.models import Order
from shop.tasks import add_up, send_mail, write_invoice


class OrderTest(TestCase):
    def test_an_order_enqueues_its_invoice(self):
        with record(get_app()):
            number = self.client.post("/orders?mail=ada@example.org&cents=320").json()["order"]
            assert_enqueued(get_app().tasks[write_invoice.module_path], args={"order": number})

    def test_an_order_that_is_rolled_back_enqueues_nothing(self):
        with record(get_app()) as recorder, transaction.atomic():
            self.client.post("/orders?mail=ada@example.org&cents=320")
            transaction.set_rollback(True)
        self.assertEqual(recorder.runs, [])

    def test_a_task_is_a_function(self):
        Order.objects.create(mail="ada@example.org", cents=320)
        self.assertEqual(add_up.call(), 320)


class WorkerTest(TransactionTestCase):
    def test_a_worker_writes_the_invoice_and_sends_the_mail(self):
        number = self.client.post("/orders?mail=ada@example.org&cents=320").json()["order"]
        self.assertEqual(drain(get_app()), {"succeeded": 2})
        self.assertEqual(Order.objects.get().invoice, f"invoice-{number}.pdf")
        self.assertEqual(
            self.client.get(f"/orders/{number}").json(),
            {"invoice": f"invoice-{number}.pdf", "status": "SUCCESSFUL", "errors": []},
        )

    def test_a_mail_is_sent_once_its_transaction_commits(self):
        with transaction.atomic():
            result = send_mail.enqueue("ada@example.org", "hello")
            self.assertEqual(drain(get_app()), {})
        self.assertEqual(drain(get_app()), {"succeeded": 1})
        result.refresh()
        self.assertEqual(result.return_value, 5)
