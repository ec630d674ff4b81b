"""The table of orders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    operations = (
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("mail", models.EmailField(max_length=254)),
                ("cents", models.IntegerField()),
                ("run", models.CharField(blank=True, max_length=20)),
                ("invoice", models.CharField(blank=True, max_length=100)),
            ],
        ),
    )
