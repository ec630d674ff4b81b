"""The addresses."""

from django.contrib import admin
from django.urls import path

from shop import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("orders", views.take_order),
    path("orders/<int:number>", views.show_order),
]
