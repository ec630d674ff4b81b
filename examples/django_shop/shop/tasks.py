"""The work of the shop, done by `python manage.py pgsched worker`."""

import django
from django.db import connection
from django.db.models import Sum

from pgsched.contrib.django import periodic, task_options
from shop.models import Order

if django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task


@task_options(max_attempts=3, timeout="1 minute", no_retry=ValueError)
@task(takes_context=True)
def write_invoice(context, order, pages=3):
    """Write the invoice of an order. Its number and the success of the run are committed together."""
    found = Order.objects.get(pk=order)
    if found.cents <= 0:
        raise ValueError(f"order {order} costs nothing")
    for page in range(1, pages + 1):
        context.run.progress(page, pages, f"page {page}")
    with context.run.transaction(connection):
        found.invoice = f"invoice-{order}.pdf"
        found.save()
        send_mail.using(priority=10).enqueue(found.mail, f"Your invoice: {found.invoice}")
        context.run.set_result(found.invoice)


@task(queue_name="mail")
async def send_mail(to, text):
    """Send a mail: here, only say so."""
    print(f"to {to}: {text}")
    return len(text)


@periodic(schedule="0 3 * * *", name="nightly totals", overlap="skip")
@task
def add_up():
    return Order.objects.aggregate(total=Sum("cents"))["total"] or 0
