"""The web: take an order, and say what became of its invoice."""

from django.db import transaction
from django.http import JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from shop.models import Order
from shop.tasks import write_invoice


@csrf_exempt
@require_POST
def take_order(request):
    """Store an order and enqueue its invoice: both are committed, or neither."""
    with transaction.atomic():
        order = Order.objects.create(mail=request.GET["mail"], cents=int(request.GET["cents"]))
        order.run = write_invoice.enqueue(order.pk).id
        order.save()
    return JsonResponse({"order": order.pk, "run": order.run}, status=201)


async def show_order(request, number):
    order = await Order.objects.aget(pk=number)
    result = await write_invoice.aget_result(order.run)
    errors = [error.exception_class.__name__ for error in result.errors]
    return JsonResponse({"invoice": order.invoice, "status": result.status, "errors": errors})
