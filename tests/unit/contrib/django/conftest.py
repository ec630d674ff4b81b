"""Unit tests of what pgsched has for Django: they need Django's settings, and no database."""

import pytest

pytest.importorskip("django")

from tests.support.django_project.settings import set_up

set_up()
