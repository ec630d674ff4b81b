"""The Django project of docs/how-to/django.md: what `django-admin startproject` has made, and an app with one model."""

from __future__ import annotations

from tests.support.paths import ROOT

SHOP = ROOT / "examples" / "django_shop"
BASE = (SHOP / "shop" / "settings.py").read_text(encoding="utf-8").partition("TASKS = ")
# the settings of the example, without those of pgsched
SETTINGS = (
    (BASE[0] + BASE[2].partition("\n}\n")[2]).replace('    "pgsched.contrib.django",\n', "").replace("shop.", "mysite.")
)
MODELS = """
from django.db import models


class Order(models.Model):
    mail = models.EmailField()
    cents = models.IntegerField()
    paid = models.BooleanField(default=False)
"""
MIGRATION = """
from django.db import migrations, models


class Migration(migrations.Migration):
    operations = [migrations.CreateModel("Order", [
        ("id", models.BigAutoField(primary_key=True)), ("mail", models.EmailField(max_length=254)),
        ("cents", models.IntegerField()), ("paid", models.BooleanField(default=False)),
    ])]
"""
URLS = """
from django.contrib import admin
from django.urls import path

urlpatterns = [path("admin/", admin.site.urls)]
"""
DJANGO_PROJECT = {
    "manage.py": (SHOP / "manage.py").read_text(encoding="utf-8").replace("shop.settings", "mysite.settings"),
    "mysite/__init__.py": "", "mysite/base.py": SETTINGS, "mysite/urls.py": URLS,
    "shop/__init__.py": "", "shop/models.py": MODELS, "shop/migrations/__init__.py": "",
    "shop/migrations/0001_initial.py": MIGRATION,
}  # fmt: skip
