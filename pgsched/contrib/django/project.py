"""The App of the Django project, for `pgsched worker --app pgsched.contrib.django.project` and for child processes.

DJANGO_SETTINGS_MODULE says where the settings are; PGSCHED_DJANGO_BACKEND which backend of TASKS, if there are several.
"""

from __future__ import annotations

import os

import django
from django.apps import apps

from pgsched.contrib.django.project_app import get_app

if not apps.ready:
    django.setup()

app = get_app(os.environ.get("PGSCHED_DJANGO_BACKEND") or None)
