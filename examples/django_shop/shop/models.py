"""The tables of the shop."""

from django.db import models


class Order(models.Model):
    mail = models.EmailField()
    cents = models.IntegerField()
    run = models.CharField(max_length=20, blank=True)  # the id of the result of its invoice
    invoice = models.CharField(max_length=100, blank=True)
